"""The worst order of the microbatches: exact where all are tried, and between what is found and a bound elsewhere."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

from pipesched.analysis import permutations
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.permutations import Worst, worst_makespan, worst_peaks
from pipesched.analysis.timeline import timeline
from pipesched.compile import Options, load
from pipesched.inputs import read
from pipesched.model.costs import Costs, Ticks
from pipesched.model.ops import COMPUTES
from pipesched.model.schedule import Schedule
from tests.makers.instances import schedule_of, some_orders
from tests.oracles import brute, worst
from tests.oracles.simulate import orders_of

LIBRARY = [
    ("1f1b", {"p": 3, "m": 5}),
    ("gpipe", {"p": 2, "m": 5}),
    ("zb_h1", {"p": 3, "m": 5}),
    ("zb_h2", {"p": 2, "m": 5}),
    ("interleaved", {"p": 2, "m": 4}),
    ("zb_v", {"p": 2, "m": 5}),
    ("dualpipe", {"p": 2, "m": 4}),
    ("1f1b", {"p": 2, "m": 7}),
]
CHANGE = {"F": 6, "I": -2, "W": -4, "B": -6}


def schedule_at(seed: int) -> Schedule:
    """One of the library, or one made by chance on a placement made by chance."""
    rng = random.Random(seed)
    if seed % 2:
        x = brute.random_instance(seed, ranks=3, microbatches=5)
        orders = some_orders(x, rng)
        if orders is not None:
            return schedule_of(x, orders)
    name, sizes = LIBRARY[-1] if seed % 50 == 0 else LIBRARY[seed // 2 % (len(LIBRARY) - 1)]
    return load(read(name), Options(sizes)).schedule


def costs_for(schedule: Schedule, rng: random.Random) -> dict[str, list[list[int]]]:
    """Costs by stage and microbatch: multiples of a length, or any; few lengths, or many."""
    m, made = schedule.microbatches, {}
    length = [rng.choice([1, 4]) if rng.random() < 0.3 else rng.randrange(10) for _ in range(m)]
    proportional = rng.random() < 0.5
    for key in ("F", "I", "W", "B", "C", "M", "FB"):
        factors = [rng.randrange(4) for _ in range(schedule.stages)]
        rows = [[factor * x if proportional else rng.randrange(12) for x in length] for factor in factors]
        made[key] = rows
    if rng.random() < 0.5:
        del made["FB"]
    return made


def worst_of(schedule: Schedule, costs: dict[str, list[list[int]]]) -> Worst:
    """As the product finds it."""
    compute = np.array([costs[op.name] if op.name in costs else np.zeros_like(costs["F"]) for op in COMPUTES])
    pair = np.array(costs["FB"]) if "FB" in costs else None
    ticks = Ticks(1, compute, pair, np.array(costs["C"]))
    needed = Dependencies.of(schedule)
    return worst_makespan(schedule, needed, timeline(schedule, needed, Costs().ticks(schedule.stages)), ticks)


@pytest.mark.parametrize("seed", range(200))
def test_the_worst_of_all_permutations(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying every permutation by hand finds the same makespan and the same peaks. Where not all are tried, the worst
    is between what is found and the bound, and what is said to be found can be played.
    """
    schedule, rng = schedule_at(seed), random.Random(seed)
    costs, orders = costs_for(schedule, rng), orders_of(schedule)
    high, held = worst.worst(orders, schedule.stages, schedule.microbatches, costs, CHANGE)
    found = worst_of(schedule, costs)
    assert found.exact and found.value == high
    assert worst.makespan(orders, schedule.stages, costs, found.entries) == high
    change = np.array([[CHANGE.get(op.name, 0)] * schedule.stages for op in COMPUTES])
    full = worst_peaks(schedule, change, np.zeros_like(change), np.array(costs["M"]))
    assert [one.value for one in full] == held and all(one.exact for one in full)
    for rank, one in enumerate(full):
        assert worst.peaks(orders, CHANGE, costs, one.entries)[rank] == one.value
    monkeypatch.setattr(permutations, "TRIED", 0)
    some = worst_of(schedule, costs)
    assert some.value <= high <= some.bound
    assert worst.makespan(orders, schedule.stages, costs, some.entries) == some.value
    assert sorted(some.entries) == list(range(schedule.microbatches))


@pytest.mark.parametrize("seed", range(40))
def test_a_bound_whatever_the_prices(seed: int) -> None:
    """Prices only choose among bounds: none is below a permutation's makespan."""
    schedule, rng = schedule_at(seed), random.Random(seed)
    costs = costs_for(schedule, rng)
    needed = Dependencies.of(schedule)
    ticks = Ticks(1, np.array([costs.get(op.name, costs["F"]) for op in COMPUTES]), None, np.array(costs["C"]))
    times = timeline(schedule, needed, Costs().ticks(schedule.stages))
    net: Any = permutations._Net.of(schedule, needed, times, ticks)
    value = net.tried().value
    for _ in range(10):
        price = np.array([rng.randrange(permutations.FINE * 60) for _ in net.counts])
        assert permutations._Prices(net).bound(price)[0] >= value


@pytest.mark.timed
@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
def test_long_lists_are_bounded_in_time(name: str) -> None:
    """p=8, m=64, lengths with a long tail: within 5 seconds, and not by more than a third."""
    schedule = load(read(name), Options({"p": 8, "m": 64})).schedule
    rng = random.Random(8)
    length = [int(4 * rng.paretovariate(2)) for _ in range(64)]
    rows = {"F": 1, "I": 1, "W": 1, "B": 2, "C": 0, "M": 1}
    costs = {key: [[factor * x for x in length]] * 8 for key, factor in rows.items()}
    begun = time.process_time()
    found = worst_of(schedule, costs)
    assert time.process_time() - begun < 5
    assert found.value <= found.bound <= found.value * 4 // 3
    assert worst.makespan(orders_of(schedule), 8, costs, found.entries) == found.value
