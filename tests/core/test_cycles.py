"""In random orders and programs a cycle is reported if and only if ranks stop; it is closed, and no cycle has fewer
ranks.

The oracles for where ranks stop are slow simulations, and under the laxer models an explorer of all interleavings.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import pipesched
from pipesched import compile as compiler
from pipesched.model.schedule import Program
from pipesched.report.report import Report
from tests.depth import deep
from tests.makers import strategies
from tests.makers.programs import of_instructions
from tests.oracles import explorer, simulate
from tests.readers.cycles import closed, hops, shortest, stopped


def test_cycles_of_random_orders() -> None:
    """PS306 exactly if a slow run stops; the labels form a cycle, and no cycle has fewer ranks."""
    found = 0
    for seed in range(deep(50, usual=30)):
        schedule = strategies.shuffled_schedule(seed)
        report = pipesched.verify(schedule)
        stands, waits = stopped(schedule)
        assert any(d.code == "PS306" for d in report.diagnostics) == bool(stands)
        if stands:
            cycle = hops(report, "PS306")
            following = {r: [x.second for x in schedule.order(r)[i + 1 : i + 2]] == [True] for r, i in stands.items()}
            closed(cycle, stands, following)
            assert len(cycle) == shortest(waits)
            found += 1
    assert found >= deep(10, usual=5)


def crossed(seed: int, *, ranks: int = 4, microbatches: int = 4) -> Program:
    """Swap messages of a rank in a right program."""
    rng = random.Random(seed)
    program = compiler.lower(strategies.random_schedule(seed, ranks=ranks, microbatches=microbatches))
    lists = [program.instructions(rank) for rank in range(program.ranks)]
    for _ in range(rng.randint(1, 4)):
        listed = rng.choice(lists)
        at = [i for i, x in enumerate(listed) if x.op.send or x.op.receive]
        if len(at) > 1:
            n = rng.randrange(len(at) - 1)
            i, j = at[n], at[min(len(at) - 1, n + rng.randint(1, 3))]
            listed[i], listed[j] = listed[j], listed[i]
    return of_instructions(lists, program.placement)


def test_cycles_of_random_programs() -> None:
    """PS401 exactly if a slow rendezvous stops; the labels form a cycle, and no cycle has fewer ranks."""
    found = cured = 0
    for seed in range(deep(50, usual=35)):
        program = crossed(seed)
        report = pipesched.verify(program)
        lists = [program.instructions(rank) for rank in range(program.ranks)]
        at = {rank: i for rank, i in enumerate(simulate.rendezvous(program)) if i < len(lists[rank])}
        assert any(d.code == "PS401" for d in report.diagnostics) == bool(at)
        if at:
            cycle = hops(report, "PS401")
            closed(cycle, at)
            partner = simulate.partners(lists)
            assert all(partner[hop.rank, hop.step - 1] == (hop.other, hop.there - 1) for hop in cycle)
            assert len(cycle) == shortest({rank: {partner[rank, i][0]} for rank, i in at.items()})
            found, cured = found + 1, cured + _remedied(program, report)
    assert found >= deep(12) and cured


def _remedied(program: Program, report: Report) -> bool:
    """Return True if a single move is suggested; require that the program with this move finishes and swaps no
    message."""
    (advice,) = [d.help or "" for d in report.diagnostics if d.code == "PS401"]
    match = re.fullmatch(r"on rank (\d+), put (\S+) before (\S+): then the program completes under strict", advice)
    if not match:
        return False
    lists = [program.instructions(rank) for rank in range(program.ranks)]
    listed = lists[int(match[1])]
    names = [str(x) for x in listed]
    listed.insert(names.index(match[3]), listed.pop(names.index(match[2])))
    moved = of_instructions(lists, program.placement)
    assert simulate.finishes(moved)
    assert "PS403" not in [d.code for d in pipesched.verify(moved).diagnostics]
    return True


LABEL = re.compile(
    r"rank (\d+), step (\d+): (?:waits for (\S+), )?waits until rank (\d+) reaches (\S+) \(step (\d+)\)"
    r"(?:, queued behind (\S+) \(step (\d+)\))?"
)


@pytest.mark.parametrize("model", ["buffered(1)", "one-stream", "pair-stream", "async"])
def test_cycles_under_the_other_models(model: str) -> None:
    """PS401 exactly if the explorer of all interleavings finds that ranks stop; each rank is shown where it stops.

    A rank that waits only at its end, or whose queue alone is in the way, is shown at the message that does not go.
    Later messages of a queue are later in the list; every name is that of the instruction there.
    """
    labels, queued = 0, 0
    for seed in range(deep(40, usual=24)):
        program = crossed(seed, ranks=3, microbatches=2)
        if int(np.prod(np.diff(program.start) + 1)) > 5_000:
            continue
        stops = explorer.stops(program, model)
        report = pipesched.verify(program, comm=model)
        assert any(d.code == "PS401" for d in report.diagnostics) == any(stop >= 0 for stop in stops)
        lists = [[str(x) for x in program.instructions(rank)] for rank in range(program.ranks)]
        for label in [label for d in report.diagnostics if d.code == "PS401" for label in d.labels]:
            match = LABEL.fullmatch(label.message)
            assert match, label.message
            rank, i, other, there = int(match[1]), int(match[2]) - 1, int(match[4]), int(match[6]) - 1
            assert i == stops[rank] or "SEND" in lists[rank][i] or "RECV" in lists[rank][i]
            assert lists[other][there] == match[5] and (match[3] is None or match[3] in lists[rank])
            if match[7]:
                assert lists[other][int(match[8]) - 1] == match[7] and int(match[8]) - 1 < there
            labels, queued = labels + 1, queued + bool(match[7])
    assert labels >= (0 if model == "async" else deep(10, usual=5)) and (queued > 0) == model.endswith("stream")
