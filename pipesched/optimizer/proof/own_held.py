"""A bound from memory on orders of a schedule's own operations: a cap limits how many activations are held at a time.

    held     cap ----------------------      F takes at its start what its I, W or B frees at its end, which is at least
               |  ======   =====             the longest path later. These areas lie under the cap, one above another,
               | ======  =======             between the first F and the last release:
               +----------------------->         makespan >= head + areas / cap + tail

A stage and microbatch add no area if R, O, L or any other operation than F takes memory, or if not all is freed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.optimizer.proof.own_arcs import UNKNOWN, Arcs, Least, longest
from pipesched.schedule_analysis import Analysis

_MOST = 50_000  # most operations for which this bound is computed


def changes(schedule: Schedule, kept: Ints) -> Ints:
    """Return the amount by which each operation changes the memory held on its rank."""
    change: Ints = np.diff(kept, prepend=0)
    first = schedule.start[:-1][schedule.start[:-1] < schedule.start[1:]]
    change[first] = kept[first]
    return change


def held(made: Analysis, arcs: Arcs, caps: Sequence[Fraction] | None, *, span: bool) -> Iterator[Least]:
    """Yield a bound for each rank with a cap."""
    if caps is None or len(made.schedule) > _MOST:
        return
    schedule, change = made.schedule, changes(made.schedule, made.memory.kept).tolist()
    paths, ends = _Paths(schedule, arcs), (arcs.heads().tolist(), arcs.tails().tolist())
    areas, heads, tails = ([list[int]() for _ in caps] for _ in range(3))
    for first, frees in _held(schedule, change):
        slot, rank, slots = int(arcs.slot[first]), int(schedule.rank[first]), arcs.slot[frees].tolist()
        after = paths.ends(int(schedule.microbatch[first]), slot)
        areas[rank].append(-sum(change[i] * after[x] for i, x in zip(frees, slots, strict=True)))
        heads[rank].append(0 if span else ends[0][slot])
        tails[rank].append(0 if span else min(ends[1][x] for x in slots))
    for rank, (cap, area) in enumerate(zip(caps, areas, strict=True)):
        whole = int(cap / made.memory.part // 1)
        if area and whole > 0:
            head, work, tail = min(heads[rank]), -(-sum(area) // whole), min(tails[rank])
            yield Least(head + work + tail, rank, head, work, tail, held=True)


def _held(schedule: Schedule, change: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield each F that takes memory, with the operations that free all of this memory."""
    of = defaultdict[tuple[int, int], list[int]](list)
    for i, key in enumerate(zip(schedule.stage.tolist(), schedule.microbatch.tolist(), strict=True)):
        if change[i]:
            of[key].append(i)
    for ops in of.values():
        takes = [i for i in ops if change[i] > 0]
        if len(takes) == 1 and schedule.op[takes[0]] == Op.F and not sum(change[i] for i in ops):
            yield takes[0], [i for i in ops if change[i] < 0]


class _Paths:
    """The longest paths between slots that run operations of the same microbatch."""

    def __init__(self, schedule: Schedule, arcs: Arcs) -> None:
        self.arcs, self.slots = arcs, defaultdict[int, list[int]](list)
        runs = defaultdict[int, list[int]](list)
        for slot, microbatch in zip(arcs.slot.tolist(), schedule.microbatch.tolist(), strict=True):
            if microbatch not in runs[slot]:
                runs[slot].append(microbatch)
                self.slots[microbatch].append(slot)
        self.of = defaultdict[int, list[tuple[int, int, int]]](list)
        for one, two, delay in zip(arcs.before.tolist(), arcs.after.tolist(), arcs.delay.tolist(), strict=True):
            for microbatch in runs.get(one, ()):
                if microbatch in runs.get(two, ()):
                    self.of[microbatch].append((one, two, delay))

    def ends(self, microbatch: int, source: int) -> dict[int, int]:
        """Return the length of the longest path from the start of a slot to the end of each slot of a microbatch."""
        slots = self.slots[microbatch]
        place = {slot: n for n, slot in enumerate(slots)}
        columns = [(place[one], place[two], delay) for one, two, delay in self.of[microbatch]]
        before, after, delay = np.array(columns, dtype=np.int64).reshape(-1, 3).T
        cost = self.arcs.cost[slots]
        least = [0 if slot == source else UNKNOWN for slot in slots]
        found = (longest(cost, (before, after, delay), least) + cost).tolist()
        return {slot: max(0, end) for slot, end in zip(slots, found, strict=True)}
