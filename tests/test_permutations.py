"""The worst order of the microbatches: exact where all are tried, and between what is found and a bound elsewhere."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import pipesched
from pipesched.analysis import permutations, permuted_peaks
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.permutations import Worst, worst_makespan
from pipesched.analysis.permuted_peaks import worst_peaks
from pipesched.analysis.timeline import timeline
from pipesched.assets import asset
from pipesched.compile import Options, load
from pipesched.inputs import read
from pipesched.model.costs import Costs, Ticks
from pipesched.model.ops import COMPUTES
from pipesched.model.schedule import Schedule
from pipesched.source import Source
from tests.depth import deep
from tests.makers.instances import schedule_of, some_orders
from tests.oracles import brute, worst
from tests.oracles.simulate import orders_of

VALIDATOR = Draft202012Validator(json.loads(asset("emit", "v1", "report.schema.json").read_text("utf-8")))
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


@pytest.mark.parametrize("seed", range(deep(13)))
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
    stays = change[schedule.op, schedule.stage]
    full = worst_peaks(schedule, stays, np.zeros_like(stays), np.array(costs["M"]))
    assert [one.value for one in full] == held and all(one.exact for one in full)
    for rank, one in enumerate(full):
        assert worst.peaks(orders, CHANGE, costs, one.entries)[rank] == one.value
    for module in (permutations, permuted_peaks):
        monkeypatch.setattr(module, "LOOKED", 0)
    for rank, one in enumerate(worst_peaks(schedule, stays, np.zeros_like(stays), np.array(costs["M"]))):
        assert one.value <= held[rank] <= one.bound
        assert worst.peaks(orders, CHANGE, costs, one.entries)[rank] == one.value
    assert worst_of(schedule, costs).bound >= high
    monkeypatch.undo()
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


@pytest.mark.parametrize("name", ["1f1b", "zb_h1"][: deep(1)])
def test_long_lists_are_bounded(name: str) -> None:
    """p=8, m=64, lengths with a long tail: not by more than a third."""
    schedule = load(read(name), Options({"p": 8, "m": 64})).schedule
    rng = random.Random(8)
    length = [int(4 * rng.paretovariate(2)) for _ in range(64)]
    rows = {"F": 1, "I": 1, "W": 1, "B": 2, "C": 0, "M": 1}
    costs = {key: [[factor * x for x in length]] * 8 for key, factor in rows.items()}
    found = worst_of(schedule, costs)
    assert found.value <= found.bound <= found.value * 4 // 3
    assert worst.makespan(orders_of(schedule), 8, costs, found.entries) == found.value


PACKED = """
schedule packed(p, m = 4, length[m] = 1)
stage s in 0 .. p on rank s
costs F[s, i] = {forward}, B[s, i] = 4 * length[i] + s, M[s, i] = length[i]
rank r {{ let w = min(p - 1 - r, m)  repeat w {{ F }}  repeat m - w {{ F  B }}  repeat w {{ B }} }}
"""


@pytest.mark.parametrize("seed", range(8))
def test_verify_gives_the_worst_of_a_list(seed: int) -> None:
    """Beside the result for a list in its order: the makespan and the peak of the worst one, as played by hand."""
    rng = random.Random(seed)
    length = [rng.randrange(1, 9) for _ in range(5)]
    report = pipesched.verify(Source("packed.ps", PACKED.format(forward="2 * length[i]")), p=3, m=5, length=length)
    columns: dict[str, Callable[[int, int], int]] = {
        "F": lambda s, x: 2 * x,
        "B": lambda s, x: 4 * x + s,
        "C": lambda s, x: 0,
        "M": lambda s, x: x,
    }
    costs = {key: [[of(s, x) for x in length] for s in range(3)] for key, of in columns.items()}
    assert report.subject is not None
    orders = orders_of(report.subject.schedule)
    high, held = worst.worst(orders, 3, 5, costs, {"F": 1, "B": -1})
    if len(set(length)) == 1:
        assert report.permuted is None
        return
    assert report.permuted is not None and report.permuted.makespan is not None and report.permuted.peak is not None
    assert (report.permuted.makespan.value, report.permuted.peak.value) == (high, max(held))
    assert report.permuted.makespan.exact and report.permuted.peak.exact
    at = ",".join(str(length[i]) for i in report.permuted.makespan.entries)
    assert f"worst order of length: makespan {high} at {at}; peak on rank" in report.text()
    again = pipesched.verify(
        Source("packed.ps", PACKED.format(forward="2 * length[i]")), p=3, m=5, length=[int(x) for x in at.split(",")]
    )
    assert again.makespan == high
    value = json.loads(json.dumps(report.to_json()))
    VALIDATOR.validate(value)
    assert value["permuted"]["makespan"]["value"] == high and value["permuted"]["lists"] == ["length"]


@pytest.mark.parametrize(
    ("line", "program", "why"),
    [
        ("costs K = 1", "repeat m { F } repeat m { R B }", "forwards that are run again keep K"),
        ("slices 2", "repeat m { F } repeat m { B }", "the slices of a sequence keep their order"),
    ],
)
def test_what_is_not_permuted_says_why(line: str, program: str, why: str) -> None:
    """Where a list gives costs and no other order of it is judged, a report says so, as text and as JSON."""
    head = f"schedule x(p, m, length[m])\n{line}\nstage s in 0 .. p on rank s\n"
    text = f"{head}costs F[s, i] = length[i]\nrank r {{ {program} }}\n"
    report = pipesched.verify(Source("x.ps", text), p=2, m=4, length=[4, 3, 7, 2])
    assert report.ok and f"other orders of length are not judged: {why}" in report.text()
    value = json.loads(json.dumps(report.to_json()))
    VALIDATOR.validate(value)
    assert value["permuted"] == {"lists": ["length"], "not_judged": why, "makespan": None, "peak": None}


AGAIN = (
    "repeat m { F } repeat m { R B }",
    "let w = min(p - 1 - r, m) repeat w { F } repeat m - w { F R I } repeat w { R I W } drain W",
    "let w = min(p - 1 - r, m) repeat w { F } repeat m - w { F if r == 0 { R } B } repeat w { if r == 0 { R } B }",
    "F R F F repeat m - 3 { R F } R R B B B repeat m - 3 { B }",
)


@pytest.mark.parametrize("seed", range(16))
def test_forwards_that_are_run_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst makespan and peak as played by hand, where some forwards keep nothing until their R."""
    rng, p, m = random.Random(seed), 1 + seed % 3, 4 + seed % 2
    length = [rng.randrange(1, 9) for _ in range(m)]
    text = f"""schedule again(p, m, length[m])
    stage s in 0 .. p on rank s
    costs F[s, i] = 2 * length[i], R[s, i] = 2 * length[i] + s, B[s, i] = 4 * length[i], M[s, i] = length[i]
    rank r {{ {AGAIN[seed % len(AGAIN)]} }}"""
    report = pipesched.verify(Source("again.ps", text), p=p, m=m, length=length)
    assert report.ok and report.subject is not None and report.permuted is not None
    rows = {"F": (2, 0), "R": (2, 1), "B": (4, 0), "I": (2, 0), "W": (2, 0), "C": (0, 0), "M": (1, 0)}
    costs = {key: [[a * x + b * s for x in length] for s in range(p)] for key, (a, b) in rows.items()}
    high, held = worst.worst(
        orders_of(report.subject.schedule), p, m, costs, {"F": 1, "B": -1, "W": -1, "I": 0, "R": 0}
    )
    makespan, peak = report.permuted.makespan, report.permuted.peak
    assert makespan is not None and peak is not None and makespan.exact and peak.exact
    assert (makespan.value, peak.value) == (high, max(held))
    for module in (permutations, permuted_peaks):
        monkeypatch.setattr(module, "LOOKED", 0)
    bound = pipesched.verify(Source("again.ps", text), p=p, m=m, length=length).permuted
    assert bound is not None and bound.peak is not None and bound.peak.value <= max(held) <= bound.peak.bound


@pytest.mark.parametrize("forward", ["length[(i + 1) % m]", "length[i] + i", "if length[0] > 2 then length[i] else 1"])
def test_costs_by_entries_of_others_are_not_judged(forward: str) -> None:
    """Where a microbatch's costs are not those of its own entry alone, they do not come along: that is said."""
    source = Source("packed.ps", PACKED.format(forward=forward))
    report = pipesched.verify(source, p=2, m=4, length=[4, 3, 7, 2])
    assert report.permuted is not None and report.permuted.makespan is None
    assert "other orders of length are not judged" in report.text()
    VALIDATOR.validate(json.loads(json.dumps(report.to_json())))


@pytest.mark.parametrize("m", [4, 5])
def test_a_list_by_stage_stays_as_it_is(m: int) -> None:
    """Only lists with an entry for each microbatch have other orders, also where there are as many stages."""
    text = (
        "schedule x(p, m, layers[p], length[m])\nstage s in 0 .. p on rank s\nrank r { repeat m { F } repeat m { B } }"
    )
    source = Source("x.ps", f"{text}\ncosts F[s, i] = layers[s] * length[i], B = 2\n")
    lists = {"layers": [1, 2, 3, 4], "length": [1, 2, 3, 4, 5][:m]}
    report = pipesched.verify(source, p=4, m=m, **lists)
    assert report.permuted is not None and report.permuted.lists == ("length",) and report.permuted.makespan is not None


def test_without_a_list_nothing_is_permuted() -> None:
    """No list, or one that no cost asks for; costs that the command line gives by microbatch are of no list."""
    plain = pipesched.verify("1f1b", p=2, m=4)
    assert plain.permuted is None and "permuted" not in plain.to_json()
    source = Source("packed.ps", PACKED.format(forward="2 * length[i]"))
    own = pipesched.verify(source, p=2, m=2, length=[1, 2], costs="F=[[1,2],[3,4]]")
    assert own.permuted is None


def test_very_long_lists_have_a_bound() -> None:
    """Beyond what is looked for: the order as it is, and no permutation above what is said."""
    source, length = Source("packed.ps", PACKED.format(forward="2 * length[i]")), [1 + i % 7 for i in range(3000)]
    report = pipesched.verify(source, p=2, m=3000, length=length)
    assert report.permuted is not None and report.permuted.makespan is not None and report.permuted.peak is not None
    assert report.makespan == report.permuted.makespan.value <= report.permuted.makespan.bound
    reversed_ = pipesched.verify(source, p=2, m=3000, length=length[::-1])
    assert reversed_.makespan <= report.permuted.makespan.bound
    assert max(reversed_.peak) <= report.permuted.peak.bound == 2 * 7
