"""Each fact about a schedule is computed once, and released when it is no longer needed.

The oracle is a count of the calls of each analysis, and a fresh value that derives everything anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched import schedule_analysis
from pipesched.analysis.communication import STRICT
from pipesched.compile import Options, examine, load, lower, read
from pipesched.insight.diff import differ
from pipesched.insight.why import why
from pipesched.model.costs import Costs
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.verbs.emit import emit
from pipesched.verbs.verify import verify
from tests.makers import strategies

DERIVED = ("timeline", "memory", "idle", "communicate", "pair", "verdicts", "of_program")
OPTIONS = Options({"p": 4, "m": 8})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Number of runs of each analysis."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counted[name] += 1
            return function(*arguments)

        return call

    for name in DERIVED:
        monkeypatch.setattr(schedule_analysis, name, counting(name, getattr(schedule_analysis, name)))
    return counted


def test_verify_derives_each_fact_once(calls: Counter[str]) -> None:
    """Memory is also derived once, although the claims use the peak of every rank."""
    assert verify(read("zb_h1"), OPTIONS).ok
    assert calls == dict.fromkeys(("timeline", "memory", "idle", "communicate", "pair", "verdicts"), 1)


def test_emit_judges_what_it_lowered_and_derives_the_order_once(calls: Counter[str]) -> None:
    """A lowered program is verified as its own file: its facts are its own, and its times equal the times of the
    order."""
    assert emit(read("zb_h1"), OPTIONS, "stream").report.ok
    assert calls == dict.fromkeys(("timeline", "memory", "idle", "communicate", "pair", "verdicts"), 1)


def test_why_runs_the_order_at_two_sizes_and_nothing_else_twice(calls: Counter[str]) -> None:
    """Growth uses the times at a larger m; with even stages and no latency no other costs are tried."""
    why(read("zb_h1"), OPTIONS)
    assert calls["timeline"] == 2 and calls["memory"] == calls["communicate"] == calls["idle"] == 1


def test_diff_derives_each_side_once(calls: Counter[str]) -> None:
    """For two files each fact is derived twice, once per file."""
    made = [examine(load(read(name), OPTIONS), OPTIONS) for name in ("1f1b", "gpipe")]
    assert all(side.report.ok for side in made)
    differ(*made).figures()
    assert calls["timeline"] == calls["memory"] == calls["idle"] == 2


def test_a_report_keeps_nothing_derived() -> None:
    """The value in a report, for its picture, has only its fields; the lowered program is released after the checks."""
    made = examine(load(read("zb_h1"), OPTIONS), OPTIONS)
    subject = made.report.subject
    assert subject is not None and subject.__dict__.keys() == Analysis.__dataclass_fields__.keys()
    assert not {"program", "pairing"} & made.analysis.__dict__.keys()


def same(a: Analysis, b: Analysis) -> None:
    """Compare the facts of two values of the same schedule."""
    assert (a.timeline.start == b.timeline.start).all() and a.timeline.stuck == b.timeline.stuck
    assert a.memory.peak == b.memory.peak and a.idle == b.idle and a.costs_used == b.costs_used
    assert a.verdicts == b.verdicts and (a.buffers is None) == (b.buffers is None)
    assert a.buffers is None or b.buffers is None or a.buffers.received.most == b.buffers.received.most
    assert (a.standstill is None) == (b.standstill is None) and (a.as_run.end == b.as_run.end).all()


@settings(deadline=None, max_examples=15)
@given(strategies.SEEDS, st.data())
def test_another_program_changes_what_follows_from_it_alone(seed: int, data: st.DataObject) -> None:
    """A random schedule with all facts derived equals a fresh value after it gets another program."""
    schedule = strategies.random_schedule(seed)
    costs = data.draw(strategies.costs(schedule.stages))
    alone = Analysis(schedule, costs)
    same(alone, Analysis(schedule, costs))
    program = lower(schedule)
    same(alone.having(program), Analysis(schedule.with_program(program), costs))
    same(alone.having(program).having(None), alone)


def test_what_was_forgotten_is_derived_again() -> None:
    """Releasing facts takes time, but does not change results."""
    schedule = load(read("dualpipe"), OPTIONS).schedule
    assert isinstance(schedule, Schedule)
    made = Analysis(schedule, Costs.parse("F=2,B=5,C=1"))
    before = made.timeline
    made.forget("timeline", "program")
    assert made.timeline is not before and np.array_equal(made.timeline.end, before.end)


def test_a_slot_has_both_parts_of_a_pair() -> None:
    """Both parts of a pair have one text, from either of them; the last operation of the last rank has its own."""
    schedule = load(read("dualpipe"), Options({"p": 4, "m": 8})).schedule
    pairs = [i for i in range(1, len(schedule)) if schedule.joined[i]]
    assert pairs and all(schedule.slot(i) == schedule.slot(i - 1) == f"{schedule[i - 1]}+{schedule[i]}" for i in pairs)
    assert schedule.slot(len(schedule) - 1) == str(schedule[len(schedule) - 1])


def test_another_program_has_its_own_verdict() -> None:
    """Messages of a file deadlock; the lowering of the same order, asked afterwards, holds under strict."""
    made = Analysis(pipesched.load(Path(__file__).parents[1] / "torch_fixtures" / "c15_both_send_first.csv"))
    assert made.verdicts is not None and STRICT in made.verdicts.fails
    other = made.having(None)
    assert other.verdicts is not None and STRICT in other.verdicts.holds and made.messages == other.messages
