"""What has to be moved to make one sequence of another, as few elements as possible.

    a   F0 F1 I0 W0 F2 I1 W1           in b's order the positions in a are 0 1 2 4 3 5 6
    b   F0 F1 I0 F2 W0 I1 W1           the longest increasing run of them stays: W0 (or F2) has moved

Every element occurs once, so that this is a permutation, and what stays is a longest increasing subsequence: one pass
with a binary search, n log n. A permutation falls apart into blocks, each of which maps to itself; in short blocks
that subsequence is chosen, among equally long ones, that keeps most of what is `heavy`, so that a W is said to have
moved and not the F beside it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Bools, Ints

_SHORT = 40  # elements of a block up to which all pairs are looked at


@dataclass(frozen=True)
class Moves:
    """Positions from 0. moved: (in a, in b) of what is in both and has moved, in b's order; gone: in a alone; new: in b
    alone.
    """

    moved: tuple[tuple[int, int], ...] = ()
    gone: tuple[int, ...] = ()
    new: tuple[int, ...] = ()


def moves(a: Ints, b: Ints, heavy: Bools) -> Moves:
    """From a to b; elements are equal numbers, and the i-th of equal ones is the i-th. heavy: of each element of b."""
    if len(a) == len(b) and np.array_equal(a, b):
        return Moves()
    short = min(len(a), len(b))
    low = _common(a[:short], b[:short])
    tail = _common(a[low:][::-1], b[low:][::-1])
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


def _common(a: Ints, b: Ints) -> int:
    """How many elements at the begin are the same."""
    short = min(len(a), len(b))
    unequal = np.flatnonzero(a[:short] != b[:short])
    return int(unequal[0]) if len(unequal) else short


def _numbered(values: list[int]) -> list[tuple[int, int]]:
    """Each element with how many equal ones came before it."""
    seen: dict[int, int] = {}
    numbered = []
    for value in values:
        count = seen.get(value, 0)
        seen[value] = count + 1
        numbered.append((value, count))
    return numbered


def _stays(positions: Sequence[int], heavy: Sequence[bool]) -> list[bool]:
    """Of a sequence of different numbers: whether each belongs to the increasing subsequence that is kept."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    permutation = [0] * len(positions)
    for number, i in enumerate(order):
        permutation[i] = number
    stays = [False] * len(permutation)
    begin, highest = 0, -1
    for i, number in enumerate(permutation):
        highest = max(highest, number)
        if highest == i:  # all smaller numbers stand up to here: a block ends
            block = permutation[begin : i + 1]
            chosen = _heaviest(block, heavy[begin : i + 1]) if len(block) <= _SHORT else _longest(block)
            for j in chosen:
                stays[begin + j] = True
            begin = i + 1
    return stays


def _longest(block: Sequence[int]) -> list[int]:
    """The indices of a longest increasing subsequence: by length the least last element, with who came before it."""
    last: list[int] = []
    ends: list[int] = []
    before = [-1] * len(block)
    for i, value in enumerate(block):
        length = bisect_left(last, value)
        before[i] = ends[length - 1] if length else -1
        last[length : length + 1], ends[length : length + 1] = [value], [i]
    return _back(ends[-1] if ends else -1, before)


def _heaviest(block: Sequence[int], heavy: Sequence[bool]) -> list[int]:
    """The same, and of the longest ones the first with most heavy elements; all pairs."""
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
