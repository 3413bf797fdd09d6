"""The best order with F+B pairs or R is the best of all orders, tried slot by slot; no forged answer is accepted as
proved.

random costs, caps, one or two routes ──> `optimize --overlap --recompute` ──> its makespan, its bound, its verdict
          │                                                                        │
          └── every slot that can come next, on every rank ────────────────────────┘ equal where proved, never below

python -m tests.optimizer.test_slots --cases 300 --forged 2000
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


PLACEMENTS = (([0], 2), ([0], 3), ([0, 1], 2), ([0, 0], 2))


def question(seed: int) -> Json:
    """Return a random question of at most 12 results without R."""
    rng = random.Random(seed)
    overlap = rng.random() < 0.5
    two = overlap and rng.random() < 0.5
    placement, m = ([0, 1], 2) if two else rng.choice(PLACEMENTS[: 3 if overlap else 4])
    forward, whole = rng.randint(1, 2), rng.randint(2, 3)
    cost: Json = {"F": forward, "I": rng.randint(1, 2), "W": rng.randint(1, 2), "B": whole, "C": rng.choice([0, 0, 1])}
    asked: Json = {"costs": cost, "mem_cap": rng.choice([None, 1, 2, 2, 3]), "overlap": overlap}
    if overlap:
        cost["FB"] = rng.randint(max(forward, whole, cost["I"]), forward + whole)
    if not overlap or rng.random() < 0.25:
        cost |= {"R": rng.randint(1, 2), "K": rng.choice(["0", "1/4", "1/2"])}
        some = [str(s) for s in range(len(placement)) if rng.random() < 0.6] or ["0"]
        asked |= {"recompute": rng.choice(["any", "any", "stages", "stages", ",".join(some)])}
        asked |= {"mem_cap": rng.choice(["1", "5/4", "3/2", "2", None])}
    if not overlap:
        asked |= {"backward": rng.choice(["split", "fused"])}
    return {**asked, "two": True} if two else {**asked, "placement": placement, "m": m}


def answered(asked: Json) -> Any:
    given = {key: x for key, x in asked.items() if key != "two"}
    target = [Source("two.ps", TWO)] if asked.get("two") else []
    return pipesched.optimize(*target, **given, time_limit=20)


def tried(question: Json) -> int | None:
    """Return the least makespan over all orders of slots, None if there is none: (rank, results, kind, time)."""
    table, route_of, cost, cap = (question[key] for key in ("table", "route_of", "costs", "cap"))
    again, ops, (full, small) = question["again"], question["ops"], question["sizes"]
    ranks, stages, m = max(map(max, table)) + 1, len(table[0]), len(route_of)
    place = {(s, i): table[route_of[i]][s] for s in range(stages) for i in range(m)}
    kinds = "FIWRD" if again else "FIW"  # D: its F runs again
    bit = {x: 1 << n for n, x in enumerate((k, s, i) for k in kinds for s in range(stages) for i in range(m))}

    def needs(kind: str, s: int, i: int, done: int) -> list[tuple[str, int, int]]:
        if kind == "F":
            return [("F", s - 1, i)] if s else []
        if kind in "WR":
            return [("I" if kind == "W" else "F", s, i)]
        own = [("R", s, i)] if again and done & bit["D", s, i] else []
        return [("I", s + 1, i) if s < stages - 1 else ("F", s, i), *own]

    def choices(s: int, i: int, done: int) -> list[bool]:
        if again not in ("any", "stages"):
            return [str(s) in again.split(",")]
        known = {bool(done & bit["D", s, j]) for j in range(m) if route_of[j] == route_of[i] and done & bit["F", s, j]}
        return [*known] if again == "stages" and known else [False, True]

    def in_turn(kind: str, s: int, i: int, done: int) -> bool:
        """Where each F may run again, microbatches of a route keep their order."""
        before = [j for j in range(i) if route_of[j] == route_of[i]]
        if kind == "R":
            before = [j for j in before if done & bit["D", s, j]]
        return again != "any" or all(done & bit[kind, s, j] for j in before)

    def slots(done: int) -> Iterator[tuple[int, list[tuple[str, int, int]], str, int]]:
        for (s, i), rank in place.items():
            f, g, w = (("F", s, i), ("I", s, i), ("W", s, i))
            if not done & bit[f] and in_turn(*f, done):
                for drop in choices(s, i, done):
                    first = [f, ("D", s, i)] if drop else [f]
                    yield rank, first, "F", cost["F"]
                    for (t, j), other in place.items() if "FB" in ops else ():
                        if other == rank and j != i and not done & bit["I", t, j] and in_turn("I", t, j, done):
                            yield rank, [*first, ("I", t, j), ("W", t, j)], "FB", cost["FB"]
            if not done & bit[g] and in_turn(*g, done):
                if "I" in ops:
                    yield rank, [g], "I", cost["I"]
                if "B" in ops:
                    yield rank, [g, w], "B", cost["B"]
            elif done & bit[g] and not done & bit[w]:
                yield rank, [w], "W", cost["W"]
            r = ("R", s, i)
            if again and done & bit["D", s, i] and not done & bit[r] and in_turn(*r, done):
                yield rank, [r], "R", cost["R"]

    def awaited(kind: str, s: int, i: int, done: int) -> bool:
        """An operation of another rank that waits for this result has not run."""
        by = {"F": s + 1, "I": s - 1}.get(kind, -1)
        return 0 <= by < stages and place[by, i] != place[s, i] and not done & bit[kind, by, i]

    held_by = {"F": full, "W": -full, "D": small - full, "R": full - small}
    wanted_last = sum(bit[x] for x in bit if x[0] in "FIW")
    best, layers = None, {0: {((0,) * ranks, ())}}
    while layers:
        done = min(layers, key=int.bit_count)
        states: set[Any] = layers.pop(done)
        if done & wanted_last == wanted_last:
            value = min(max(clock) for clock, _ in states)
            best = value if best is None else min(best, value)
            continue
        held = Counter[int]()
        for (kind, s, i), x in bit.items():
            held[place[s, i]] += held_by.get(kind, 0) * bool(done & x)
        for rank, parts, kind, work in slots(done):
            wanted = [x for part in parts if part[0] not in ("W", "D") or kind == "W" for x in needs(*part, done)]
            if any(not done & bit[x] for x in wanted):
                continue
            more = full if "F" in kind else full - small if kind == "R" else 0
            if cap is not None and more and held[rank] + more > cap:
                continue
            after = done | sum(bit[part] for part in parts)
            for clock, ends in states:
                known = dict(ends)
                lag = [known[x] + cost["C"] for x in wanted if place[x[1:]] != rank]
                end = max([clock[rank], *lag]) + work
                now = (*clock[:rank], end, *clock[rank + 1 :])
                ended = {x: t for x, t in {**known, **dict.fromkeys(parts, end)}.items() if awaited(*x, after)}
                ended = tuple(sorted(ended.items()))
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
    return tried(json.loads(asked))


def ask(table: list[list[int]], routes: list[int], cost: Json, cap: object, again: str, backward: str) -> int | None:
    """Try all orders. cost: with R and K; cap: in the unit of peaks, or None."""
    ops = {"pairs": ["I", "W", "B", "FB"], "fused": ["B"], "split": ["I", "W"]}[backward]
    small, grain = Fraction(str(cost.get("K", 0))), 16
    each = Fraction(max(map(max, table)) + 1, len(table[0])) * grain
    sizes = [int(each), int(each * small)]
    whole = None if cap is None else int(Fraction(str(cap)) * grain)
    asked = {"table": table, "route_of": routes, "costs": cost, "cap": whole, "again": again, "ops": ops}
    return least(json.dumps({**asked, "sizes": sizes}))


def truth(asked: Json) -> int | None:
    cap, again = asked["mem_cap"], asked.get("recompute", "")
    backward = asked.get("backward", "pairs")
    if asked.get("two"):
        return ask([[0, 1], [1, 0]], [0, 1], asked["costs"], cap, again, backward)
    return ask([asked["placement"]], [0] * asked["m"], asked["costs"], cap, again, backward)


def compared(seed: int) -> str:
    """Compare an answer with all orders; return its status."""
    asked = question(seed)
    best, answer = truth(asked), answered(asked)
    if best is None:
        assert answer.status == "infeasible", answer.text()
        return str(answer.status)
    assert answer.value is not None and answer.lower_bound is not None, (answer.text(), best)
    assert answer.lower_bound <= best <= answer.value, (answer.text(), best)
    assert not answer.proved or answer.value == best
    report = verify(Source("answer.json", json.dumps(answer.to_json())), Options())
    assert report.ok and report.verdict is not None and report.verdict.status == answer.status, str(report)
    return str(answer.status)


@pytest.mark.parametrize("seed", range(deep(7)))
def test_the_best_of_all(seed: int) -> None:
    """The makespan is the least over all orders of slots where it is proved, the bound never above it."""
    compared(seed)


@pytest.mark.nightly
def test_pilot() -> None:
    """With FB = 2, DualPipe at p=4, m=8 takes 22, and the optimum is 21 at the same memory, proved."""
    answer = pipesched.optimize("dualpipe", p=4, m=8, mem_cap=5, costs="FB=2", overlap=True, time_limit=20)
    assert (answer.value, answer.status) == (21, "proved optimal")


@pytest.mark.nightly
def test_recomputation_by_stage() -> None:
    """At p=4, m=8, cap 3/2, R on the first stages makes 1F1B shorter than R on all, and that is proved."""
    answer = pipesched.optimize(p=4, m=8, mem_cap="3/2", costs="K=1/8", recompute="stages", time_limit=20)
    assert (answer.value, answer.status) == (36, "proved optimal")


@pytest.mark.parametrize(
    "wrong",
    [{"objective": "span"}, {"release": "I"}, {"costs": "F=0,B=2"}, {"costs": "F=2,B=3,FB=2"}, {"costs": "F=1,W=0"}],
)
def test_what_pairs_cannot_be_decided_for(wrong: Json) -> None:
    """Requests that the clauses of pairs do not cover are refused with PS716."""
    with pytest.raises(PipeschedError) as found:
        pipesched.optimize(p=2, m=2, overlap=True, **wrong)
    assert found.value.diagnostics[0].code == "PS716"


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        ({"costs": "K=1"}, "PS716", "an F of stage 0 keeps K, which equals its M"),
        ({"costs": "K=[1,0]", "recompute": "0"}, "PS716", "an F of stage 0 keeps K"),
        ({"costs": "K=[2,0]"}, "PS222", "cost K exceeds M"),
        ({"costs": "R=0"}, "PS716", "take time"),
        ({"release": "I"}, "PS716", "memory freed at W"),
        ({"recompute": "2"}, "PS716", "stage 2 does not exist"),
        ({"recompute": "some"}, "PS225", "some"),
        ({"recompute": "0", "all_m": True}, "PS225", "--recompute contradicts --all-m"),
        ({"costs": "F=[[1,2],[1,2]]"}, "PS222", "cost F differs from microbatch to microbatch"),
    ],
)
def test_what_recomputation_cannot_be_decided_for(wrong: Json, code: str, said: str) -> None:
    """R that frees nothing, of a stage that does not exist, or under other rules, is refused by name."""
    with pytest.raises(PipeschedError) as found:
        pipesched.optimize(p=2, m=2, **{"recompute": "any", **wrong})
    assert found.value.diagnostics[0].code == code
    assert said in found.value.diagnostics[0].message


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
        key = rng.choice(["F = ", "FB = ", "B = ", "I = ", "R = ", "K = "])
        told["source"] = re.sub(rf"\b{key}\d", f"{key}{rng.randint(1, 4)}", told["source"])
    elif how == 3:
        other = rng.choice(honest())[0]
        certificate["refuted"] = json.loads(json.dumps(other["certificate"]["refuted"]))
    elif how == 4 and rng.random() < 0.5:
        told["source"] = re.sub(r"(?<=[ \n])R(\[\d\])? ", "", told["source"], count=rng.randint(1, 2))
        told["source"] = re.sub(r"\nclaim .*", "", told["source"])
    elif how == 4:
        told["source"] = re.sub(r"overlap\((F[^,]*), (B[^)]*\]?)\)", r"\1  \2", told["source"], count=1)
        told["source"] = re.sub(r"\nclaim .*", "", told["source"])
    else:
        certificate["backward"] = rng.choice(["split", "fused", "pairs"])
        if "recompute" in certificate:
            certificate["recompute"] = rng.choice(["any", "stages", "0", "1", "0,1"])
        told["objective"] = rng.choice(["span", "makespan"])
    if rng.random() < 0.7:
        _books(told)
    return told


def _books(told: Json) -> None:
    """Replace the value of the certificate, and the text about it, by the schedule's."""
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
    given = loaded.own_costs.given
    if any(len(set(row)) > 1 for row in rows.values() if row):
        return "costs by stage"
    cost: Json = {key: int(rows[key][0]) for key in ("F", "I", "W", "B", "C", "FB") if rows.get(key)}  # type: ignore[index]
    cost.setdefault("FB", cost["F"] + cost["B"])
    cost |= {"K": str(given.get("K", 0)), "R": int(str(given.get("R", cost["F"])))}
    placement, caps, certificate = loaded.schedule.placement, told["mem_cap"], told["certificate"]
    if certificate["backward"] != "pairs" and "recompute" not in certificate:
        return "not about slots"
    if caps is not None and len(set(caps)) > 1:
        return "caps by rank"
    table, routes = placement.rank_of.tolist(), placement.route_of.tolist()
    again = certificate.get("recompute", "")
    best = ask(table, routes, cost, None if caps is None else caps[0], again, certificate["backward"])
    assert best == report.verdict.value, (told, best)
    return "true"


@pytest.mark.nightly
def test_no_forged_answer_is_proved() -> None:
    """An answer that is proved after a forger was at it is true."""
    seen = Counter(judged(seed) for seed in range(deep(30)))
    assert sum(n for what, n in seen.items() if what not in ("true", "not about slots")) > 6


if __name__ == "__main__":
    by_hand(cases=(compared, 100), forged=(judged, 1000))
