"""A trace follows the format's rules, and has the times, messages and memory of a simulated run."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.chart.chart import chart
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.views import trace
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import rows
from tests.oracles.trace_rules import violations

CALM = settings(derandomize=True, deadline=None, max_examples=deep(15))
LIBRARY = {
    "gpipe": {"p": 4, "m": 8},
    "1f1b": {"p": 4, "m": 8},
    "interleaved": {"p": 4, "v": 2, "m": 8},
    "zb_h1": {"p": 4, "m": 8},
    "zb_h2": {"p": 4, "m": 8},
    "dualpipe": {"p": 8, "m": 20},
}
COSTS = [Costs(), Costs.parse("F=1,I=2/3,W=0.5,C=1/4"), Costs.parse("F=0,I=1,W=0,C=3")]


def built(name: str) -> Schedule:
    return pipesched.load(name, **LIBRARY[name])


def traced(schedule: Schedule, costs: Costs) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(trace.render(chart(schedule, costs)))
    return made


def events(made: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in made["traceEvents"] if event["ph"] == kind]


@pytest.mark.parametrize("costs", COSTS, ids=["unit", "fractions", "zeros"])
@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_keeps_every_rule(name: str, costs: Costs) -> None:
    """Slices nest and have a duration, arrows are paired, counters go forward, and everything has a
    name and a place.
    """
    assert violations(traced(built(name), costs)) == []


@CALM
@given(strategies.schedules(), st.data())
def test_slices_are_the_simulated_times(schedule: Schedule, data: st.DataObject) -> None:
    """One slice or instant per slot, on the track of its rank, at the exact simulated times."""
    costs = data.draw(strategies.costs(schedule.stages))
    made, played = traced(schedule, costs), simulate.run(schedule, rows(costs, schedule.stages))
    assert violations(made) == []
    unit = made["otherData"]["microseconds_per_unit"]
    expected = {
        (rank, played.start[rank, slot[0]] * unit, played.end[rank, slot[0]] * unit, _names(order, slot))
        for rank, order in enumerate(played.orders)
        for slot in simulate.slots(order)
    }
    found = [
        (x["pid"], x["ts"], x["ts"] + x.get("dur", 0), x["name"])
        for x in made["traceEvents"]
        if x["ph"] in "Xi" and x["tid"] == 0
    ]
    assert len(found) == len(expected) and set(found) == expected


def _names(order: list[Compute], slot: list[int]) -> str:
    return "+".join(f"{order[i].op.name}{order[i].stage}.{order[i].microbatch}" for i in slot)


@CALM
@given(strategies.schedules(), st.data())
def test_an_arrow_for_every_message_from_its_end_to_its_arrival(schedule: Schedule, data: st.DataObject) -> None:
    """Sender, receiver, and the instants of sending and arrival, for each message of a simulated run once."""
    costs = data.draw(strategies.costs(schedule.stages))
    made, costed = traced(schedule, costs), rows(costs, schedule.stages)
    played, latency = simulate.run(schedule, costed), costed["C"]
    assert latency is not None
    unit = made["otherData"]["microseconds_per_unit"]
    expected = []
    for (rank, _), (there, j) in simulate.producers(played.orders, schedule.stages).items():
        if there != rank:
            sent, late = played.end[there, j], latency[played.orders[there][j].stage]
            expected.append((there, sent * unit, rank, (sent + late) * unit))
    sends, receives = ({x["id"]: x for x in events(made, kind)} for kind in "sf")
    found = [(sends[n]["pid"], sends[n]["ts"], receives[n]["pid"], receives[n]["ts"]) for n in sends]
    assert sorted(found) == sorted(expected)


@CALM
@given(strategies.schedules(), st.data())
def test_counters_are_what_a_simulated_run_holds(schedule: Schedule, data: st.DataObject) -> None:
    """At every instant the counter of a rank is the number of microbatches whose F has begun and whose W or B has not
    ended, a stage counting ranks / stages; its largest value is the peak.
    """
    costs = data.draw(strategies.costs(schedule.stages))
    made, played = traced(schedule, costs), simulate.run(schedule, rows(costs, schedule.stages))
    unit, share = made["otherData"]["microseconds_per_unit"], Fraction(schedule.ranks, schedule.stages)
    told: dict[int, dict[int, float]] = defaultdict(dict)
    most: dict[int, float] = defaultdict(float)
    for event in events(made, "C"):
        value = event["args"]["units"]
        told[event["pid"]][event["ts"]] = value  # the last one at an instant lasts
        most[event["pid"]] = max(most[event["pid"]], value)
    for rank, order in enumerate(played.orders):
        for instant, value in told[rank].items():
            assert value == float(_live(played, rank, order, Fraction(instant, unit)) * share)
    peaks = simulate.held(played, Fraction(0), Fraction(1))
    assert [most[rank] for rank in range(schedule.ranks)] == [float(peak * share) for peak in peaks]


def _live(played: simulate.Played, rank: int, order: list[Compute], instant: Fraction) -> int:
    begun = sum(x.op is Op.F and played.start[rank, i] <= instant for i, x in enumerate(order))
    ended = sum(x.op in (Op.W, Op.B) and played.end[rank, i] <= instant for i, x in enumerate(order))
    return begun - ended


@settings(CALM, max_examples=deep(20))
@given(strategies.SEEDS)
def test_broken_orders_keep_the_rules(seed: int) -> None:
    """Missing, repeated, misplaced or deadlocked operations: the file opens."""
    assert violations(traced(strategies.broken_schedule(seed), Costs())) == []


def _drop(made: dict[str, Any], kind: str) -> None:
    made["traceEvents"].remove(events(made, kind)[0])


def _change(made: dict[str, Any], kind: str, **to: Any) -> None:
    events(made, kind)[1].update(to)


SLIPS: dict[str, Callable[[dict[str, Any]], None]] = {
    "missing": lambda made: _drop(made, "M"),
    "beginnings": lambda made: _drop(made, "s"),
    "ends": lambda made: _drop(made, "f"),
    "lasts no time": lambda made: _change(made, "X", dur=0),
    "overlap": lambda made: _change(made, "X", dur=events(made, "X")[1]["dur"] + 500),
    "begin at": lambda made: _change(made, "X", ts=events(made, "X")[0]["ts"]),
    "no time": lambda made: _change(made, "X", ts="0"),
    "next slice": lambda made: events(made, "f")[0].pop("bp"),
    "two kinds": lambda made: _change(made, "f", cat="else"),
    "outside": lambda made: _change(made, "f", ts=events(made, "f")[1]["ts"] + 100),
    "back in time": lambda made: _change(made, "s", ts=10**9),
    "does not count": lambda made: _change(made, "C", args={"units": "1"}),
    "no kind": lambda made: _change(made, "C", ph="?"),
    "told 2 times": lambda made: made["traceEvents"].append(copy.deepcopy(events(made, "M")[0])),
    "counter": lambda made: made["traceEvents"].append({**events(made, "C")[0], "ts": 0}),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_the_checker_sees_each_slip(slip: str) -> None:
    """A right trace with one slip breaks the corresponding rule."""
    made = traced(built("1f1b"), Costs())
    SLIPS[slip](made)
    assert any(slip in told for told in violations(made))
