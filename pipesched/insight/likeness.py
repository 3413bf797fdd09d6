"""Compare two orders: find the part of every rank in which they differ, and the fewest moves from one order to the
other.

    mine    F0 F1 I0 F2 W0 I1 I2 W1 W2
    known   F0 F1 I0 W0 F2 I1 W1 I2 W2

Read exactly, these orders differ from step 4 to step 8; without W, both are F0 F1 I0 F2 I1 I2. There are three
readings, from strict to lax: exact; without W, whose order is free as long as memory allows; and with each full
backward read as its I, to recognize the same order with split backwards. In the two lax readings both orders must have
the same W. If the orders differ under a reading, the result contains the part that differs: on each rank, the steps
between the common beginning and the common end.

    a   F0 F1 I0 W0 F2 I1 W1
    b   F0 F1 I0 F2 W0 I1 W1

In b's order, the positions in a are 0 1 2 4 3 5 6. The longest increasing subsequence stays, so W0 (or F2) has moved.
Every element occurs once, so this is a permutation, and the elements of a longest increasing subsequence have not
moved: one pass with a binary search, n log n. A permutation splits into blocks, each of which maps to itself; in short
blocks, the subsequence with the most `heavy` elements is chosen among equally long ones, so that a W is reported as
moved and not the F next to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipesched.model.columns import Bools, Ints
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.optimizer.sameness import keys, same_place

READINGS = ("exactly", "up to W", "split")


@dataclass(frozen=True)
class Likeness:
    """A comparison of two orders of the same placement under a reading.

    differing: for each rank, the half-open range of the first order's operations that differ; empty if none differ.
    common: the share of the longer order's operations that are at the same place in both orders, counted from either
    end of a rank's list.
    """

    reading: str
    differing: tuple[tuple[int, int], ...]
    common: Fraction

    @property
    def whole(self) -> bool:
        return all(low >= high for low, high in self.differing)


def likeness(mine: Schedule, known: Schedule) -> Likeness | None:
    """Compare under the strictest reading that makes both orders equal, or exactly if no reading does; None if
    placements differ.
    """
    if mine.ranks != known.ranks or not same_place(mine.placement, known.placement):
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


def _read(mine: Schedule, known: Schedule, reading: str) -> Likeness:
    (a, a_at), (b, b_at) = _under(mine, reading), _under(known, reading)
    a_cut, b_cut = (np.searchsorted(at, x.start).tolist() for x, at in ((mine, a_at), (known, b_at)))
    differing, common = [], 0
    for rank in range(mine.ranks):
        here, there = a[a_cut[rank] : a_cut[rank + 1]], b[b_cut[rank] : b_cut[rank + 1]]
        low, high = unequal_part(here, there)
        common += _standing(here, there, low, high)
        first, last = a_cut[rank] + low, a_cut[rank] + high
        differing.append(
            (int(a_at[first]), int(a_at[last - 1]) + 1) if last > first else _nothing(mine, rank, low, high)
        )
    return Likeness(reading, tuple(differing), Fraction(common, max(1, len(a), len(b))))


def _standing(here: Ints, there: Ints, low: int, high: int) -> int:
    """Return the number of operations of a rank that are at the same position in both orders."""
    short = min(len(here), len(there))
    return max(int(np.count_nonzero(here[:short] == there[:short])), len(here) - max(0, high - low))


def _nothing(mine: Schedule, rank: int, low: int, high: int) -> tuple[int, int]:
    """Return an empty range for an equal rank, and the whole rank if it lacks operations (high < low)."""
    begin, end = int(mine.start[rank]), int(mine.start[rank + 1])
    return (begin, begin) if high == low else (begin, max(end, begin + 1))


def unequal_part(a: Ints, b: Ints) -> tuple[int, int]:
    """Return low and high such that a equals b outside a[low:high]; high < low if b is longer there; (0, 0) for equal
    sequences.
    """
    low, tail = _common_ends(a, b)
    if low == len(a) == len(b):
        return 0, 0
    high = len(a) - tail
    return (low, high) if high > low else (low, low - 1)


def _common_ends(a: Ints, b: Ints) -> tuple[int, int]:
    """Return the number of equal elements at the beginning, and the number of further equal elements at the end."""
    short = min(len(a), len(b))
    unequal = np.flatnonzero(a[:short] != b[:short])
    low = int(unequal[0]) if len(unequal) else short
    back = np.flatnonzero(a[::-1][: short - low] != b[::-1][: short - low])
    return low, int(back[0]) if len(back) else short - low


def _under(schedule: Schedule, reading: str) -> tuple[Ints, Ints]:
    """Return the keys of the operations that a reading keeps, and the places of these operations."""
    key = keys(schedule)
    if reading == "exactly":
        return key, np.arange(len(key))
    at = np.flatnonzero(schedule.op != Op.W)
    if reading == "split":
        key = key - 2 * (int(Op.B) - int(Op.I)) * (schedule.op == Op.B)
    return key[at], at


def _same_rest(mine: Schedule, known: Schedule, reading: str) -> bool:
    """Return True if both orders have the same W on every rank; the reading `split` also counts the W within a B."""
    kinds = (Op.W, Op.B) if reading == "split" else (Op.W,)

    def left_out(schedule: Schedule) -> Ints:
        at = np.flatnonzero(np.isin(schedule.op, kinds))
        where = (schedule.rank[at].astype(np.int64) << 40) + (schedule.stage[at].astype(np.int64) << 26)
        return np.sort(where + schedule.microbatch[at])

    return np.array_equal(left_out(mine), left_out(known))


_SHORT = 40  # most elements of a block for which all pairs are compared


@dataclass(frozen=True)
class Moves:
    """The moves between two orders. Positions count from 0. moved: (position in a, position in b) of the elements that
    have moved, in b's order; gone: elements only in a; new: elements only in b.
    """

    moved: tuple[tuple[int, int], ...] = ()
    gone: tuple[int, ...] = ()
    new: tuple[int, ...] = ()


def moves(a: Ints, b: Ints, heavy: Bools) -> Moves:
    """Return the moves from a to b. The i-th of several equal numbers in a corresponds to the i-th in b. heavy: for
    each element of b, whether it should preferably stay.
    """
    if len(a) == len(b) and np.array_equal(a, b):
        return Moves()
    low, tail = _common_ends(a, b)
    here, there = _numbered(a[low : len(a) - tail].tolist()), _numbered(b[low : len(b) - tail].tolist())
    at = {element: i for i, element in enumerate(here)}
    both = [(at[element], i) for i, element in enumerate(there) if element in at]
    kept = set(there) & set(at)
    weights = heavy[low : len(b) - tail].tolist()
    stays = _stays([i for i, _ in both], [bool(weights[j]) for _, j in both])
    return Moves(
        tuple((low + i, low + j) for (i, j), stay in zip(both, stays, strict=True) if not stay),
        tuple(low + i for i, element in enumerate(here) if element not in kept),
        tuple(low + j for j, element in enumerate(there) if element not in kept),
    )


def _numbered(values: list[int]) -> list[tuple[int, int]]:
    """Pair each element with its number among equal elements, from 0."""
    seen: dict[int, int] = {}
    numbered = []
    for value in values:
        count = seen.get(value, 0)
        seen[value] = count + 1
        numbered.append((value, count))
    return numbered


def _stays(positions: Sequence[int], heavy: Sequence[bool]) -> list[bool]:
    """Mark the elements that have not moved, a longest increasing subsequence of distinct numbers."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    permutation = [0] * len(positions)
    for number, i in enumerate(order):
        permutation[i] = number
    stays = [False] * len(permutation)
    begin, highest = 0, -1
    for i, number in enumerate(permutation):
        highest = max(highest, number)
        if highest == i:  # all smaller numbers came before this one: a block ends
            block = permutation[begin : i + 1]
            chosen = _heaviest(block, heavy[begin : i + 1]) if len(block) <= _SHORT else _longest(block)
            for j in chosen:
                stays[begin + j] = True
            begin = i + 1
    return stays


def _longest(block: Sequence[int]) -> list[int]:
    """Return the indices of a longest increasing subsequence, tracking the smallest last element of each length."""
    last: list[int] = []
    ends: list[int] = []
    before = [-1] * len(block)
    for i, value in enumerate(block):
        length = bisect_left(last, value)
        before[i] = ends[length - 1] if length else -1
        last[length : length + 1], ends[length : length + 1] = [value], [i]
    return _back(ends[-1] if ends else -1, before)


def _heaviest(block: Sequence[int], heavy: Sequence[bool]) -> list[int]:
    """Return the first longest increasing subsequence with the most heavy elements, by comparing all pairs."""
    best: list[tuple[int, int]] = []
    before = [-1] * len(block)
    for i, value in enumerate(block):
        reach = max(((best[j], -j) for j in range(i) if block[j] < value), default=((0, 0), 1))
        before[i] = -reach[1]
        best.append((reach[0][0] + 1, reach[0][1] + heavy[i]))
    end = max(range(len(block)), key=lambda i: (best[i], -i), default=-1)
    return _back(end, before)


def _back(end: int, before: Sequence[int]) -> list[int]:
    chosen = []
    while end >= 0:
        chosen.append(end)
        end = before[end]
    return chosen[::-1]
