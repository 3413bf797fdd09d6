"""The best order with pairs F+B is the best of all, each tried slot by slot; no forged answer with pairs is proved.

random costs, caps, one or two routes ──> `optimize --overlap` ──> its makespan, its bound, its verdict
          │                                                            │
          └── every slot that can come next, on every rank ────────────┘ equal where proved, never below

python -m tests.optimizer.test_pairs --cases 300 --forged 2000
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import pytest

import pipesched
from pipesched import compile
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Options
from pipesched.support.source import Source
from pipesched.verbs.verify import verify
from tests.depth import by_hand, deep
from tests.oracles import simulate

Json = dict[str, Any]
TWO = "schedule two(p = 2, m = 2)\nroute down: stage s in 0 .. 2 on rank s for microbatch 0 .. 1\n"
TWO += "route up: stage s in 0 .. 2 on rank 1 - s for microbatch 1 .. 2\n"
TWO += "rank 0 { F[0] F[1] B[0] B[1] }\nrank 1 { F[1] F[0] B[1] B[0] }\n"


def question(seed: int) -> Json:
    """Return a random question of at most 12 results."""
    rng = random.Random(seed)
    two = rng.random() < 0.5
    p, m = (2, 2) if two else rng.choice([(1, 2), (1, 3), (2, 2)])
    forward, whole = rng.randint(1, 2), rng.randint(2, 3)
    cost = {"F": forward, "I": rng.randint(1, 2), "W": rng.randint(1, 2), "B": whole, "C": rng.choice([0, 0, 1])}
    cost["FB"] = rng.randint(max(forward, whole, cost["I"]), forward + whole)
    asked: Json = {"costs": cost, "mem_cap": rng.choice([None, 1, 2, 2, 3]), "overlap": True}
    return {**asked, "two": True} if two else {**asked, "p": p, "m": m}


def answered(asked: Json) -> Any:
    given = {key: x for key, x in asked.items() if key != "two"}
    target = [Source("two.ps", TWO)] if asked.get("two") else []
    return pipesched.optimize(*target, **given, time_limit=20)


def tried(table: list[list[int]], route_of: list[int], cost: dict[str, int], cap: int | None) -> int | None:
    """Return the least makespan over all orders of slots: (rank, its results as kind, stage, microbatch, its time)."""
    ranks, stages, m = max(map(max, table)) + 1, len(table[0]), len(route_of)
    place = {(s, i): table[route_of[i]][s] for s in range(stages) for i in range(m)}
    results = [(k, s, i) for k in "FIW" for s in range(stages) for i in range(m)]
    bit = {x: 1 << n for n, x in enumerate(results)}

    def needs(kind: str, s: int, i: int) -> tuple[str, int, int] | None:
        if kind == "F":
            return ("F", s - 1, i) if s else None
        if kind == "W":
            return ("I", s, i)
        return ("I", s + 1, i) if s < stages - 1 else ("F", s, i)

    def slots(done: int) -> Iterator[tuple[int, list[tuple[str, int, int]], str, int]]:
        for (s, i), rank in place.items():
            f, g, w = (("F", s, i), ("I", s, i), ("W", s, i))
            if not done & bit[f]:
                yield rank, [f], "F", cost["F"]
                for (t, j), other in place.items():
                    if other == rank and j != i and not done & bit["I", t, j]:
                        yield rank, [f, ("I", t, j), ("W", t, j)], "FB", cost["FB"]
            if not done & bit[g]:
                yield rank, [g], "I", cost["I"]
                yield rank, [g, w], "B", cost["B"]
            elif not done & bit[w]:
                yield rank, [w], "W", cost["W"]

    full, best = sum(bit.values()), None
    layers: dict[int, set[Any]] = {0: {((0,) * ranks, ())}}
    while layers:
        done = min(layers, key=int.bit_count)
        states = layers.pop(done)
        if done == full:
            best = min(max(clock) for clock, _ in states)
            continue
        held = Counter(place[s, i] for (k, s, i), x in bit.items() if k == "F" and done & x)
        held.subtract(place[s, i] for (k, s, i), x in bit.items() if k == "W" and done & x)
        for rank, parts, kind, work in slots(done):
            wanted = [needs(*part) for part in parts if part[0] != "W" or kind == "W"]
            if any(x is not None and not done & bit[x] for x in wanted):
                continue
            if "F" in kind and cap is not None and held[rank] + 1 > cap:
                continue
            after = done | sum(bit[part] for part in parts)
            for clock, ends in states:
                known = dict(ends)
                lag = [known[x] + cost["C"] * (place[x[1:]] != rank) for x in wanted if x is not None]
                end = max([clock[rank], *lag]) + work
                now = (*clock[:rank], end, *clock[rank + 1 :])
                ended = tuple(sorted({**known, **dict.fromkeys(parts, end)}.items()))
                layers.setdefault(after, set()).add((now, ended))
        if len(layers) and any(len(x) > 3000 for x in layers.values()):
            layers = {key: pruned(x) for key, x in layers.items()}
    return best


def pruned(states: set[Any]) -> set[Any]:
    """Keep the states that no other is ahead of in every time."""
    kept: list[Any] = []
    for state in sorted(states, key=lambda x: (sum(x[0]), sum(t for _, t in x[1]))):
        flat = [*state[0], *(t for _, t in state[1])]
        if not any(all(a <= b for a, b in zip([*x[0], *(t for _, t in x[1])], flat, strict=True)) for x in kept):
            kept.append(state)
    return set(kept)


@lru_cache(maxsize=4096)
def least(asked: str) -> int | None:
    table, routes, cost, cap = json.loads(asked)
    return tried(table, routes, cost, cap)


def truth(asked: Json) -> int | None:
    cap = asked["mem_cap"]
    if asked.get("two"):
        return least(json.dumps([[[0, 1], [1, 0]], [0, 1], asked["costs"], cap]))
    return least(json.dumps([[list(range(asked["p"]))], [0] * asked["m"], asked["costs"], cap]))


def compared(seed: int) -> str:
    """Compare an answer with all orders; return its status."""
    asked = question(seed)
    best, answer = truth(asked), answered(asked)
    assert best is not None and answer.value is not None and answer.lower_bound is not None
    assert answer.lower_bound <= best <= answer.value, (answer.text(), best)
    assert not answer.proved or answer.value == best
    report = verify(Source("answer.json", json.dumps(answer.to_json())), Options())
    assert report.ok and report.verdict is not None and report.verdict.status == answer.status, str(report)
    return str(answer.status)


@pytest.mark.parametrize("seed", range(deep(14)))
def test_pairs_are_the_best_of_all(seed: int) -> None:
    """The makespan is the least over all orders of slots where it is proved, the bound never above it."""
    compared(seed)


def test_pilot() -> None:
    """With FB = 2, DualPipe at p=4, m=8 takes 22, and the optimum is 21 at the same memory, proved."""
    answer = pipesched.optimize("dualpipe", p=4, m=8, mem_cap=5, costs="FB=2", overlap=True, time_limit=20)
    assert (answer.value, answer.status) == (21, "proved optimal")


@pytest.mark.parametrize(
    "wrong",
    [{"objective": "span"}, {"release": "I"}, {"costs": "F=0,B=2"}, {"costs": "F=2,B=3,FB=2"}, {"costs": "F=1,W=0"}],
)
def test_what_pairs_cannot_be_decided_for(wrong: Json) -> None:
    """What the clauses of pairs do not cover is refused with PS716."""
    with pytest.raises(PipeschedError) as found:
        pipesched.optimize(p=2, m=2, overlap=True, **wrong)
    assert found.value.diagnostics[0].code == "PS716"


# Forgeries


@lru_cache(maxsize=1)
def honest() -> tuple[tuple[Json, Json], ...]:
    made = []
    for seed in range(12):
        answer = answered(question(seed))
        made.append((json.loads(json.dumps(answer.to_json())), question(seed)))
    return tuple(made)


def forged(seed: int) -> Json:
    """Return a forged answer: another bound, proof, cap, cost or order, with the words that follow."""
    rng = random.Random(seed)
    told = json.loads(json.dumps(rng.choice(honest())[0]))
    certificate = told["certificate"]
    how = rng.randrange(6)
    if how == 0 and certificate["refuted"]:
        certificate["refuted"]["value"] = rng.choice([told["makespan"], told["makespan"] + 1, 0, "x"])
        certificate["refuted"].pop("value_decimal", None)
    elif how == 1 and told["mem_cap"]:
        told["mem_cap"] = [rng.randint(1, 4) for _ in told["mem_cap"]]
        told.pop("mem_cap_decimal")
    elif how == 2:
        key = rng.choice(["F = ", "FB = ", "B = ", "I = "])
        told["source"] = re.sub(rf"\b{key}\d", f"{key}{rng.randint(1, 4)}", told["source"])
    elif how == 3:
        other = rng.choice(honest())[0]
        certificate["refuted"] = json.loads(json.dumps(other["certificate"]["refuted"]))
    elif how == 4:
        told["source"] = re.sub(r"overlap\((F[^,]*), (B[^)]*\]?)\)", r"\1  \2", told["source"], count=1)
        told["source"] = re.sub(r"\nclaim .*", "", told["source"])
    else:
        certificate["backward"] = rng.choice(["split", "fused", "pairs"])
        told["objective"] = rng.choice(["span", "makespan"])
    if rng.random() < 0.7:
        _books(told)
    return told


def _books(told: Json) -> None:
    """Make the value of the certificate, and the words about it, those of the schedule."""
    try:
        loaded = compile.load(Source("source.ps", told["source"]), Options())
    except PipeschedError:
        return
    played = simulate.run(loaded.schedule, simulate.rows(loaded.own_costs, loaded.schedule.stages))
    value = int(played.makespan)
    certificate = told["certificate"]
    for key in [key for key in (*told, *certificate) if key.endswith("_decimal")]:
        told.pop(key, None)
        certificate.pop(key, None)
    certificate |= {"schedule": value, "lower_bound": value, "gap": 0, "verdict": "proved optimal"}
    for name in [x for x in told if x not in ("source", "release", "mem_cap", "objective", "certificate", "asked_cap")]:
        del told[name]
    told["source"] = re.sub(r'\n"(?:[^"]|\n)*"\n', "\n", told["source"])


def judged(seed: int) -> str:
    """Verify a forged answer; fail if it is proved but false."""
    told = forged(seed)
    try:
        report = verify(Source("answer.json", json.dumps(told)), Options())
    except PipeschedError as error:
        return f"refused {error.diagnostics[0].code}"
    if report.verdict is None or not report.ok or not report.verdict.proved:
        return "not proved"
    loaded = compile.load(Source("source.ps", told["source"]), Options())
    rows = simulate.rows(loaded.own_costs, loaded.schedule.stages)
    cost = {key: int(rows[key][0]) for key in ("F", "I", "W", "B", "C", "FB") if rows.get(key)}  # type: ignore[index]
    cost.setdefault("FB", cost["F"] + cost["B"])
    placement, caps = loaded.schedule.placement, told["mem_cap"]
    if told["certificate"]["backward"] != "pairs":
        return "not about pairs"
    if caps is not None and len(set(caps)) > 1:
        return "caps by rank"
    cap = None if caps is None else int(Fraction(caps[0]))
    best = least(json.dumps([placement.rank_of.tolist(), placement.route_of.tolist(), cost, cap]))
    assert best == report.verdict.value, (told, best)
    return "true"


def test_no_forged_pairs_are_proved() -> None:
    """An answer that is proved after a forger was at it is true."""
    seen = Counter(judged(seed) for seed in range(deep(60)))
    assert sum(n for what, n in seen.items() if what not in ("true", "not about pairs")) > 15


if __name__ == "__main__":
    by_hand(cases=(compared, 100), forged=(judged, 1000))
