"""The order that `optimize` finds for a schedule's own operations never takes longer than the given order, and no bound
exceeds the best of all orders.

random schedules with offloads, R, slices, skips, frozen stages, no backward, or costs by microbatch
          │
          ├── `optimize FILE` ──> its makespan or span, its bound, its verdict, which `verify` derives again
          └── every order of the same operations, one after another ──> the best, equal where it is proved

python -m tests.optimizer.test_own_order --cases 1000 --forged 5000
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pytest

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Options
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source
from pipesched.verbs.verify import verify
from tests.depth import by_hand, deep

Json = dict[str, Any]
Name = tuple[str, int, int]
_MOST = 12  # operations of a case with three microbatches
KINDS = ("grid", "slices", "skips", "frozen", "forward", "offload", "again", "vee")


@dataclass(frozen=True)
class Case:
    """A schedule as text, and the same for the oracle: operations by stage, rank and readers of stages, costs."""

    text: str
    of_stage: list[str]
    rank: list[int]
    reads: list[list[int]]
    m: int
    slices: int
    cost: dict[str, list[list[int]]]
    message: int
    cap: int | None
    objective: str
    kind: str


def case(seed: int) -> Case:
    """Return a random case of at most 12 operations without copies."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    stages, m, slices = (3 if kind in ("skips", "frozen") else 2), rng.choice([2, 2, 3]), 1
    rank = [*range(stages)]
    backward = {"offload": "B", "again": "B", "frozen": "IW"}.get(kind) or rng.choice(["B", "B", "IW"])
    of_stage = [f"F{backward}"] * stages
    reads = [[s - 1] if s else [] for s in range(stages)]
    lines = ["stage s in 0 .. p on rank s"]
    if kind == "skips":
        m, lines = 2, ["stage s in 0 .. 2 on rank s", "stage 2 on rank 2 reads 1, 0"]
        reads[2] = [1, 0]
    if kind == "slices":
        slices = m = rng.choice([2, 3])
        lines.append(f"slices {m}")
    if kind == "frozen":
        m, rank = 2, [0, 1, 1] if rng.random() < 0.5 else [0, 1, 2]
        of_stage = ["F", *(rng.choice([["F", f"F{backward}"], [f"F{backward}", "FI"]]))]
        frozen = [s for s in range(3) if of_stage[s] in ("F", "FI")]
        lines = [f"stage {s} on rank {r}" for s, r in enumerate(rank)] + [f"frozen {s}" for s in frozen]
    if kind == "forward":
        m, of_stage = 3, ["F"] * stages
    if kind == "vee":
        m, rank, of_stage, reads = 2, [0, 1, 1, 0], ["FB"] * 4, [[], [0], [1], [2]]
        lines = [f"stage {s} on rank {r}" for s, r in enumerate(rank)]
    few = [rng.randrange(stages)]
    if kind in ("offload", "again"):
        of_stage = [("FOLB" if kind == "offload" else "FRB") if s in few else "FB" for s in range(stages)]
    m = 2 if slices == 1 and m * sum(map(len, of_stage)) > _MOST else m
    cost = {op: [[rng.randint(1, 3) for _ in range(m)] for _ in rank] for op in "FIWBROL"}
    if kind not in ("grid", "vee") and rng.random() < 0.5:
        cost = {op: [[row[0]] * m for row in rows] for op, rows in cost.items()}
    message, used = rng.choice([0, 0, 1, 2]), {*"".join(of_stage)}
    given = "".join(_given(op, cost[op]) for op in "FIWBROL" if op in used or op in "FIWB")
    text = f"schedule one(p = {max(rank) + 1}, m = {m})\n" + "\n".join(lines) + "\n" + given + f"costs C = {message}\n"
    text += "".join(_program(r, rank, of_stage, m) for r in range(max(rank) + 1))
    cap = rng.choice([None, 2, 3]) if kind != "forward" else None
    objective = "span" if rng.random() < 0.3 else "makespan"
    return Case(text, of_stage, rank, reads, m, slices, cost, message, cap, objective, kind)


def _given(op: str, rows: list[list[int]]) -> str:
    """Return the statement of a cost: by stage and microbatch, as a choice of each."""
    value = str(rows[-1][-1])
    for s, row in reversed([*enumerate(rows)]):
        for i, x in reversed([*enumerate(row)]):
            value = f"if s == {s} and i == {i} then {x} else {value}"
    return f"costs {op}[s, i] = {value}\n"


def _program(r: int, rank: list[int], of_stage: list[str], m: int) -> str:
    """Return all forwards of a rank, then all that follows, one microbatch after another."""
    mine = [s for s, of in enumerate(rank) if of == r]
    body = [
        f"  repeat {m} {{ {' '.join(f'{op}[{c}]' for op in of_stage[s] if op in 'FO')} }}" for c, s in enumerate(mine)
    ]
    rest = [(c, [op for op in of_stage[s] if op not in "FO"]) for c, s in enumerate(mine)]
    body += [f"  repeat {m} {{ {' '.join(f'{op}[{c}]' for op in ops)} }}" for c, ops in reversed(rest) if ops]
    return f"rank {r} {{\n" + "\n".join(body) + "\n}\n"


@dataclass(frozen=True)
class Step:
    """An operation: what it waits for, with the latency of a message; memory at its start and its end, in 12ths."""

    rank: int
    work: int
    needs: tuple[tuple[Name, int], ...]
    start: int
    end: int


def steps(x: Case) -> dict[Name, Step]:
    """Return the operations of a case by kind, stage and microbatch."""
    made: dict[Name, Step] = {}
    each = 12 * (max(x.rank) + 1) // len(x.rank)
    back = ["B" if "B" in of else "I" if "I" in of else "" for of in x.of_stage]

    def sent(a: int, b: int) -> int:
        return x.message if x.rank[a] != x.rank[b] else 0

    for s, of in enumerate(x.of_stage):
        for i in range(x.m):
            first = [(("F", t, i), sent(t, s)) for t in x.reads[s]]
            first += [(("F", s, i - 1), 0)] if i % x.slices else []
            readers = [t for t in range(len(x.rank)) if s in x.reads[t]]
            later = [((back[t], t, i), sent(t, s)) for t in readers]
            later += [((back[s], s, i + 1), 0)] if (i + 1) % x.slices else []
            own = [((op, s, i), 0) for op in of if op in "FRL"]
            needs: dict[str, list[tuple[Name, int]]] = {"F": first, "I": later + own, "B": later + own}
            needs |= {"W": [(("I", s, i), 0)], "R": [(("F", s, i), 0)], "O": [(("F", s, i), 0)]}
            needs |= {"L": [(("O", s, i), 0)]}
            frees = {"F": -each if of == "F" or "R" in of else 0, "O": -each, "B": -each, "W": -each}
            frees |= {"I": -each if "W" not in of else 0}
            for op in of:
                takes = each if op in "FRL" else 0
                made[op, s, i] = Step(x.rank[s], x.cost[op][s][i], tuple(needs[op]), takes, frees.get(op, 0))
    return made


def at_hand(x: Case) -> int | None:
    """Return the objective of the order in the text; None if it is over the cap."""
    every = steps(x)
    left = {r: [n for n, _ in _listed(x, r)] for r in set(x.rank)}
    state: State = ((0,) * (max(x.rank) + 1), (0,) * 2 * (max(x.rank) + 1), (), (-1,) * (max(x.rank) + 1))
    done, held = set[Name](), dict.fromkeys(left, 0)
    while any(left.values()):
        name = next(left[r][0] for r in left if left[r] and all(n in done for n, _ in every[left[r][0]].needs))
        r = every[name].rank
        if x.cap is not None and held[r] + every[name].start > 12 * x.cap:
            return None
        held[r] += every[name].start + every[name].end
        left[r].pop(0)
        done.add(name)
        state = _after(x, name, every[name], state, {*every})
    return _objective(x, state)


def _listed(x: Case, r: int) -> Iterator[tuple[Name, None]]:
    """Yield the operations of a rank in the order of the text."""
    mine = [s for s, of in enumerate(x.rank) if of == r]
    for s in mine:
        yield from (((op, s, i), None) for i in range(x.m) for op in x.of_stage[s] if op in "FO")
    turn = [i for low in range(0, x.m, x.slices) for i in reversed(range(low, low + x.slices))]
    for s in reversed(mine):
        yield from (((op, s, i), None) for i in turn for op in x.of_stage[s] if op not in "FO")


State = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[Name, int], ...], tuple[int, ...]]
"""Clocks of the ranks; of their engines, out and in; ends of operations and copies; first starts, -1 before."""


def best(x: Case) -> int | None:
    """Return the least objective over all orders; None if none is within the cap."""
    every = steps(x)
    bit = {name: 1 << n for n, name in enumerate(every)}
    ranks = max(x.rank) + 1
    cap = None if x.cap is None else 12 * x.cap
    layers: dict[int, set[State]] = {0: {((0,) * ranks, (0,) * 2 * ranks, (), (-1,) * ranks)}}
    whole = sum(bit.values())
    while layers:
        done = min(layers, key=int.bit_count)
        states = layers.pop(done)
        if x.objective == "makespan" or all(begun >= 0 for state in states for begun in state[3]):
            states = _kept(states)
        if done == whole:
            return min(_objective(x, state) for state in states)
        held = [sum(y.start + y.end for n, y in every.items() if y.rank == r and done & bit[n]) for r in range(ranks)]
        for name, step in every.items():
            if done & bit[name] or any(not done & bit[n] for n, _ in step.needs):
                continue
            if cap is not None and held[step.rank] + step.start > cap:
                continue
            after = done | bit[name]
            awaited = {n for other, y in every.items() if not after & bit[other] for n, _ in y.needs}
            layers.setdefault(after, set()).update(_after(x, name, step, state, awaited) for state in states)
    return None


def _after(x: Case, name: Name, step: Step, state: State, awaited: set[Name]) -> State:
    """Return the state after one more operation."""
    clock, engines, ends, first = state
    known, (op, s, i), r = dict(ends), name, step.rank
    start = max([clock[r], *(known[n] + lag for n, lag in step.needs)])
    if op == "O":  # the rank waits here for the copy that began at the end of its F
        start = end = max(clock[r], known["O copy", s, i])
    elif op == "L":  # the copy begins here, and the backward waits for it
        end = max(start, engines[2 * r + 1]) + step.work
        engines = (*engines[: 2 * r + 1], end, *engines[2 * r + 2 :])
        clock = (*clock[:r], start, *clock[r + 1 :])
    else:
        end = start + step.work
    if op == "F" and "O" in x.of_stage[s]:
        copied = max(end, engines[2 * r]) + x.cost["O"][s][i]
        engines = (*engines[: 2 * r], copied, *engines[2 * r + 1 :])
        known["O copy", s, i] = copied
    known.pop(("O copy", s, i) if op == "O" else name, None)
    clock = clock if op == "L" else (*clock[:r], end, *clock[r + 1 :])
    known[name] = end
    left = tuple(sorted((n, t) for n, t in known.items() if n in awaited or n[0] == "O copy"))
    return clock, engines, left, first if first[r] >= 0 else (*first[:r], start, *first[r + 1 :])


def _objective(x: Case, state: State) -> int:
    clock, _, _, first = state
    return max(clock) if x.objective == "makespan" else max(a - max(b, 0) for a, b in zip(clock, first, strict=True))


def _kept(states: set[State]) -> set[State]:
    """Keep the states that no other is ahead of in every time."""
    kept: list[tuple[list[int], State]] = []

    def flat(of: State) -> list[int]:
        return [*of[0], *of[1], *(t for _, t in of[2]), *(-begun for begun in of[3])]

    for state in sorted(states, key=lambda of: (sum(flat(of)), of)):
        times = flat(state)
        if not any(all(a <= b for a, b in zip(other, times, strict=True)) for other, _ in kept):
            kept.append((times, state))
    return {state for _, state in kept}


def compared(seed: int) -> str:
    """Compare an answer with all orders; return its kind and status."""
    x = case(seed)
    source, least = Source("one.ps", x.text), best(x)
    asked: Json = {"mem_cap": x.cap, "objective": x.objective, "time_limit": 0.6}
    answer = pipesched.optimize(source, **asked)
    if answer.value is None:
        assert answer.status == "nothing found" or least is None, (seed, answer.text(), least)
        return f"{x.kind} {answer.status}"
    assert least is not None
    assert answer.lower_bound is not None
    assert answer.lower_bound <= least <= answer.value, (seed, answer.text(), least, x.text)
    assert not answer.proved or answer.value == least, seed
    first = at_hand(x)
    assert first is None or answer.value <= first, seed
    report = verify(Source("answer.json", json.dumps(answer.to_json())), Options())
    assert report.ok and report.verdict is not None and report.verdict.status == answer.status, (seed, str(report))
    return f"{x.kind} {answer.status}{'' if answer.value == least else ', longer than the best'}"


@pytest.mark.parametrize("seed", range(deep(12)))
def test_between_the_bound_and_the_best(seed: int) -> None:
    """The bound is not above the best of all orders, the answer not below it, and equal where it is proved."""
    compared(seed)


# Forgeries


@lru_cache(maxsize=1)
def honest() -> tuple[tuple[Case, str], ...]:
    made = []
    for seed in range(16):
        x = case(seed)
        answer = pipesched.optimize(
            Source("one.ps", x.text),
            mem_cap=x.cap,
            objective=x.objective,
            time_limit=0.1,
        )
        made += [(x, json.dumps(answer.to_json()))] if answer.value is not None else []
    return tuple(made)


def judged(seed: int) -> str:
    """Verify a forged answer: another bound, cap, objective or order; fail if it is proved but false."""
    rng = random.Random(seed)
    x, text = rng.choice(honest())
    told, how = json.loads(text), rng.randrange(5)
    certificate = told["certificate"]
    if how == 0:
        told["mem_cap"] = rng.choice([None, [rng.randint(1, 3)] * (max(x.rank) + 1)])
    elif how == 1:
        told["objective"] = certificate["objective"] = "span" if x.objective == "makespan" else "makespan"
    elif how == 2:
        certificate["backward"] = rng.choice(["split", "fused", "pairs", "own"])
    else:
        words = told["source"].split("\nrank 0 {")
        body = re.split(r"(  |\n)", words[1]) if len(words) == 2 else []
        ops = [n for n, word in enumerate(body) if re.match(r"[FIWBROL](\[|\b)", word)]
        if len(ops) > 1:
            one, two = rng.sample(ops, 2)
            body[one], body[two] = body[two], body[one]
        told["source"] = "\nrank 0 {".join([words[0], "".join(body)] if body else words)
    told["source"] = re.sub(r"\nclaim .*", "", re.sub(r'\n"[^"]*"\n', "\n", told["source"]))
    for name in [name for name in told if name not in ("source", "release", "mem_cap", "objective", "certificate")]:
        del told[name]
    for name in [name for name in certificate if name.endswith("_decimal")]:
        del certificate[name]
    if rng.random() < 0.8:
        value = rng.choice([certificate["schedule"], certificate["lower_bound"], rng.randint(3, 40)])
        certificate |= {"schedule": value, "lower_bound": value, "gap": 0, "verdict": "proved optimal"}
    try:
        report = verify(Source("answer.json", json.dumps(told)), Options())
    except PipeschedError as error:
        return f"refused {error.diagnostics[0].code}"
    if report.verdict is None or not report.ok or not report.verdict.proved:
        return "not proved"
    cap = None if told["mem_cap"] is None else told["mem_cap"][0]
    assert best(replace(x, cap=cap, objective=told["objective"])) == report.verdict.value, (seed, told)
    return "true"


def test_no_forged_answer_is_proved() -> None:
    """An answer that is proved after a forger was at it is true."""
    seen = Counter(judged(seed) for seed in range(deep(30)))
    assert sum(n for what, n in seen.items() if what != "true") > deep(15)


@pytest.mark.parametrize(
    "name", ["pipeoffload", "seq1f1b", "terapipe", "interleaved_overlap", "mario", "dualpipe", "unet"]
)
def test_not_longer_than_the_library(name: str) -> None:
    """No answer is longer than the library's own order, within its own peak."""
    schedule = pipesched.load(name, p=4)
    assert isinstance(schedule, Schedule)
    own = Analysis(schedule)
    answer = pipesched.optimize(name, p=4, mem_cap=max(own.memory.peak), time_limit=0)
    assert answer.value is not None
    assert answer.value <= own.makespan


def test_not_longer_than_another_order_of_the_library() -> None:
    """An order of the library with the same operations is a candidate if the file's order exceeds the cap."""
    rows = ",".join("[" + ",".join(str(1 + (s + i) % 3) for i in range(8)) + "]" for s in range(4))
    costs = f"F=[{rows}],I=2,W=2,B=4"
    schedule = pipesched.load("capped", p=4, m=8, k=2)
    assert isinstance(schedule, Schedule)
    own = Analysis(schedule, pipesched.Costs.parse(costs))
    answer = pipesched.optimize("zb_h2", p=4, m=8, costs=costs, mem_cap=2, time_limit=0)
    assert max(own.memory.peak) <= 2
    assert answer.value is not None
    assert answer.value <= own.makespan


def test_an_order_within_a_tight_cap() -> None:
    """The order of the file is over the cap, and an order of few sequences at a time is within it."""
    answer = pipesched.optimize("seq1f1b", p=4, m=64, mem_cap=3, time_limit=0)
    assert answer.value is not None
    assert max(answer.peak) <= 3


@pytest.mark.parametrize("wrong", [{"all_m": True}, {"backward": "split"}, {"placement": "vee"}])
def test_what_is_refused_by_name(wrong: Json) -> None:
    """Only the order of the operations of an offloading schedule is decided."""
    with pytest.raises(PipeschedError, match="PS"):
        pipesched.optimize("pipeoffload", p=2, **wrong)


if __name__ == "__main__":
    by_hand(cases=(compared, 100), forged=(judged, 1000))
