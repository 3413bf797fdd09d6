"""The kernel of an order: the part whose repetition yields a schedule for every number of microbatches m0 + jK.

    m0         F F F | F I W | F I W I W I W
    m0 + K     F F F | F I W   F I W | F I W I W I W      one more copy of the kernel on every rank
    m0 + jK    F F F | F I W   ...   F I W | ...

The kernel of a rank runs K microbatches of each of its stages. Operations of the same kind and stage run in microbatch
order, so the sequence of letters determines the microbatch of each operation. The seam certificate proves that the
longer orders are correct, and how long they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Column, Ints, fresh, places
from pipesched.model.ops import COMPUTES
from pipesched.model.schedule import Schedule


def packed(stage: Column, op: Column) -> Ints:
    """Pack a stage and a kind of operation into one number that keeps their order."""
    return np.asarray(stage.astype(np.int64) * len(COMPUTES) + op)


@dataclass(frozen=True)
class Kernel:
    """The position of the kernel in a schedule.

    microbatches: K. low, high: for each rank, the bounds of the kernel in the rank's list. copies: the number of
    further copies that follow; without them, the schedule has its smallest m, m0.
    """

    microbatches: int
    low: Sequence[int]
    high: Sequence[int]
    copies: int = 0

    def least(self, schedule: Schedule) -> int:
        """Return m0, the number of microbatches of the schedule without further copies of the kernel."""
        return schedule.microbatches - self.copies * self.microbatches

    def after(self, rank: int) -> int:
        """Return the end of the last copy in a rank's list."""
        return self.high[rank] + self.copies * (self.high[rank] - self.low[rank])

    def fault(self, schedule: Schedule) -> str:
        """Return why this is not a kernel of the schedule; empty if it is one."""
        if schedule.placement.routes != 1:
            return "a schedule with a kernel must have a single route"
        if not (len(self.low) == len(self.high) == schedule.ranks and self.microbatches > 0 <= self.copies):
            return f"a kernel needs {schedule.ranks} ranks, at least one microbatch, and a nonnegative number of copies"
        if bool(schedule.second.any()):
            return "a kernel must not have overlap pairs"
        if not np.array_equal(in_order(schedule.op, schedule.stage), schedule.microbatch):
            return "operations of the same kind and stage are not in microbatch order"
        key = packed(schedule.stage, schedule.op)
        for rank in range(schedule.ranks):
            start, end = int(schedule.start[rank]), int(schedule.start[rank + 1])
            low, high, after = start + self.low[rank], start + self.high[rank], start + self.after(rank)
            if not start <= low <= high <= after <= end:
                return f"{self.low[rank]} .. {self.high[rank]} is not within the order of rank {rank}"
            kinds, times = np.unique(key[low:high], return_counts=True)
            if not np.array_equal(kinds, np.unique(key[start:end])) or bool(np.any(times != self.microbatches)):
                return f"the kernel of rank {rank} does not run every stage for {self.microbatches} microbatches"
            if not np.array_equal(key[high:after], np.tile(key[low:high], self.copies)):
                return f"the kernel of rank {rank} is not followed by {self.copies} copies"
        return ""


def in_order(op: Column, stage: Column) -> Column:
    """Return the microbatch of every operation if the operations of each kind and stage run in microbatch order."""
    key = packed(stage, op)
    by_key = np.argsort(key, kind="stable")
    microbatch = np.empty(len(key), dtype=np.int32)
    microbatch[by_key] = places(fresh(key[by_key]))
    return microbatch
