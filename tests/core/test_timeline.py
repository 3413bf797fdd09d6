"""The timeline equals a slow simulation, operation by operation, at any costs.

The oracle (`oracles/simulate.py`) sweeps over dicts of fractions; both engines, rounds and events, are held against it.
"""

from __future__ import annotations

from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.analysis import lists as engine
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.idle import idle
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.model.costs import Costs
from pipesched.model.schedule import Schedule
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import Played, rows

ENGINES = {"events": range(0), "rounds": range(10**6), "chosen": engine.ROUNDS}
"""For how many lists rounds are chosen."""
CALM = settings(derandomize=True, deadline=None, max_examples=deep(15))


def ran(schedule: Schedule, costs: Costs, how: str) -> Timeline:
    with mock.patch.object(engine, "ROUNDS", ENGINES[how]):
        return timeline(schedule, Dependencies.of(schedule), costs.ticks(schedule.stages))


def compared(schedule: Schedule, costs: Costs, times: Timeline, played: Played) -> None:
    """Compare start and end of every operation, and the stop of each rank."""
    scale = costs.ticks(schedule.stages).scale
    for i in range(len(schedule)):
        rank = int(schedule.rank[i])
        spot = rank, i - int(schedule.start[rank])
        found = (
            (Fraction(int(times.start[i]), scale), Fraction(int(times.end[i]), scale)) if times.end[i] >= 0 else None
        )
        known = (played.start[spot], played.end[spot]) if spot in played.end else None
        assert found == known, (rank, schedule.step(i), str(schedule[i]))
    stops = [None if i < 0 else i - int(schedule.start[rank]) for rank, i in enumerate(times.stuck)]
    assert stops == played.stuck


@CALM
@given(strategies.schedules(), st.data())
def test_every_operation_starts_and_ends_as_simulated(schedule: Schedule, data: st.DataObject) -> None:
    """Zero costs, costs by stage, latency, pairs with their own cost, two routes: the times are always equal."""
    costs = data.draw(strategies.costs(schedule.stages))
    played = simulate.run(schedule, rows(costs, schedule.stages))
    assert played.stuck == [None] * schedule.ranks
    for how in ENGINES:
        compared(schedule, costs, ran(schedule, costs, how), played)


@CALM
@given(strategies.SEEDS.map(strategies.shuffled_schedule), st.data())
def test_it_stops_where_the_simulation_stops(schedule: Schedule, data: st.DataObject) -> None:
    """Compute orders that wait for each other: operations that ran have the same times, and each rank stops at the same
    place."""
    costs = data.draw(strategies.costs(schedule.stages))
    played = simulate.run(schedule, rows(costs, schedule.stages))
    for how in ENGINES:
        times = ran(schedule, costs, how)
        compared(schedule, costs, times, played)
        assert times.finished == (played.stuck == [None] * schedule.ranks)


def test_both_verdicts_are_common_among_the_shuffled() -> None:
    """The law above is not empty: at least a fifth of such schedules stop, and a fifth finish."""
    stuck = [any(x is not None for x in simulate.run(s, rows(Costs(), s.stages)).stuck) for s in _shuffled(200)]
    assert 40 <= sum(stuck) <= 160


def _shuffled(count: int) -> list[Schedule]:
    return [strategies.shuffled_schedule(seed) for seed in range(count)]


@CALM
@given(strategies.schedules(), st.data())
def test_the_makespan_is_no_shorter_than_any_chain_or_any_rank(schedule: Schedule, data: st.DataObject) -> None:
    """makespan >= the longest chain of dependencies, and >= each rank's work; work, span and idle time as simulated."""
    costs = data.draw(strategies.costs(schedule.stages))
    known = rows(costs, schedule.stages)
    played = simulate.run(schedule, known)
    spent = idle(schedule, ran(schedule, costs, "chosen"), costs.ticks(schedule.stages))
    assert spent.makespan == played.makespan >= simulate.longest(schedule, known)
    for rank, order in enumerate(played.orders):
        work = sum((simulate.slot_cost(order, slot, known) for slot in simulate.slots(order)), Fraction(0))
        ends = [played.end[rank, i] for i in range(len(order))]
        starts = [played.start[rank, i] for i in range(len(order))]
        span = max(ends, default=Fraction(0)) - min(starts, default=Fraction(0))
        assert (spent.work[rank], spent.spans[rank]) == (work, span)
        assert spent.idle[rank] == played.makespan - work >= 0
        assert spent.span_idle[rank] == span - work >= 0
    assert spent.span == max(spent.spans)


@CALM
@given(strategies.schedules(), st.data())
def test_turns_are_a_topological_order(schedule: Schedule, data: st.DataObject) -> None:
    """Every slot has a later turn than the previous slot of its rank, and than the slots that make its inputs."""
    costs = data.draw(strategies.costs(schedule.stages))
    dependencies = Dependencies.of(schedule)
    for how in ENGINES:
        turn = ran(schedule, costs, how).turn
        for i in range(len(schedule)):
            assert not dependencies.crosses[i] or turn[dependencies.producer[i]] < turn[i]
            if i > schedule.start[schedule.rank[i]]:
                assert (turn[i] == turn[i - 1]) if schedule.second[i] else (turn[i] > turn[i - 1])


@pytest.mark.parametrize(
    ("name", "sizes", "text"),
    [
        ("zb_h2", {"p": 3, "m": 7}, "F=2,I=3,W=1,C=1/3"),
        ("zb_h1", {"p": 6, "m": 4}, "F=0,I=0,W=0"),
        ("dualpipe", {"p": 6, "m": 14}, "F=3/2,FB=2,C=1/7"),
        ("dualpipe", {"p": 6, "m": 12}, "F=[1,2,3,4,5,6],B=[6,5,4,3,2,1]"),
        ("interleaved", {"p": 2, "v": 3, "m": 4}, "F=[1,2,3,4,5,6],C=[6,5,4,3,2,1]"),
    ],
)
def test_a_report_tells_these_times(name: str, sizes: dict[str, int], text: str) -> None:
    """`verify` reports the simulated times, in the user's unit."""
    schedule = pipesched.load(name, **sizes)
    costs = Costs.parse(text)
    played = simulate.run(schedule, rows(costs, schedule.stages))
    time = pipesched.verify(schedule, costs=costs).time
    assert time is not None
    assert time.makespan == played.makespan
    starts = [min(played.start[r, i] for i in range(len(order))) for r, order in enumerate(played.orders)]
    ends = [max(played.end[r, i] for i in range(len(order))) for r, order in enumerate(played.orders)]
    assert time.span == max(end - start for start, end in zip(starts, ends, strict=True))


def test_rounds_and_events_agree_at_sizes_of_real_use() -> None:
    """The two engines give the same columns for every built-in schedule at sizes on both sides of the switch."""
    for name, sizes in (
        ("interleaved", {"p": 16, "v": 3, "m": 32}),
        ("dualpipe", {"p": 16, "m": 40}),
        ("zb_h1", {"p": 8}),
    ):
        schedule = pipesched.load(name, **sizes)
        costs = Costs.parse("F=3,I=4,W=2,C=1/2")
        one, other = ran(schedule, costs, "rounds"), ran(schedule, costs, "events")
        assert np.array_equal(one.start, other.start) and np.array_equal(one.end, other.end)
