"""Each kind of picture, when it is read back, equals a run that was simulated independently.

The readers are `readers/drawings.py`, the run is that of `oracles/simulate.py`.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.views.chart.chart import chart
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.readers.drawings import READERS, Operation, Read

CALM = settings(derandomize=True, deadline=None, max_examples=deep(7, usual=4))


def simulated(schedule: Schedule, costs: Costs, *, drawn_to: str) -> Read:
    """Return the run; a message goes to its `arrival`, or to the `start` of who takes it."""
    costed = simulate.rows(costs, schedule.stages)
    run, late = simulate.run(schedule, costed), costed["C"]
    made_by, share = simulate.producers(run.orders, schedule.stages), Fraction(schedule.ranks, schedule.stages)
    assert late is not None
    found, messages = [], []
    for rank, order in enumerate(run.orders):
        for i, x in enumerate(order):
            there, j = made_by.get((rank, i), (-1, -1))
            needs = str(run.orders[there][j]) if j >= 0 else ""
            held = sum({Op.F: 1, Op.I: 0}.get(y.op, -1) for y in order[: i + 1]) * share
            found.append(Operation(rank, str(x), run.start[rank, i], run.end[rank, i], held, needs))
            if j >= 0 and there != rank:
                sent = run.end[there, j]
                taken = run.start[rank, i] if drawn_to == "start" else sent + late[run.orders[there][j].stage]
                messages.append((there, sent, rank, taken))
    return Read(found, messages, [peak * share for peak in simulate.held(run, Fraction(0), Fraction(1))])


@pytest.mark.parametrize("kind", READERS)
@CALM
@given(strategies.schedules(), st.data())
def test_what_is_drawn_is_the_simulated_run(kind: str, schedule: Schedule, data: st.DataObject) -> None:
    """Every operation with its times, its producer and what its rank holds after it; every message; every peak."""
    costs = data.draw(strategies.costs(schedule.stages))
    known = simulated(schedule, costs, drawn_to="start" if kind == "svg" else "arrival")
    assume(kind != "svg" or all(x.start != x.end for x in known.operations))
    read = READERS[kind](chart(schedule, costs))
    held, needs = read.operations[0].held is not None, read.operations[0].needs is not None
    assert read.operations == [
        replace(x, held=x.held if held else None, needs=x.needs if needs else None) for x in known.operations
    ]
    assert read.messages is None or sorted(read.messages) == sorted(known.messages or [])
    assert read.peaks is None or read.peaks == known.peaks


@pytest.mark.parametrize("kind", READERS)
@settings(CALM, max_examples=deep(10, usual=5))
@given(st.builds(strategies.broken_schedule, strategies.SEEDS))
def test_what_is_broken_is_drawn_as_far_as_it_runs(kind: str, schedule: Schedule) -> None:
    """An operation with a time (`test_timeline`) is drawn there, as often as it is in the list; one without a time is
    not drawn, or is drawn without a time. A third part of a slot is in no trace."""
    made = chart(schedule, Costs.parse("F=3/2,C=1/4"))
    times = (
        (made.time(int(start)), made.time(int(end)))
        for start, end in zip(made.times.start, made.times.end, strict=True)
    )
    known = [
        (int(schedule.rank[i]), str(schedule[i]), *((None, None) if start < 0 else (start, end)))
        for i, (start, end) in enumerate(times)
    ]
    third = [False, *(schedule.joined[1:] & schedule.joined[:-1])][: len(known)]
    ran = [x for x, more in zip(known, third, strict=True) if x[2] is not None and not (kind == "trace" and more)]
    if kind != "svg" or ran:
        read = [(x.rank, x.name, x.start, x.end) for x in READERS[kind](made).operations]
        assert read == (ran if kind in ("svg", "trace") else known)
