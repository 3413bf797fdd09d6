"""On random programs with all forms of the language, the compiler and an interpreter written from the reference agree
about orders and refusals, and emitted programs are read back unchanged.

`python -m tests.core.test_random_forms --cases 20000` is the nightly run; `--first 5000` begins at that seed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from pipesched import compile as compiler
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination, Options
from pipesched.lift.writer import write
from pipesched.model.costs import Costs
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers import ps_forms
from tests.oracles import ps_clock as clock
from tests.oracles import ps_stream
from tests.oracles.ps_claims import judged
from tests.oracles.ps_interpreter import Refused, Slot, Written, interpret
from tests.oracles.ps_reader import read

RELEASES = {"W": Fraction(0), "I": Fraction(1), "split:1/4": Fraction(3, 4), "torch": Fraction(-3, 5)}
PLACED = {"PS215", "PS216"}
ALIKE = {"PS215": PLACED, "PS216": PLACED, "PS310": {"PS310", "PS222"}}
"""The codes of which one is told, where a file is wrong in two ways: its placement, or its costs too."""
MEANT = {
    "K": {"PS222"},
    "twice": {"PS302"},
    "missing or twice": {"PS301", "PS302"},
    "copies": {"PS301", "PS311"},
    "order": {"PS305"},
    "overlap": {"PS307"},
    "cycle": {"PS306"},
}
"""The codes of which one is told, by what the interpreter finds wrong with an order."""


def slots(schedule: Schedule) -> list[list[Slot]]:
    orders: list[list[Slot]] = []
    for rank in range(schedule.ranks):
        orders.append([])
        for x in schedule.order(rank):
            step = (x.op.name, x.stage, x.microbatch)
            if x.second:
                orders[-1][-1] = (*orders[-1][-1], step)
            else:
                orders[-1].append((step,))
    return orders


def compared(
    text: str, given: Mapping[str, Any], release: str = "W", asked: Mapping[str, Fraction] | None = None
) -> str:
    """Compare all results of a file with the interpreter; the outcome in a word.

    asked: costs of the command line.
    """
    costs = Costs(dict(asked)) if asked else None
    source, options = Source("forms.ps", text), Options(dict(given), costs, Release.parse(release))
    written = interpreted(text, given, asked)
    if isinstance(written, str):
        assert ALIKE.get(written, {written}) & refusals(source, options), written
        return written
    loaded = compiler.load(source, options)
    made = compiler.examine(loaded, options)
    wrong = clock.wrong(written.model, written.slots)
    assert wrong == "twice" or slots(loaded.schedule) == written.slots
    played = None if wrong else clock.play(written.model, written.slots)
    if wrong or played is None:
        wrong = wrong or "cycle"
        assert MEANT[wrong] & {str(x.code) for x in made.report.diagnostics}, wrong
        return wrong
    program = made.analysis.program
    claims = facts(written, played, made, release)
    assert program is not None
    if False in claims:
        assert {str(x.code) for x in made.report.diagnostics if x.severity == "error"} == {"PS221"}
        return "claim"
    assert made.report.ok, made.report.text()
    emitted = "".join(compiler.emit(program, "stream", compiler.Head(loaded.sizes)))
    again(written, played, emitted, made, release)
    if not len(written.slots[0]) % 5:
        assert interpret(read(write(loaded.schedule)), {}).slots == written.slots
    return "accepted"


def interpreted(text: str, given: Mapping[str, Any], asked: Mapping[str, Fraction] | None) -> Written | str:
    """Return the interpreter's result for a file, or the code with which it refuses it."""
    try:
        return interpret(read(text), given, asked)
    except Refused as refused:
        return str(refused)


def refusals(source: Source, options: Options) -> set[str]:
    """Return the codes with which a file is refused: one that prevents an order, or all faults of the order."""
    try:
        found = compiler.examine(compiler.load(source, options), options).report.diagnostics
    except PipeschedError as error:
        found = error.diagnostics
        assert len({x.code for x in found}) == 1, found
    return {str(x.code) for x in found if x.severity == "error"}


def facts(written: Written, played: clock.Played, made: Examination, release: str) -> list[bool | None]:
    """Return every instant and every figure; the verdicts on its claims."""
    model, schedule, report = written.model, made.analysis.schedule, made.report
    assert report.time is not None and report.memory is not None
    times = made.analysis.timeline
    for at in range(len(schedule)):
        x = schedule[at]
        mine = made.analysis.time(times.start[at]), made.analysis.time(times.end[at])
        if x.op.name not in "OL":
            assert mine == played.times[x.op.name, x.stage, x.microbatch], x
    figures = clock.Figures.of(model, written.slots, played)
    assert report.messages == len(played.messages)
    assert report.time.makespan == figures.makespan and report.time.span == figures.span
    assert list(report.time.work) == figures.work and list(report.time.idle) == figures.idle
    assert list(report.memory.peak) == figures.peaks(RELEASES[release])
    assert list(made.analysis.memory.host or [0] * model.ranks) == figures.hosts
    holds = [judged(claim, written, figures) for claim in written.claims]
    assert [claim.holds for claim in report.claims] == holds
    return holds


def again(written: Written, played: clock.Played, emitted: str, first: Examination, release: str) -> None:
    """The stream runs the same slots, and has a message for each result that another rank needs, in an order that
    finishes even if every send blocks; read again it has the same verdict.
    """
    ps_stream.require(json.loads(emitted), written.model, written.slots, played.messages)
    source, options = Source("forms.json", emitted), Options(costs=first.analysis.costs, release=Release.parse(release))
    found = compiler.examine(compiler.load(source, options), options)
    assert slots(found.analysis.schedule) == written.slots
    report, before = found.report, first.report
    assert report.ok, report.text()
    assert report.time is not None and before.time is not None
    assert report.time.makespan == before.time.makespan and report.messages == before.messages
    assert report.memory is not None and before.memory is not None and report.memory.peak == before.memory.peak
    assert (
        "".join(
            compiler.emit(found.loaded.program or found.loaded.schedule, "stream", compiler.Head(found.loaded.sizes))
        )
        == emitted
    )


def counted(seeds: Sequence[int]) -> tuple[Counter[str], Counter[str]]:
    """Return the outcomes of the programs of some seeds, and the number of programs with each form."""
    ends, forms = Counter[str](), Counter[str]()
    for seed in seeds:
        text, given = ps_forms.program(seed)
        release, asked = ps_forms.asked(seed)
        try:
            end = compared(text, given, release, asked)
        except (AssertionError, pytest.fail.Exception, LookupError, TypeError, ValueError, PipeschedError) as error:
            raise AssertionError(
                f"seed {seed}, {dict(given)}, {release}, {asked}: {type(error).__name__}: {error}\n{text}"
            ) from error
        ends[end] += 1
        forms.update(ps_forms.forms(read(text), given) if end == "accepted" else ())
        forms.update({f"refused {end}"} if end != "accepted" else ())
    return ends, forms


@pytest.mark.parametrize("block", range(5))
def test_random_programs_are_what_the_reference_says(block: int) -> None:
    """Both accept or refuse; accepted programs have the same order, times, peaks and claims, and an equal stream;
    written as a file they are the same order.
    """
    ends, _ = counted(range(block * deep(15), (block + 1) * deep(15)))
    assert ends["accepted"] > deep(5) and len(ends) > 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare random programs with an interpreter of the reference.")
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    ends, forms = counted(range(asked.first, asked.first + asked.cases))
    print(f"{asked.cases} programs from {asked.first}, no difference: {ends['accepted']} accepted")
    for name, count in sorted(forms.items()):
        print(f"{count:7} {name}")
