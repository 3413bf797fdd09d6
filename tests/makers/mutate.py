"""Plants a mistake at one place in one list of a program.

Each takes the lists of a program, one list of records per rank, and changes them in place; it returns whether it found
something to change. The result may still be right: two independent neighbours may swap. Slips at both
ends of a message, or in more than one list, are in `tests.makers.mutate_more`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from pipesched.model.ops import Instruction, Op

Lists: TypeAlias = list[list[Instruction]]
Mutation: TypeAlias = Callable[[random.Random, Lists], bool]
Wanted: TypeAlias = Callable[[Instruction], bool]
Spot: TypeAlias = tuple[int, int]  # rank, position


def anything(x: Instruction) -> bool:
    return True


def compute(x: Instruction) -> bool:
    return x.op.compute


def message(x: Instruction) -> bool:
    return x.op.send or x.op.receive


def ending(x: Instruction) -> bool:
    return x.op in (Op.REDUCE_GRAD, Op.SYNC, Op.STEP)


def spots(lists: Lists, wanted: Wanted = anything) -> list[Spot]:
    return [(rank, i) for rank, listed in enumerate(lists) for i, x in enumerate(listed) if wanted(x)]


def spot(rng: random.Random, lists: Lists, wanted: Wanted = anything) -> Spot | None:
    found = spots(lists, wanted)
    return rng.choice(found) if found else None


def _drop(wanted: Wanted) -> Mutation:
    def drop(rng: random.Random, lists: Lists) -> bool:
        if found := spot(rng, lists, wanted):
            del lists[found[0]][found[1]]
        return found is not None

    return drop


def _duplicate(wanted: Wanted) -> Mutation:
    """Repeat an entry: next to it, or anywhere in its list."""

    def duplicate(rng: random.Random, lists: Lists) -> bool:
        if found := spot(rng, lists, wanted):
            rank, i = found
            lists[rank].insert(rng.choice([i + 1, rng.randint(0, len(lists[rank]))]), lists[rank][i])
        return found is not None

    return duplicate


def _move(wanted: Wanted) -> Mutation:
    """Move an entry to a near place of its list, or to any."""

    def move(rng: random.Random, lists: Lists) -> bool:
        if found := spot(rng, lists, wanted):
            rank, i = found
            x = lists[rank].pop(i)
            near = min(len(lists[rank]), max(0, i + rng.randint(-3, 3)))
            lists[rank].insert(rng.choice([near, rng.randint(0, len(lists[rank]))]), x)
        return found is not None

    return move


def _swap(wanted: Wanted) -> Mutation:
    """Swap with one of the nearest of its kind on the same rank."""

    def swap(rng: random.Random, lists: Lists) -> bool:
        found = spot(rng, lists, wanted)
        alike = [j for r, j in spots(lists, wanted) if found and r == found[0] and j != found[1]]
        if not found or not alike:
            return False
        rank, i = found
        j = rng.choice(sorted(alike, key=lambda j: abs(j - i))[:4])
        lists[rank][i], lists[rank][j] = lists[rank][j], lists[rank][i]
        return True

    return swap


def _relabel(wanted: Wanted, change: Callable[[random.Random, Lists, Instruction], Mapping[str, Any]]) -> Mutation:
    def relabel(rng: random.Random, lists: Lists) -> bool:
        found = spot(rng, lists, wanted)
        if found is None:
            return False
        rank, i = found
        old = lists[rank][i]
        lists[rank][i] = replace(old, **change(rng, lists, old))
        return lists[rank][i] != old

    return relabel


def top(lists: Lists, field: str) -> int:
    return max((getattr(x, field) for listed in lists for x in listed), default=0)


def _stage(rng: random.Random, lists: Lists, x: Instruction) -> Mapping[str, Any]:
    return {"stage": max(0, x.stage + rng.choice((-2, -1, 1, 2)))}


def _microbatch(rng: random.Random, lists: Lists, x: Instruction) -> Mapping[str, Any]:
    return {"microbatch": rng.randint(0, top(lists, "microbatch") + 1)}


def _peer(rng: random.Random, lists: Lists, x: Instruction) -> Mapping[str, Any]:
    return {"peer": rng.randint(0, len(lists))}


def _operation(rng: random.Random, lists: Lists, x: Instruction) -> Mapping[str, Any]:
    """Change a compute into another one, or the direction or content of a message."""
    kinds = (Op.F, Op.I, Op.W, Op.B) if x.op.compute else (Op.SEND_F, Op.SEND_B, Op.RECV_F, Op.RECV_B)
    return {"op": rng.choice([op for op in kinds if op is not x.op])}


def _elsewhere(wanted: Wanted) -> Mutation:
    """Move an entry to another rank."""

    def elsewhere(rng: random.Random, lists: Lists) -> bool:
        found = spot(rng, lists, wanted)
        if found is None or len(lists) < 2:
            return False
        x = lists[found[0]].pop(found[1])
        there = rng.choice([rank for rank in range(len(lists)) if rank != found[0]])
        lists[there].insert(rng.randint(0, len(lists[there])), x)
        return True

    return elsewhere


def swap_neighbours(rng: random.Random, lists: Lists) -> bool:
    rank = rng.randrange(len(lists))
    if len(lists[rank]) < 2:
        return False
    i = rng.randrange(len(lists[rank]) - 1)
    lists[rank][i], lists[rank][i + 1] = lists[rank][i + 1], lists[rank][i]
    return True


SLIPS: dict[str, Mutation] = {
    "drop": _drop(anything),
    "drop an ending": _drop(ending),
    "duplicate": _duplicate(anything),
    "duplicate an ending": _duplicate(ending),
    "move": _move(anything),
    "move an ending": _move(ending),
    "to another rank": _elsewhere(anything),
    "swap neighbours": swap_neighbours,
    "swap any two": _swap(anything),
    "swap computes": _swap(compute),
    "swap sends": _swap(lambda x: x.op.send),
    "swap receives": _swap(lambda x: x.op.receive),
    "swap SYNCs": _swap(lambda x: x.op is Op.SYNC),
    "another stage": _relabel(lambda x: x.stage >= 0, _stage),
    "another stage for an ending": _relabel(lambda x: ending(x) and x.stage >= 0, _stage),
    "another microbatch": _relabel(lambda x: x.microbatch >= 0, _microbatch),
    "another peer": _relabel(lambda x: x.peer >= 0, _peer),
    "another operation": _relabel(lambda x: compute(x) or message(x), _operation),
    "another communicator": _relabel(message, lambda rng, lists, x: {"communicator": 1}),
    "join or part a slot": _relabel(compute, lambda rng, lists, x: {"second": not x.second}),
}
