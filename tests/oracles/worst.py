"""Every permutation of the microbatches' costs, played one after the other.

Of a schedule, integers by kind of operation, stage and microbatch; whose costs a microbatch has is tried in every way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from pipesched.model.ops import Compute
from tests.oracles.simulate import producers, slots

Table = Mapping[str, Sequence[Sequence[int]]]
"""By F, I, W, B, C, M and maybe FB: by stage, and by microbatch."""


def makespan(orders: list[list[Compute]], stages: int, costs: Table, entries: Sequence[int]) -> int:
    """The end of all, where microbatch i has the costs of entries[i]; an operation starts when it can."""
    made_by, left = producers(orders, stages), [list(slots(order)) for order in orders]
    end: dict[tuple[int, int], int] = {}
    clock = [0] * len(orders)
    while any(left):
        before = len(end)
        for rank, order in enumerate(orders):
            while left[rank]:
                slot = left[rank][0]
                inputs = [made_by[rank, i] for i in slot if (rank, i) in made_by and made_by[rank, i][0] != rank]
                if not all(spot in end for spot in inputs):
                    break
                for there, i in inputs:
                    x = orders[there][i]
                    clock[rank] = max(clock[rank], end[there, i] + costs["C"][x.stage][entries[x.microbatch]])
                clock[rank] += duration([order[i] for i in slot], costs, entries)
                end.update(((rank, i), clock[rank]) for i in slot)
                left[rank].pop(0)
        assert len(end) > before
    return max(clock)


def duration(slot: list[Compute], costs: Table, entries: Sequence[int]) -> int:
    """Of one operation, or of a pair."""
    if len(slot) == 2 and "FB" in costs and slot[1].op.name == "B":
        return costs["FB"][slot[0].stage][entries[slot[0].microbatch]]
    return sum(costs[x.op.name][x.stage][entries[x.microbatch]] for x in slot)


def peaks(orders: list[list[Compute]], change: Mapping[str, int], costs: Table, entries: Sequence[int]) -> list[int]:
    """The most that each rank holds. change: by kind, of size 1. What an F holds goes with it, until its R if any."""
    found = []
    for order in orders:
        held = most = 0
        again = {(x.stage, x.microbatch) for x in order if x.op.name == "R"}
        for x in order:
            kind = "F" if x.op.name == "R" else x.op.name
            size = change[kind] * costs["M"][x.stage][entries[x.microbatch]]
            held += size
            most = max(most, held)
            if x.op.name == "F" and (x.stage, x.microbatch) in again:
                held -= size
        found.append(most)
    return found


def worst(
    orders: list[list[Compute]], stages: int, microbatches: int, costs: Table, change: Mapping[str, int]
) -> tuple[int, list[int]]:
    """The worst makespan, and the worst peak of every rank."""
    every = list(permutations(range(microbatches)))
    held = [peaks(orders, change, costs, entries) for entries in every]
    return max(makespan(orders, stages, costs, entries) for entries in every), [max(x) for x in zip(*held, strict=True)]
