"""The best split of layers is the best of all splits, each tried with all orders; no forged split is accepted as
proved.

    random layers, embedding, head, caps ──> `optimize --partition` ──> its value, its bound, its verdict
              │                                                              │
              └── every split, every order (`brute`), which knows no bound ──┘ equal where proved, never below

A forger changes what was decided, among what, or the schedule, and keeps the books; the truth is that of the numbers in
the forged answer.

    python -m tests.optimizer.test_partition --cases 500 --forged 3000
"""

from __future__ import annotations

import json
import random
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, pairwise
from math import lcm
from typing import Any

import pytest

import pipesched
from pipesched import compile
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Options
from pipesched.optimizer.optimize_report import Optimum
from pipesched.support.source import Source
from pipesched.verbs.verify import verify
from tests.depth import by_hand, deep
from tests.oracles import simulate
from tests.oracles.brute import Instance, optimum

Json = dict[str, Any]
STEPS = 18


def question(seed: int) -> Json:
    """Return a random question whose splits can all be tried."""
    rng = random.Random(seed)
    p, m, fused = rng.choice([(1, 3, False), (2, 2, False), (2, 3, False), (2, 3, True), (3, 2, False), (3, 2, True)])
    layers = p + rng.randint(0, 4 if p < 3 else 3)
    share = [Fraction(x) for x in ("0", "1/2", "1", "3/2", "2")]
    costs = {"F": rng.randint(1, 3), "C": rng.choice([0, Fraction(1, 2), 1])}
    costs |= {"B": rng.randint(1, 4)} if fused else {"I": rng.randint(1, 3), "W": rng.randint(0, 3)}
    cap = Fraction(rng.randint(2, 6), 2) if p > 1 else Fraction(rng.randint(2, 4), 2)
    return {
        "p": p,
        "m": m,
        "partition": layers,
        "embedding": rng.choice(share),
        "head": rng.choice(share),
        "costs": costs,
        "mem_cap": rng.choice([cap, [cap + Fraction(rng.randint(0, 2), 2) for _ in range(p)], None]),
        "backward": "fused" if fused else "split",
        "objective": rng.choice(["makespan", "makespan", "span"]),
        "release": rng.choice(["W", "W", "I", "torch"]) if not fused else "W",
    }


SHARES = {"W": (Fraction(0), Fraction(1)), "I": (Fraction(1), Fraction(0)), "torch": (Fraction(-3, 5), Fraction(8, 5))}


def splits(layers: int, stages: int) -> list[tuple[int, ...]]:
    return [tuple(b - a for a, b in pairwise((0, *cut, layers))) for cut in combinations(range(1, layers), stages - 1)]


def best_of_all(decision: Json, told: Json, m: int) -> Fraction | None:
    """Return the least value over all splits and all orders. decision: the numbers in an answer."""
    layer, first, last = ({k: Fraction(x) for k, x in decision[name].items()} for name in ("layer", "first", "last"))
    ranks, fused = told["p"], "B" in layer
    values = []
    for split in splits(decision["layers"], ranks):
        rows = {}
        for key in "FIWBM":
            row = [n * layer.get(key, Fraction(0)) for n in split]
            row[0] += first.get(key, 0)
            row[-1] += last.get(key, 0)
            rows[key] = row
        rows["C"] = [Fraction(decision["message"])] * ranks
        values.append(
            least(
                json.dumps([rows, ranks, m, fused, told["release"], told["objective"], decision["caps"]], default=str)
            )
        )
    return min((x for x in values if x is not None), default=None)


@lru_cache(maxsize=65536)
def least(asked: str) -> Fraction | None:
    rows, ranks, m, fused, release, objective, caps = json.loads(asked)
    rows = {key: [Fraction(x) for x in row] for key, row in rows.items()}
    scale = lcm(*(x.denominator for key in "FIWBC" for x in rows[key]))
    part = 5 * lcm(1, *(x.denominator for x in rows["M"]), *(Fraction(x).denominator for x in caps or ()))
    at_input, at_weight = SHARES[release]
    whole = [[int(x * scale) for x in rows[key]] for key in "FIWBC"]
    held = [[int(x * part * share) for x in rows["M"]] for share in (Fraction(1), at_input, at_weight)]
    room = [10**9] * ranks if caps is None else [int(Fraction(x) * part) for x in caps]
    x = Instance([list(range(ranks))], [0] * m, ranks, fused, *whole, *held, room, objective)
    best = optimum(x, fifo=m * ranks * (2 if fused else 3) > STEPS)
    return None if best is None else Fraction(best, scale)


def found(asked: Json) -> Optimum | None:
    """Return the answer; None if no split has a schedule within the caps."""
    try:
        return pipesched.optimize(**asked, time_limit=20)
    except PipeschedError as error:
        if error.diagnostics[0].code != "PS701":
            raise
        return None


def compared(seed: int) -> str:
    """Compare an answer with all splits; return its status."""
    asked = question(seed)
    told = {"p": asked["p"], "release": asked["release"], "objective": asked["objective"]}
    answer = found(asked)
    if answer is None:
        one = {key: Fraction(x) for key, x in asked["costs"].items() if key != "C"}
        ends = [{key: x * share for key, x in one.items()} for share in (asked["embedding"], asked["head"])]
        caps = asked["mem_cap"] if isinstance(asked["mem_cap"], list) else [asked["mem_cap"]] * asked["p"]
        layer = {**one, "M": Fraction(asked["p"], asked["partition"])}
        decision = {"layer": layer, "first": ends[0], "last": ends[1], "layers": asked["partition"], "caps": caps}
        assert best_of_all({**decision, "message": asked["costs"]["C"]}, told, asked["m"]) is None
        return "infeasible"
    decision = json.loads(json.dumps(answer.to_json()))["certificate"]["decision"]
    best = best_of_all(decision, told, asked["m"])
    assert best is not None and answer.value is not None and answer.lower_bound is not None
    assert answer.lower_bound <= best <= answer.value, (answer.text(), best)
    assert not answer.proved or answer.value == best
    report = verify(Source("answer.json", json.dumps(answer.to_json())), Options())
    assert report.ok and report.verdict is not None, str(report)
    assert report.verdict.status == answer.status
    return answer.status


@pytest.mark.parametrize("seed", range(deep(7)))
def test_the_split_is_the_best_of_all(seed: int) -> None:
    """The value is the least over all splits and orders where it is proved, the bound never above it; verify agrees."""
    compared(seed)


@pytest.mark.nightly
def test_pilot() -> None:
    """16 layers, a head of 1.5 and an embedding of 0.25: 132.75, where the even split takes 145.75."""
    sizes: Json = {"p": 4, "m": 8, "mem_cap": 4, "costs": "C=1/2"}
    together = pipesched.optimize(**sizes, partition=16, head="3/2", embedding="1/4")
    assert (together.value, together.status) == (Fraction(531, 4), "proved optimal")


# Forgeries


@lru_cache(maxsize=1)
def honest() -> tuple[Json, ...]:
    made = []
    for seed in range(24):
        answer = found(question(seed))
        if answer is not None and answer.proved:
            made.append({**json.loads(json.dumps(answer.to_json())), "asked": question(seed)["p"]})
    return tuple(made)


def forged(seed: int) -> tuple[Json, int]:
    """Return a forged answer and its ranks."""
    rng = random.Random(seed)
    told = json.loads(json.dumps(rng.choice(honest())))
    ranks = told.pop("asked")
    entry = told["certificate"]["decision"]
    for _ in range(rng.choice([1, 1, 2, 3])):
        FORGERS[rng.randrange(len(FORGERS))](told, entry, rng)
    return told, ranks


def _numbers(told: Json, entry: Json, rng: random.Random) -> None:
    """Change a load, the message, a cap or the number of layers."""
    name = rng.choice(["layer", "first", "last", "message", "caps", "layers"])
    if name in ("layer", "first", "last") and entry[name]:
        key = rng.choice([key for key in entry[name] if not key.endswith("_decimal")])
        entry[name][key] = rng.choice([0, 1, 2, "1/2", "5/2", -1, None, "x", 10**20])
        entry[name].pop(f"{key}_decimal", None)
    elif name == "caps" and entry["caps"]:
        entry["caps"] = [rng.choice([x, 1, 2, "1/2"]) for x in entry["caps"]]
        entry.pop("caps_decimal", None)
    elif name == "message":
        entry["message"] = rng.choice([0, 1, "1/2", [0, 1], None])
        entry.pop("message_decimal", None)
    else:
        entry["layers"] = entry["layers"] + rng.choice([-1, 1, 2])


def _taken(told: Json, entry: Json, rng: random.Random) -> None:
    """Take another split, in words alone."""
    entry["taken"] = list(rng.choice(splits(sum(entry["taken"]), len(entry["taken"]))))


def _other(told: Json, entry: Json, rng: random.Random) -> None:
    """Put in the schedule of another split, optimal for it or not, with all that follows, and call it the best."""
    other = rng.choice(honest())
    if other["parameters"] == told["parameters"] and other["costs"] != told["costs"]:
        decision = rng.choice([entry, other["certificate"]["decision"]])
        taken = other["certificate"]["decision"]["taken"]
        told.clear()
        told.update({key: x for key, x in json.loads(json.dumps(other)).items() if key != "asked"})
        told["certificate"]["decision"] = json.loads(json.dumps({**decision, "taken": taken}))


def _alone(told: Json, entry: Json, rng: random.Random) -> None:
    """Present the optimum of one given split as the optimum over all splits."""
    split = rng.choice(splits(sum(entry["taken"]), len(entry["taken"])))
    layer, ends = entry["layer"], (entry["first"], entry["last"])
    kinds = [key for key in ("F", "I", "W", "B", "M") if key in layer]
    costs: Json = {}
    for key in kinds:
        row = [n * Fraction(layer[key] or 0) for n in split]
        row[0] += Fraction(ends[0].get(key, 0) or 0)
        row[-1] += Fraction(ends[1].get(key, 0) or 0)
        costs[key] = row
    try:
        costs["C"] = Fraction(entry["message"])
        rules: Json = {key: told[key] for key in ("objective", "release")}
        rules["backward"] = "fused" if "B" in kinds else "split"
        sizes: Json = {"p": len(split), "m": told["parameters"]["m"], "mem_cap": entry["caps"]}
        answer = pipesched.optimize(**sizes, **rules, costs=costs, time_limit=5)
    except (PipeschedError, TypeError, ValueError, IndexError):
        return
    if answer.source:
        decision = json.loads(json.dumps({**entry, "taken": list(split)}))
        made = json.loads(json.dumps(answer.to_json()))
        words = f"{decision['layers']} layers as {','.join(map(str, split))}"
        made["for"] = made["for"].replace(", split", f", {words}, split")
        told.clear()
        told.update(made)
        told["certificate"]["decision"] = decision


def _headline(told: Json, entry: Json, rng: random.Random) -> None:
    key = rng.choice(["for", "verdict", "lower_bound", "mem_cap", "release", "objective", "proved_by"])
    told[key] = rng.choice([told.get(key), None, "W", "span", 1, [1, 1]])


FORGERS = (_numbers, _taken, _other, _alone, _headline)


def judged(seed: int) -> str:
    """Verify a forged answer; fail if it is proved but false."""
    told, ranks = forged(seed)
    try:
        report = verify(Source("answer.json", json.dumps(told)), Options())
    except PipeschedError as error:
        return f"refused {error.diagnostics[0].code}"
    if report.verdict is None or not report.ok or not report.verdict.proved:
        return "not proved"
    entry = told["certificate"]["decision"]
    loaded = compile.load(Source("source.ps", told["source"]), Options())
    played = simulate.run(loaded.schedule, simulate.rows(loaded.own_costs, loaded.schedule.stages))
    best = best_of_all(entry, {"p": ranks, **told}, told["parameters"]["m"])
    assert best == report.verdict.value, (told, best)
    assert told["objective"] == "span" or played.makespan == best
    return "true"


@pytest.mark.nightly
def test_no_forged_split_is_proved() -> None:
    """An answer that is proved after a forger was at it is true in all its numbers."""
    seen = Counter(judged(seed) for seed in range(deep(8, usual=5)))
    assert sum(n for what, n in seen.items() if what != "true") > 2


if __name__ == "__main__":
    by_hand(cases=(compared, 300), forged=(judged, 1000))
