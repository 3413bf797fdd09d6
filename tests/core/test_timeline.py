"""The timeline equals the timeline of a slow simulation, operation by operation, at any costs.

The oracle (`oracles/simulate.py`) sweeps over dicts of fractions; both engines, rounds and events, are held against it.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any
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
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement
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


def periodic(rng: random.Random) -> engine.Lists:
    """Lists that repeat their costs and waits with one period, but for a few entries anywhere."""
    count, period, times = rng.randint(1, 5), rng.randint(1, 5), rng.randint(8, 40)
    length, late = period * times, rng.random() < 0.5
    pattern = [(rng.randint(0, 4), rng.randrange(count), rng.randint(0, 6), rng.randint(0, 3)) for _ in range(period)]
    rows = [[rng.choice([*pattern, (1, 0, 0, 0)]) for _ in range(period)] * times for _ in range(count)]
    for _ in range(rng.choice([0, 0, 1, 3])):
        rows[rng.randrange(count)][rng.randrange(length)] = (rng.randint(0, 9), rng.randrange(count), 0, 5)
    cost = np.array([entry[0] for row in rows for entry in row])
    waits = [
        (row * length + i, other * length + i - 1 - back, delay * late)
        for row, entries in enumerate(rows)
        for i, (_, other, back, delay) in enumerate(entries)
        if i > back and other != row
    ]
    entry, awaited, delay = np.array(waits, dtype=np.int64).reshape(-1, 3).T
    return engine.Lists.of(cost, np.arange(count + 1) * length, (entry, awaited, delay))


def test_what_repeats_after_a_late_input_is_late() -> None:
    """All lists repeat with period 1, but the inputs of the last are 40 entries back, and one of them took 100: it ends
    at 345, so entry 285, which needs it, at 346, and the last entry 314 later."""
    cost, size = np.ones(3 * 600, dtype=np.int64), 600
    cost[size + 245] = 100
    entry = np.arange(2 * size + 40, 3 * size)
    waits = (entry, entry - size - 40, np.zeros(len(entry), dtype=np.int64))
    end, _, _ = engine.run_rounds(engine.Lists.of(cost, np.arange(4) * size, waits))
    assert end[[size - 1, 2 * size - 1, 3 * size - 1]].tolist() == [600, 699, 660]


@pytest.mark.parametrize("seed", range(deep(4)))
def test_entries_that_repeat_end_as_if_run_one_by_one(seed: int) -> None:
    """Rounds that skip repetitions and the event loop give the same ends; every entry has a later turn than its inputs
    and the entry before it. Many lists repeat, and not all of them to the end.
    """
    rng, skipped = random.Random(seed), list[int]()
    repeated = engine._repeated

    def spied(*given: Any) -> int:
        skipped.append(repeated(*given))
        return skipped[-1]

    for _ in range(50):
        lists = periodic(rng)
        with mock.patch.object(engine, "STEADY", rng.choice([2, 5, 9])), mock.patch.object(engine, "_repeated", spied):
            end, turn, at = engine.run_rounds(lists)
        expected, _, stopped = engine.run_events(lists)
        assert np.array_equal(end, expected) and np.array_equal(at, stopped)
        turn = np.append(turn, -1)
        for need, _ in lists.inputs:
            assert (turn[need] < turn[:-1]).all()
        assert all((np.diff(turn[low:high]) > 0).all() for low, high in itertools.pairwise(lists.cut.tolist()))
    assert sum(x > 0 for x in skipped) > 5


def test_a_rank_without_operations_has_no_work_and_no_span() -> None:
    """Ranks 0 and 2 run a stage each, so rank 1 idles from beginning to end, which is 3 + 3."""
    order = [[Compute(Op.F, s, 0), Compute(Op.B, s, 0)] for s in range(2)]
    placement = Placement(np.array([[0, 2]], dtype=np.int32), np.zeros(1, dtype=np.int32), 3)
    report = pipesched.verify(Schedule.from_orders([order[0], [], order[1]], placement))
    assert list(report.time.work) == [3, 0, 3] and list(report.time.spans) == [6, 0, 3]
    assert list(report.time.idle) == [3, 6, 3]
