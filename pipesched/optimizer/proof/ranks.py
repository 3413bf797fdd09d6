"""Refutes an objective of C by one rank at a time.

    time window   [low, high] of every start, from the longest paths
    rank          its lines are chains of like operations, so an order is a path through counts, one operation per step;
                  held memory and remaining work follow from the counts:

                      T[counts] = the earliest time at which these counts are done, over all orders within the cap

                  Every step starts within its time window, early enough for the remaining work. The latest times follow
                  likewise, backward from the end; starts that occur in no order that ends by C are removed.
    round         every rank, then the paths again: a later start on one rank makes starts on its neighbours later
    first         one pass in which the F of a rank are one line if they are alike, and so are its I, its B and its W

The first pass has three counts instead of five, so it takes few steps; on a folded placement, it often suffices for the
last ranks. C is refuted if a time window becomes empty or no order is left. Microbatches of a route are alike, so each
line keeps them in order. The W of a rank are alike if all have the same duration and free the same amount: then the
n-th W waits until n of their I have ended.

A certificate contains none of this: all of it is computed here, with a limit on steps rather than time, so the result
is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from pipesched.model.columns import Column, Ints
from pipesched.model.ops import Op
from pipesched.optimizer.proof.problem import UNKNOWN, Line, Problem
from pipesched.optimizer.proof.windows import Windows

STEPS = 10_000_000
"""Limit on the number of steps from counts to counts; beyond it, nothing is refuted."""

_AT_LEAST = 500  # fewest steps charged per operation


NARROW = 2_000_000
"""Limit on the steps of `narrow`."""


class _OutOfStepsError(Exception):
    pass


def too_busy(problem: Problem, bound: int, steps: int = STEPS, left: list[int] | None = None) -> int | None:
    """Return a rank that cannot do its work if the objective is at most `bound` ticks; None if every rank can do its
    work, or if the steps run out. left: a list with the number of remaining steps, which the function reduces.

    A span is refuted in the frame of some rank. The frame of the first line's rank, which begins before all others, is
    tried first; in each frame, its own rank is examined first.
    """
    ranks, left = sorted(set(problem.rank.values()), reverse=True), left or [steps]
    first = next(iter(problem.rank.values()), 0)
    frames = [(rank, sorted(ranks, key=rank.__ne__)) for rank in sorted(ranks, key=first.__ne__)]
    try:
        rank = _without_coarse_order(Windows(problem, bound, first if problem.span else None, coarse=True), ranks, left)
        if rank is not None:
            return rank
        found = (
            _without_order(Windows(problem, bound, frame if problem.span else None), asked, left)
            for frame, asked in (frames if problem.span else [(0, ranks)])
        )
        return next((rank for rank in found if rank is not None), None)
    except _OutOfStepsError:
        return None


def narrow(windows: Windows) -> tuple[bool, int]:
    """Narrow the windows of all ranks within NARROW steps; return (whether every rank has an order, steps taken)."""
    left, ranks = [NARROW], sorted(set(windows.rank.values()), reverse=True)
    try:
        possible = _without_order(windows, ranks, left) is None
    except _OutOfStepsError:
        possible = True
    return possible, NARROW - left[0]


def _without_coarse_order(windows: Windows, ranks: Sequence[int], left: list[int]) -> int | None:
    """Return a rank without an order even if equal lines are merged; None if there is no such rank or only W merge."""
    for rank in ranks if any(line.op != Op.W for line in windows.inputs) else ():
        mine, times = _on(windows, rank)
        if not windows.possible() or len(_forward(windows, mine, times, windows.cap[rank], left)) < len(times[0]):
            return rank
    return None


def _without_order(windows: Windows, ranks: Sequence[int], left: list[int]) -> int | None:
    """Narrow the windows rank by rank until no window changes; return the first rank without an order, or None.

    left: the number of remaining steps.
    """
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            left[0] -= windows.spread()
            before = windows.of(rank)
            if not windows.possible() or not _programme(windows, rank, left):
                return rank
            moved |= windows.of(rank) != before
    return None


class _Step(NamedTuple):
    """All steps from counts of n operations to counts of n + 1.

    counts: the number of distinct counts of n operations. For each step, source, target: the indices of the counts
    before and after it; operation: the operation that it runs; start: the earliest start of this operation.
    """

    counts: int
    source: Column
    target: Column
    operation: Column
    start: Ints


def _programme(windows: Windows, rank: int, left: list[int]) -> bool:
    """Return True if the rank has an order; narrow its windows to the starts that occur in its orders."""
    mine, (low, high) = _on(windows, rank)
    length, work = (np.array([of[line] for line in mine]) for of in (windows.length, windows.work))
    steps = _forward(windows, mine, (low, high), windows.cap[rank], left)
    if len(steps) < len(low):
        return False
    takes = np.repeat(work, length)
    least, most, latest = np.full(len(low), -UNKNOWN), np.full(len(low), UNKNOWN), np.full(1, -UNKNOWN)
    for one in reversed(steps):
        until = np.minimum(latest[one.target] - takes[one.operation], high[one.operation])
        on = until >= one.start
        np.minimum.at(least, one.operation[on], one.start[on])
        np.maximum.at(most, one.operation[on], until[on])
        latest = np.full(one.counts, UNKNOWN)
        np.maximum.at(latest, one.source[on], until[on])
    for line, end in zip(mine, np.cumsum(length).tolist(), strict=True):
        windows.low[line], windows.high[line] = (x[end - windows.length[line] : end].tolist() for x in (least, most))
    return bool(latest[0] > UNKNOWN)


def _on(windows: Windows, rank: int) -> tuple[list[Line], tuple[Ints, Ints]]:
    """Return the lines of a rank, with their windows joined into one array."""
    mine = [line for line in windows.order if windows.rank[line] == rank]
    low, high = (np.array([x for line in mine for x in of[line]], dtype=np.int64) for of in (windows.low, windows.high))
    return mine, (low, high)


def _forward(
    windows: Windows, mine: list[Line], times: tuple[Ints, Ints], cap: int | None, left: list[int]
) -> list[_Step]:
    """Return all steps that are reachable from the counts at which no operation is done."""
    length, work, gains = (np.array([of[x] for x in mine]) for of in (windows.length, windows.work, windows.gains))
    if prod(windows.length[line] + 1 for line in mine) >= -UNKNOWN:
        raise _OutOfStepsError
    first, stride = np.cumsum(length) - length, np.cumprod([1, *(length + 1)])[:-1]
    low, high = times
    over = int((high[first + length - 1] + work).max(initial=UNKNOWN)) - int(work @ length)
    waits = [(q, one) for q, line in enumerate(mine) if (one := _waits(windows, mine, line))]
    counts, time, steps = np.zeros((len(mine), 1), dtype=np.int64), np.full(1, UNKNOWN), list[_Step]()
    for _ in range(int(length.sum())):
        may = counts < length[:, None]
        if cap is not None:
            may &= gains @ counts + np.maximum(gains, 0)[:, None] <= cap
        for q, before in waits:
            may[q] &= counts[before].sum(axis=0) > counts[q]
        line, source = np.nonzero(may)
        operation = first[line] + counts[line, source]
        start = np.maximum(time[source], low[operation])
        fits = (start <= high[operation]) & (start - (work @ counts)[source] <= over)
        line, source, operation, start = line[fits], source[fits], operation[fits], start[fits]
        if not len(start):
            break
        keys = (stride @ counts)[source] + stride[line]
        _, some, target = np.unique(keys, return_index=True, return_inverse=True)
        left[0] -= max(_AT_LEAST, len(keys))
        if left[0] < 0:
            raise _OutOfStepsError
        small = [x.astype(np.int32) for x in (source, target, operation)]
        steps.append(_Step(len(time), small[0], small[1], small[2], start))
        time = np.full(len(some), -UNKNOWN)
        np.minimum.at(time, target, start + work[line])
        counts = counts[:, source[some]]
        counts[line[some], np.arange(len(some))] += 1
    return steps


def _waits(windows: Windows, mine: list[Line], line: Line) -> list[int]:
    """Return the indices of the lines that `line` follows on its rank: its chain predecessor, or the I of a W."""
    if line in windows.inputs:
        return [mine.index(one) for one in windows.inputs[line]]
    if line.op == Op.W:
        return [q for q, one in enumerate(mine) if one == Line(Op.I, line.route, line.stage)]
    earlier = [x for x in mine[: mine.index(line)] if x.route == line.route and x.op != Op.W]
    return [mine.index(earlier[-1])] if earlier else []
