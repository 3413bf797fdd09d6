"""Whether an order is one that we know, wholly or but for a part of every rank.

    mine    F0 F1 I0 F2 W0 I1 I2 W1 W2       as the other one, read
    known   F0 F1 I0 W0 F2 I1 W1 I2 W2         exactly        differs from step 4 to 8
                                               up to W        equal: without its W each is F0 F1 I0 F2 I1 I2

Three readings, strict to lax: as it stands; without W (their order is free as long as memory allows); and with each
full backward read as the I in it, for the same order with its backwards split. In the lax two the W that are left out
are the same ones. A reading that is not equal keeps its window: per rank the steps between what is common at the begin
and at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule

READINGS = ("exactly", "up to W", "split")


@dataclass(frozen=True)
class Likeness:
    """A reading under which two orders of the same placement are compared.

    windows: per rank the operations of the first order, as a half-open range of all its operations, that differ; empty
    where the rank is the same. common: the share of operations that stand where the other order has them, counted from
    the begin or, outside of the windows, from the end of a rank; of all operations of the longer order.
    """

    reading: str
    windows: tuple[tuple[int, int], ...]
    common: Fraction

    @property
    def whole(self) -> bool:
        return all(low >= high for low, high in self.windows)


def likeness(mine: Schedule, known: Schedule) -> Likeness | None:
    """The strictest reading under which the orders are equal, else the exact one; None for other placements."""
    if not same_place(mine, known):
        return None
    found = _read(mine, known, "exactly")
    if found.whole:
        return found
    splits = [Op.B in schedule.op for schedule in (mine, known)]
    for reading in READINGS[1:]:
        lax = _read(mine, known, reading)
        if lax.whole and (reading == "split" or splits[0] == splits[1]) and _same_rest(mine, known, reading):
            return lax
    return found


def same_place(a: Schedule, b: Schedule) -> bool:
    """Whether both have the same stages on the same ranks, and the same microbatches on the same routes."""
    one, two = a.placement, b.placement
    return (
        a.ranks == b.ranks and np.array_equal(one.rank_of, two.rank_of) and np.array_equal(one.route_of, two.route_of)
    )


def keys(schedule: Schedule) -> Ints:
    """One number for an operation and whether it shares the slot of the one before; equal for equal operations."""
    stage = schedule.stage.astype(np.int64)
    return ((stage * (1 << 26) + schedule.microbatch) * 4 + schedule.op) * 2 + schedule.joined


def _read(mine: Schedule, known: Schedule, reading: str) -> Likeness:
    (a, a_at), (b, b_at) = _under(mine, reading), _under(known, reading)
    a_cut, b_cut = (np.searchsorted(at, x.start).tolist() for x, at in ((mine, a_at), (known, b_at)))
    windows, common = [], 0
    for rank in range(mine.ranks):
        here, there = a[a_cut[rank] : a_cut[rank + 1]], b[b_cut[rank] : b_cut[rank + 1]]
        low, high = window(here, there)
        common += _standing(here, there, low, high)
        first, last = a_cut[rank] + low, a_cut[rank] + high
        windows.append((int(a_at[first]), int(a_at[last - 1]) + 1) if last > first else _nothing(mine, rank, low, high))
    return Likeness(reading, tuple(windows), Fraction(common, max(1, len(a), len(b))))


def _standing(here: Ints, there: Ints, low: int, high: int) -> int:
    """How many operations of a rank stand where they do in the other order."""
    short = min(len(here), len(there))
    return max(int(np.count_nonzero(here[:short] == there[:short])), len(here) - max(0, high - low))


def _nothing(mine: Schedule, rank: int, low: int, high: int) -> tuple[int, int]:
    """The window of a rank that is the same, or (high < low) that lacks what the other has: then all of the rank."""
    begin, end = int(mine.start[rank]), int(mine.start[rank + 1])
    return (begin, begin) if high == low else (begin, max(end, begin + 1))


def window(a: Ints, b: Ints) -> tuple[int, int]:
    """Where a differs from b: outside of a[low:high] both are the same; high < low where b has more there.

    The same sequences have the window (0, 0).
    """
    short = min(len(a), len(b))
    unequal = np.flatnonzero(a[:short] != b[:short])
    if not len(unequal) and len(a) == len(b):
        return 0, 0
    low = int(unequal[0]) if len(unequal) else short
    rest = short - low
    back = np.flatnonzero(a[::-1][:rest] != b[::-1][:rest])
    tail = int(back[0]) if len(back) else rest
    high = len(a) - tail
    return (low, high) if high > low else (low, low - 1)


def _under(schedule: Schedule, reading: str) -> tuple[Ints, Ints]:
    """The keys of the operations that a reading keeps, and where they stand."""
    key = keys(schedule)
    if reading == "exactly":
        return key, np.arange(len(key))
    at = np.flatnonzero(schedule.op != Op.W)
    if reading == "split":
        key = key - 2 * (int(Op.B) - int(Op.I)) * (schedule.op == Op.B)
    return key[at], at


def _same_rest(mine: Schedule, known: Schedule, reading: str) -> bool:
    """Whether the W that a reading leaves out are the same ones on every rank; those in a B count in `split`."""
    kinds = (Op.W, Op.B) if reading == "split" else (Op.W,)

    def left_out(schedule: Schedule) -> Ints:
        at = np.flatnonzero(np.isin(schedule.op, kinds))
        where = (schedule.rank[at].astype(np.int64) << 40) + (schedule.stage[at].astype(np.int64) << 26)
        return np.sort(where + schedule.microbatch[at])

    return np.array_equal(left_out(mine), left_out(known))
