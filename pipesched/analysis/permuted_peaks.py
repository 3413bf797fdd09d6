"""The worst peak over all orders in which microbatches can come, each with its own sizes.

A peak is the greatest of what is held at the positions of a rank. What is held at one is a sum over microbatches, so
its worst permutation is an assignment: found by sorting where sizes are a product, the largest with the largest, else
by the Hungarian method. Very long lists have a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import gcd

import numpy as np

from pipesched.analysis.permutations import LOOKED, Worst
from pipesched.model.columns import Ints
from pipesched.model.schedule import Schedule

_MATCHED = 40  # positions of a rank whose assignment no sorting gives


def worst_peaks(schedule: Schedule, keeping: Ints, passing: Ints, sizes: Ints) -> tuple[Worst, ...]:
    """The most that each rank can hold. keeping, passing: `holdings.of_size_1`; sizes: by stage and entry."""
    long = len(schedule) * schedule.microbatches > LOOKED
    found = []
    for low, high in pairwise(schedule.start.tolist()):
        stages, row = np.unique(schedule.stage[low:high], return_inverse=True)
        columns = np.stack((row, schedule.microbatch[low:high], keeping[low:high], passing[low:high]), axis=1)
        if long and high > low:
            most = np.zeros((2, len(stages)), dtype=np.int64)
            for part, column in zip(most, columns.T[2:], strict=True):
                np.maximum.at(part, row, column)
            found.append(_at_the_fullest(columns, most.sum(axis=0), sizes[stages]))
            continue
        held = _held(columns.tolist(), np.zeros((len(stages), sizes.shape[1]), dtype=np.int64))
        found.append(_fullest(held, sizes[stages]))
    return tuple(found)


def _product(sizes: Ints) -> tuple[Ints, Ints] | None:
    """(factor, unit): sizes[stage, entry] = factor[stage] * unit[entry]; None where no product is like that."""
    if not sizes.size:
        return np.zeros(len(sizes), dtype=np.int64), np.zeros(sizes.shape[1], dtype=np.int64)
    unit = sizes[int(np.argmax(sizes.sum(axis=1)))]
    unit = unit // max(1, gcd(*unit.tolist()))
    top = int(np.argmax(unit))
    factor = sizes[:, top] // max(1, unit[top])
    return (factor, unit) if (factor[:, None] * unit == sizes).all() else None


def _at_the_fullest(columns: Ints, most: Ints, sizes: Ints) -> Worst:
    """The worst where most is held if all entries are alike; and no more than the largest entries, each as often as one
    microbatch can be held. columns: of `_held`; most: of size 1 that is held of a microbatch, by stage.
    """
    row, microbatch, stays, passes = columns.T
    factor, unit = _product(sizes) or (sizes.max(axis=1), np.ones(sizes.shape[1], dtype=np.int64))
    held = np.cumsum(stays * factor[row]) + passes * factor[row]
    at = int(np.argmax(held))
    amount = np.zeros(len(unit), dtype=np.int64)
    np.add.at(amount, microbatch[: at + 1], (stays * factor[row])[: at + 1])
    amount[microbatch[at]] += passes[at] * factor[row[at]]
    rising = np.argsort(unit, kind="stable")
    entries = np.empty(len(unit), dtype=np.int64)
    entries[np.argsort(amount, kind="stable")] = rising
    size = sizes[row, entries[microbatch]]
    value = int((np.cumsum(stays * size) + passes * size).max())
    each = max(1, int(factor @ most))
    full, rest = divmod(int(held[at]), each)
    falling = np.append(unit[rising][::-1], 0)
    bound = int(each * falling[:full].sum() + rest * falling[min(full, len(unit))])
    return Worst(value, max(value, bound), tuple(entries.tolist()))


def _held(operations: list[list[int]], held: Ints) -> Iterator[Ints]:
    """What is held with each operation that takes, by stage and microbatch, of size 1."""
    for stage, microbatch, stays, passes in operations:
        held[stage, microbatch] += stays + passes
        if stays + passes > 0:
            yield held
        held[stage, microbatch] -= passes


def _fullest(held: Iterator[Ints], sizes: Ints) -> Worst:
    """The worst of these positions. sizes: by stage of the rank, and entry."""
    m = sizes.shape[1]
    best = Worst(0, 0, tuple(range(m)))
    if (found := _product(sizes)) is not None:  # the largest with the largest
        factor, unit = found
        rising = np.argsort(unit, kind="stable")
        for share in held:
            amount = factor @ share
            order = np.argsort(amount, kind="stable")
            value = int(amount[order] @ unit[rising])
            if value > best.value:
                entries = np.empty(m, dtype=np.int64)
                entries[order] = rising
                best = Worst(value, value, tuple(entries.tolist()))
        return best
    worth = sorted((share.T @ sizes for share in held), key=lambda x: -int(x.max(axis=1).sum()))
    for matched, one in enumerate(worth):
        bound = int(one.max(axis=1).sum())
        if bound <= best.value:
            break
        if matched == _MATCHED:
            return replace(best, bound=bound)
        entries = _assigned(one)
        value = int(one[np.arange(m), entries].sum())
        if value > best.value:
            best = Worst(value, value, tuple(entries.tolist()))
    return best


def _assigned(worth: Ints) -> Ints:
    """The entry of each microbatch with which most is had; worth: by microbatch and entry.

    The Hungarian method: row by row, along the shortest path to a column that is free.
    """
    cost = -worth
    n = len(cost)
    u, v = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    match = np.zeros(n + 1, dtype=np.int64)  # the row of each column, from 1; 0 where it is free
    far = np.int64(2**62)
    for row in range(1, n + 1):
        match[0], column = row, 0
        least, came, used = np.full(n + 1, far), np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.bool_)
        while match[column]:
            used[column] = True
            i = match[column]
            reduced = cost[i - 1] - u[i] - v[1:]
            closer = ~used[1:] & (reduced < least[1:])
            least[1:][closer], came[1:][closer] = reduced[closer], column
            column = 1 + int(np.argmin(np.where(used[1:], far, least[1:])))
            step = least[column]
            u[match[used]] += step
            v[used] -= step
            least[~used] -= step
        while column:
            match[column], column = match[came[column]], int(came[column])
    made = np.empty(n, dtype=np.int64)
    made[match[1:] - 1] = np.arange(n)
    return made
