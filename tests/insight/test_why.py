"""The idle times by cause add up exactly to the total idle time, and the critical path to the makespan.

The oracle is the simulation of `tests.oracles.simulate`: dicts of fractions, in which every gap is walked back by hand.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import timeline
from pipesched.examine import Examination, Options
from pipesched.formats.readers import Loaded
from pipesched.insight.recognize import recognize
from pipesched.insight.why import explained
from pipesched.insight.why_report import Why
from pipesched.library.assets import built_in
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.views import causes as attribution
from pipesched.views.causes import PARTS, causes, critical_path
from tests.depth import deep, in_usual_run
from tests.makers import strategies
from tests.makers.placements import linear
from tests.oracles import simulate
from tests.oracles.simulate import Played, Spot, rows

CALM = settings(derandomize=True, deadline=None, max_examples=deep(25, usual=13))
PLAIN = [x for x in built_in() if x not in ("pipeoffload", "mario")]  # the play by hand has no copies, and no R
GRID = ["F=1", "F=10,I=13,W=7,C=2", "F=1,I=2,W=1/2,C=1/3,FB=5/2"]


ONE_BY_ONE = [(name, GRID[(i + k) % 3]) for i, name in enumerate(PLAIN) for k in range(1 if in_usual_run() else 3)]


def parts_of(schedule: Schedule, costs: Costs) -> dict[str, list[Fraction]]:
    """Return the parts of the idle time, by the analysis."""
    dependencies, ticks = Dependencies.of(schedule), costs.ticks(schedule.stages)
    times = timeline(schedule, dependencies, ticks)
    why = causes(schedule, dependencies, times, ticks)
    split = attribution.split(schedule, times, ticks, attribution.gaps(schedule, times, why))
    return {part: [Fraction(x, ticks.scale) for x in getattr(split, part).tolist()] for part in PARTS}


def played(schedule: Schedule, costs: Costs) -> tuple[Played, list[Fraction]]:
    """Return the run, and the work of every rank, of operations that ran."""
    run, by_stage = simulate.run(schedule, rows(costs, schedule.stages)), rows(costs, schedule.stages)
    work = []
    for rank, order in enumerate(run.orders):
        ran = [slot for slot in simulate.slots(order) if (rank, slot[0]) in run.end]
        work.append(sum((simulate.slot_cost(order, slot, by_stage) for slot in ran), Fraction(0)))
    return run, work


def by_hand(schedule: Schedule, costs: Costs) -> list[dict[str, Fraction]]:
    """Per rank the four parts before imbalance is subtracted, gap by gap."""
    run, _ = played(schedule, costs)
    latency = rows(costs, schedule.stages)["C"]
    assert latency is not None
    made_by = simulate.producers(run.orders, schedule.stages, simulate.left_out(schedule))

    def cause(spot: Spot) -> tuple[Spot, Fraction] | None:
        """Return the last operation that a slot waits for, and the message in between."""
        rank, i = spot
        slot = next(slot for slot in simulate.slots(run.orders[rank]) if i in slot)
        if slot[0] and run.end[rank, slot[0] - 1] == run.start[spot]:
            return (rank, slot[0] - 1), Fraction(0)
        for part in slot:
            there = made_by.get((rank, part))
            if there is not None and there[0] != rank:
                lag = latency[run.orders[there[0]][there[1]].stage]
                if run.end[there] + lag == run.start[spot]:
                    return there, lag
        return None

    found = []
    for rank, order in enumerate(run.orders):
        parts = dict.fromkeys(("warm_up", "cool_down", "compute", "message"), Fraction(0))
        clock, first = Fraction(0), True
        for slot in simulate.slots(order):
            spot = rank, slot[0]
            if spot not in run.start:
                break
            gap, at = run.start[spot] - clock, spot
            if gap and first:
                parts["warm_up"] += gap
            while gap and not first and run.start[at] > clock:
                step = cause(at)
                assert step is not None
                before, lag = step
                parts["message"] += min(lag, run.start[at] - clock)
                parts["compute"] += max(Fraction(0), run.end[before] - max(clock, run.start[before]))
                at = before
            clock, first = run.end[spot], False
        parts["cool_down"] = run.makespan - clock
        found.append(parts)
    return found


def adds_up(schedule: Schedule, costs: Costs) -> None:
    """The law of the split: it equals the split by hand, with imbalance subtracted in the stated order."""
    run, work = played(schedule, costs)
    parts, hand = parts_of(schedule, costs), by_hand(schedule, costs)
    for rank in range(schedule.ranks):
        mine = {part: parts[part][rank] for part in PARTS}
        assert sum(mine.values()) == run.makespan - work[rank]
        assert min(mine.values()) >= 0
        left = mine["imbalance"]
        assert left == max(work) - work[rank]
        for part in ("compute", "message", "cool_down", "warm_up"):
            taken = min(left, hand[rank][part])
            assert mine[part] == hand[rank][part] - taken
            left -= taken


@CALM
@given(strategies.schedules(), st.data())
def test_the_parts_add_up_on_any_schedule(schedule: Schedule, data: st.DataObject) -> None:
    """idle(r) = makespan - work(r), exactly: any placement, costs by stage, latency, overlap pairs, two routes."""
    adds_up(schedule, data.draw(strategies.costs(schedule.stages)))


@settings(CALM, max_examples=deep(7, usual=4))
@given(strategies.SEEDS, st.data())
def test_the_parts_add_up_on_what_runs_of_a_stuck_order(seed: int, data: st.DataObject) -> None:
    """An order that deadlocks is split up to where it stops."""
    schedule = strategies.shuffled_schedule(seed)
    adds_up(schedule, data.draw(strategies.costs(schedule.stages)))


@pytest.mark.parametrize(("name", "text"), ONE_BY_ONE)
def test_the_parts_add_up_on_the_library(name: str, text: str) -> None:
    """The parts add up for every built-in schedule, at p = 4 and m = 8."""
    schedule = pipesched.load(name, p=4, m=8)
    adds_up(schedule, Costs.parse(text))


def path_is_whole(schedule: Schedule, costs: Costs) -> None:
    """The law of the path: from 0 to the makespan without a gap, along orders and messages."""
    run, _ = played(schedule, costs)
    by_stage = rows(costs, schedule.stages)
    made_by = simulate.producers(run.orders, schedule.stages, simulate.left_out(schedule))
    dependencies, ticks = Dependencies.of(schedule), costs.ticks(schedule.stages)
    times = timeline(schedule, dependencies, ticks)
    path = critical_path(times, causes(schedule, dependencies, times, ticks))
    length, before = Fraction(0), None
    for index in path:
        rank, i = int(schedule.rank[index]), schedule.step(index) - 1
        slot = next(slot for slot in simulate.slots(run.orders[rank]) if i in slot)
        if before is not None and (before[0] != rank or before[1] != slot[0] - 1):
            assert before in [made_by.get((rank, part)) for part in slot] and before[0] != rank
            latency = by_stage["C"]
            assert latency is not None
            length += latency[run.orders[before[0]][before[1]].stage]
        assert run.start[rank, i] == length
        length += simulate.slot_cost(run.orders[rank], slot, by_stage)
        before = rank, i
    assert length == run.makespan


@CALM
@given(strategies.schedules(), st.data())
def test_the_critical_path_is_as_long_as_the_makespan(schedule: Schedule, data: st.DataObject) -> None:
    """The slots and messages of the path follow each other from 0 to the end, each by rank or by data."""
    path_is_whole(schedule, data.draw(strategies.costs(schedule.stages)))


@pytest.mark.parametrize("name", PLAIN)
def test_the_critical_path_of_the_library(name: str) -> None:
    """The critical path holds for every built-in schedule, with latency."""
    schedule = pipesched.load(name, p=4, m=8)
    path_is_whole(schedule, Costs.parse("F=10,I=13,W=7,C=2"))


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 8), (5, 13)])
def test_the_parts_of_1f1b(p: int, m: int) -> None:
    """Rank r fills for r F, drains for r B, and waits for the rest of the round trip to the last stage."""
    schedule = pipesched.load("1f1b", p=p, m=m)
    parts = parts_of(schedule, Costs.parse("F=2,B=5"))
    assert parts["warm_up"] == [2 * r for r in range(p)]
    assert parts["cool_down"] == [5 * r for r in range(p)]
    assert parts["compute"] == [7 * (p - 1 - r) for r in range(p)]
    assert not any(parts["message"]) and not any(parts["imbalance"])


def test_the_parts_of_two_ranks_with_messages() -> None:
    """With one microbatch, rank 0 waits for F, B and two messages; rank 1 waits for one F and one message."""
    schedule = pipesched.load("1f1b", p=2, m=1)
    parts = parts_of(schedule, Costs.parse("F=1,B=2,C=1/3"))
    assert parts["compute"] == [3, 0] and parts["message"] == [Fraction(2, 3), 0]
    assert parts["warm_up"] == [0, Fraction(4, 3)] and parts["cool_down"] == [0, Fraction(7, 3)]


def test_what_a_slow_stage_costs_is_imbalance() -> None:
    """A stage that takes d longer for each of m microbatches causes m d of imbalance on every other rank.

    The rest is the same as without it: the way through the other stages and back, on every rank.
    """
    schedule = pipesched.load("1f1b", p=4, m=8)
    parts = parts_of(schedule, Costs.parse("F=[1,1,1,3],B=2"))
    assert parts["imbalance"] == [16, 16, 16, 0]
    assert [sum(parts[part][r] for part in PARTS[:4]) for r in range(4)] == [(4 - 1) * (1 + 2)] * 4


@settings(CALM, max_examples=deep(7, usual=4))
@given(strategies.SEEDS)
def test_any_broken_order_is_told(seed: int) -> None:
    """With missing, doubled and misplaced operations, the parts of what ran add up, and every line can be written."""
    schedule = strategies.broken_schedule(seed)
    run = Examination(Loaded("broken", schedule), Options())
    found, gaps, split = explained(run.analysis)
    why = Why(run, found, gaps, split, None, None, recognize(schedule), {})
    assert [sum(column) for column in zip(*why.parts().values(), strict=True)] == list(why.idle())
    lengths = [Fraction(0)] * schedule.ranks
    for rank, length in zip(gaps.rank.tolist(), gaps.length.tolist(), strict=True):
        lengths[rank] += run.analysis.time(length)
    assert lengths == list(why.idle())
    assert why.text(every=True).count(" idles ") == len(gaps) == len(why.to_json()["gaps"])  # type: ignore[arg-type]


def test_a_rank_without_operations_only_waits() -> None:
    """All idle time of an empty rank is imbalance, as other ranks have all of the work."""
    schedule = Schedule.from_orders([[Compute(Op.F, 0, 0), Compute(Op.B, 0, 0)], []], linear(2, 1), "half")
    parts = parts_of(schedule, Costs())
    assert [parts[part][1] for part in PARTS] == [0, 0, 0, 0, 3]
