"""Ranks, one after another: is it certain that no schedule ends by C?

    time window   [low, high] of every start, from the longest paths
    rank          its sequences are chains of like operations, so an order is a path through counts, and memory is a
                  function of them:

                      T[counts] = the least time at which these can be done, over all orders within the cap

                  Every step starts within its time window; what lies on no path that is over by C leaves it.
    round         every rank, then the paths again: what became late on one rank is late on its neighbours

C is refuted if a time window is empty or no order is left. Microbatches of a route are alike, so each sequence keeps
their order. So are the W of a rank, where all take as long and free as much: the n-th of them all waits until n of
their I have ended. Budgeted in steps of the programme, so the answer is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pipesched.check.optimum_paths import UNKNOWN, Facts, Line
from pipesched.check.optimum_windows import Windows
from pipesched.model.ops import Op

STEPS = 1_000_000
"""How many steps from counts to counts are looked at before nothing is said."""

Counts: TypeAlias = tuple[int, ...]
Step: TypeAlias = tuple[Counts, Counts, int, int, int]
"""Counts before and after, the sequence, which operation of it, and its least start."""


class _OutOfStepsError(Exception):
    pass


def refutes(facts: Facts, bound: int, *, span: bool, steps: int = STEPS) -> bool:
    """Whether it is certain that the makespan, or the span, is more than `bound` ticks; False too if steps run out.

    A span of at most `bound` asks it of every rank in its own frame, and then of all ranks in the frame of each: what
    lies on paths from the first start of one rank to its last end has no more time than that.
    """
    ranks, left = sorted(set(facts.rank.values())), [steps]
    frames: list[tuple[int | None, list[int]]] = [(None, ranks)]
    if span:
        frames = [*((rank, [rank]) for rank in ranks), *((rank, ranks) for rank in ranks)]
    try:
        return any(_refuted(Windows(facts, bound, frame), asked, left) for frame, asked in frames)
    except _OutOfStepsError:
        return False


def _refuted(windows: Windows, ranks: Sequence[int], left: list[int]) -> bool:
    """Rounds over the ranks, until nothing moves; left: steps, counted down."""
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            left[0] -= windows.spread()
            before = windows.of(rank)
            if not windows.possible() or not _programme(windows, rank, left):
                return True
            moved |= windows.of(rank) != before
    return False


def _programme(windows: Windows, rank: int, left: list[int]) -> bool:
    """Whether the rank has an order; its windows become what its orders leave."""
    mine = [line for line in windows.order if windows.rank[line] == rank]
    work, gains = [windows.work[line] for line in mine], [windows.gains[line] for line in mine]
    low, high = [windows.low[line] for line in mine], [windows.high[line] for line in mine]
    waits, cap = [_waits(windows, mine, line) for line in mine], windows.facts.cap[rank]
    layer: dict[Counts, tuple[int, int]] = {(0,) * len(mine): (UNKNOWN, 0)}
    steps: list[list[Step]] = []
    for _ in range(sum(map(len, low))):
        following: dict[Counts, tuple[int, int]] = {}
        found: list[Step] = []
        for counts, (time, held) in layer.items():
            for q, i in enumerate(counts):
                if i == len(low[q]) or (cap is not None and held + max(0, gains[q]) > cap):
                    continue
                if waits[q] and sum(counts[x] for x in waits[q]) <= i:
                    continue
                start = max(time, low[q][i])
                if start <= high[q][i]:
                    then = (*counts[:q], i + 1, *counts[q + 1 :])
                    if then not in following or following[then][0] > start + work[q]:
                        following[then] = start + work[q], held + gains[q]
                    found.append((counts, then, q, i, start))
        left[0] -= len(found)
        if left[0] < 0:
            raise _OutOfStepsError
        layer = following
        steps.append(found)
    return _narrowed(low, high, work, layer, steps)


def _waits(windows: Windows, mine: list[Line], line: Line) -> list[int]:
    """Sequences of the same rank of which more must have begun: the one before in the chain, or the I of a W."""
    if line in windows.inputs:
        return [mine.index(one) for one in windows.inputs[line]]
    if line.op == Op.W:
        return [mine.index(Line(Op.I, line.route, line.stage))]
    earlier = [x for x in mine[: mine.index(line)] if x.route == line.route and x.op != Op.W]
    return [mine.index(earlier[-1])] if earlier else []


def _narrowed(
    low: list[list[int]],
    high: list[list[int]],
    work: list[int],
    final: dict[Counts, tuple[int, int]],
    steps: list[list[Step]],
) -> bool:
    """Backward: the latest time to be at counts, and of every operation the first and the last start on any order."""
    latest = dict.fromkeys(final, -UNKNOWN)
    first, last = [[-UNKNOWN] * len(x) for x in low], [[UNKNOWN] * len(x) for x in low]
    for found in reversed(steps):
        earlier: dict[Counts, int] = {}
        for counts, then, q, i, start in found:
            until = min(latest.get(then, UNKNOWN) - work[q], high[q][i])
            if until >= start:
                earlier[counts] = max(earlier.get(counts, UNKNOWN), until)
                first[q][i], last[q][i] = min(first[q][i], start), max(last[q][i], until)
        latest = earlier
    for q in range(len(low)):
        low[q][:], high[q][:] = first[q], last[q]
    return bool(latest)
