"""Simulates jobs that fail, and the calls of each rank until the failure.

A job has p pipeline ranks, d copies of the pipeline and t tensor ranks. Every rank has a program of calls, step after
step: sums over its tensor group within each compute, messages to its neighbours (1F1B or all forwards first), at the
end of a step sums over the copies, over the pipeline and over the job. A call begins when the call before it on its
rank has ended; it ends when all its members are in it with the same operation and size. One rank is made to fail:

    kill     it is gone before a call, and leaves no dump         skip    it leaves a call out
    stop     it calls nothing more, and leaves its dump           swap    it exchanges two calls
    peer     it sends to, or receives from, another rank; or calls an operation in another group

This file knows nothing of the code that reads the dumps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

CAUSES = ("kill", "stop", "skip", "swap", "peer")


@dataclass(frozen=True)
class Step:
    """A call. way: sum or the like in a group, or `send`, `recv` with a peer. width: the length of its tensor.

    batch: a number of messages that are posted together, equal for neighbours of a program; 0 for a call by itself.
    """

    way: str
    group: str
    peer: int = -1
    width: int = 1
    batch: int = 0


@dataclass
class Incident:
    """A job that stopped. rank: the one that failed; posted: by rank its calls, each with its state."""

    cause: str
    on: str
    rank: int
    sizes: str
    groups: dict[str, tuple[str, list[int]]]
    posted: list[list[tuple[Step, str]]]
    lost: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)


def _groups(p: int, d: int, t: int) -> dict[str, tuple[str, list[int]]]:
    def rank(i: int, j: int, k: int) -> int:
        return (i * d + j) * t + k

    made = {"0": ("default_pg", list(range(p * d * t)))}
    every = [("tp", [[rank(i, j, k) for k in range(t)] for i in range(p) for j in range(d)])]
    every.append(("dp", [[rank(i, j, k) for j in range(d)] for i in range(p) for k in range(t)]))
    every.append(("pp", [[rank(i, j, k) for i in range(p)] for j in range(d) for k in range(t)]))
    for name, lists in every:
        for ranks in lists:
            if len(ranks) > 1:
                made[str(len(made))] = (name, ranks)
    return made


def _pipeline(i: int, p: int, m: int, gpipe: bool) -> Iterator[str]:
    ahead = m if gpipe else min(p - 1 - i, m)
    yield from "F" * ahead
    yield from "FB" * (m - ahead)
    yield from "B" * ahead


def _program(
    r: int, sizes: tuple[int, int, int, int], style: tuple[bool, int, int], groups: dict[str, tuple[str, list[int]]]
) -> list[Step]:
    (p, d, t, m), (gpipe, sums, steps) = sizes, style
    mine = {name: key for key, (name, ranks) in groups.items() if r in ranks}
    i = r // (d * t)
    tensor = [Step("all_reduce", mine["tp"], width=64)] * sums if "tp" in mine else []
    one: list[Step] = []
    letters = [*_pipeline(i, p, m, gpipe)]
    for at, letter in enumerate(letters):
        before, after = (r - d * t, r + d * t) if letter == "F" else (r + d * t, r - d * t)
        inside, joined = range(p * d * t), at + 1
        if before in inside:
            # the message before this compute goes with the one that the compute before sends to the same neighbour
            together = at > 0 and letters[at - 1] != letter and one[-1].peer == before
            if together:
                one[-1] = replace(one[-1], batch=joined)
            one.append(Step("recv", mine["pp"], before, 32, joined if together else 0))
        one += tensor
        one += [Step("send", mine["pp"], after, 32)] if after in inside else []
    if "dp" in mine:
        one += [
            Step("reduce_scatter_tensor_coalesced", mine["dp"], width=512),
            Step("all_reduce", mine["dp"], width=16),
        ]
    one += [Step("all_reduce", mine["pp"], width=8)] if "pp" in mine and i in (0, p - 1) and p == 2 else []
    one += [Step("all_reduce", "0", width=1)]
    one += [Step("all_gather_into_tensor_coalesced", mine["dp"], width=512)] if "dp" in mine else []
    return [Step("barrier", "0", width=1), Step("broadcast", "0", width=4)] + one * steps


def _spoiled(
    program: list[Step], at: int, cause: str, r: int, groups: dict[str, tuple[str, list[int]]], chance: random.Random
) -> list[Step] | None:
    """Return the program of the rank that fails, or None if it cannot fail so there."""
    what = program[at]
    if cause in ("kill", "stop"):
        return program[:at]
    if cause == "skip":
        return program[:at] + program[at + 1 :]
    if cause == "swap":
        other = next((j for j in range(at + 1, min(at + 9, len(program))) if program[j] != what), None)
        if other is None:
            return None
        made = program[:]
        made[at], made[other] = made[other], made[at]
        return made
    if what.peer >= 0:
        others = [x for x in groups[what.group][1] if x not in (r, what.peer)]
        if not others:
            return None
        new = replace(what, peer=chance.choice(others))
    else:
        keys = [key for key, (_, ranks) in groups.items() if r in ranks and key != what.group]
        if not keys:
            return None
        new = Step(what.way, chance.choice(keys), width=what.width)
    return [*program[:at], new, *program[at + 1 :]]


def _units(program: list[Step]) -> list[list[Step]]:
    made: list[list[Step]] = []
    for x in program:
        if made and x.batch and made[-1][-1].batch == x.batch:
            made[-1].append(x)
        else:
            made.append([x])
    return made


def _play(
    programs: list[list[Step]], groups: dict[str, tuple[str, list[int]]], ahead: int
) -> list[list[tuple[Step, str]]]:
    """Run all programs until nothing moves. ahead: calls that a rank issues before an open one has ended."""
    units = [_units(program) for program in programs]
    done, entered = [0] * len(units), [list[object]() for _ in units]
    met: dict[object, dict[int, Step]] = {}
    counts: list[dict[object, int]] = [{} for _ in units]

    def enter(r: int, x: Step) -> object:
        side: object = x.group
        if x.peer >= 0:
            side = (x.group, r, x.peer) if x.way == "send" else (x.group, x.peer, r)
        number = counts[r].get(side, 0)
        counts[r][side] = number + 1
        met.setdefault((side, number), {})[r] = x
        return side, number

    def over(key: object, x: Step) -> bool:
        inside = met[key]
        needed = 2 if x.peer >= 0 else len(groups[x.group][1])
        alike = {(y.width, y.peer >= 0 or y.way) for y in inside.values()}
        return len(inside) == needed and len(alike) == 1

    moved = True
    while moved:
        moved = False
        for r, mine in enumerate(units):
            while done[r] < len(mine):
                unit = mine[done[r]]
                if not entered[r]:
                    entered[r], moved = [enter(r, x) for x in unit], True
                if not all(over(key, x) for key, x in zip(entered[r], unit, strict=True)):
                    break
                done[r], entered[r], moved = done[r] + 1, [], True
    made: list[list[tuple[Step, str]]] = []
    for r, mine in enumerate(units):
        states = ["completed"] * done[r] + ["started"] + ["scheduled"] * ahead
        made.append([(x, state) for unit, state in zip(mine, states, strict=False) for x in unit])
    return made


def incident(seed: int, cause: str | None = None, on: str | None = None) -> Incident:
    """Return a job that stopped. on: `pipeline` or `collective`, the kind of the call that fails."""
    chance = random.Random(seed)
    cause, on = cause or chance.choice(CAUSES), on or chance.choice(("pipeline", "collective"))
    while True:
        sizes = (
            chance.choice((2, 3, 4, 6)),
            chance.choice((1, 1, 2, 3, 4)),
            chance.choice((1, 1, 2, 4)),
            chance.choice((4, 6, 8)),
        )
        p, d, t, _ = sizes
        style = (chance.random() < 0.3, chance.randint(1, 3), chance.randint(1, 4))
        groups = _groups(p, d, t)
        programs = [_program(r, sizes, style, groups) for r in range(p * d * t)]
        assert all(state == "completed" for calls in _play(programs, groups, 0) for _, state in calls)
        r = chance.randrange(len(programs))
        fitting = [i for i, x in enumerate(programs[r]) if (x.peer >= 0) == (on == "pipeline") and i > 1]
        if not fitting:
            continue
        made = _spoiled(programs[r], at := chance.choice(fitting), cause, r, groups, chance)
        if made is None or made == programs[r]:
            continue
        programs[r] = made
        posted = _play(programs, groups, 0 if cause == "stop" else chance.choice((0, 0, 2)))
        if all(state == "completed" for calls in posted for _, state in calls):
            continue  # the job went on, so there is no incident
        told = Incident(cause, on, r, f"p={p} d={d} t={t} m={sizes[3]} steps={style[2]} at={at}", groups, posted)
        if cause == "kill":
            told.lost.add(r)
        others = [x for x in range(len(programs)) if x != r]
        if chance.random() < 0.2 and len(others) > 3:
            (told.lost if chance.random() < 0.5 else told.damaged).add(chance.choice(others))
        return told
