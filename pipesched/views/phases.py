"""The three phases of a rank.

    warm-up      until its first backward starts
    steady       from there until its last forward has ended; nothing, where all forwards come first
    cool-down    after its last forward

    rank 0   F F F F . . B F B F B B B B         warm-up | steady | cool-down
             ------------|-------|-------

A rank without a backward is in its warm-up from beginning to end. What never runs counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import Bools, Ints
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Phases:
    """steady, cooling: in ticks, shape (ranks,): where the warm-up and the steady phase end, -1 without a backward."""

    steady: Ints
    cooling: Ints


def phases(schedule: Schedule, times: Timeline) -> Phases:
    """The phases of every rank; O(operations)."""
    ran = times.start >= 0
    first = _per_rank(np.minimum, times.start, ran & ((schedule.op == Op.I) | (schedule.op == Op.B)), schedule)
    last = _per_rank(np.maximum, times.end, ran & (schedule.op == Op.F), schedule)
    return Phases(first, np.where(first >= 0, np.maximum(first, last), -1))


def _per_rank(pick: np.ufunc, values: Ints, chosen: Bools, schedule: Schedule) -> Ints:
    """The least or the largest of the chosen values of each rank, -1 where it has none."""
    found = np.full(schedule.ranks, np.iinfo(np.int64).max if pick is np.minimum else -1, dtype=np.int64)
    pick.at(found, schedule.rank[chosen], values[chosen])
    return np.where(np.isin(np.arange(schedule.ranks), schedule.rank[chosen]), found, -1)
