"""What every rank alone learns, handed on to the others, until nothing new comes.

    rank by rank: times between which each operation can start (`lattice`) ──> longest paths ──> the next rank

The result is narrower windows that lose no schedule, or that there is none. This refutes most of what can be refuted
where ranks have several chunks, in the time in which clauses are written; what is left has fewer of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.bounds import lattice, windows
from pipesched.optimizer.bounds.memory_links import Link
from pipesched.optimizer.encoding.merge import Merged, merge
from pipesched.optimizer.problem import Problem

_ENOUGH = 0.1  # of the windows: a round that takes off less is the last
_SWEEPS = 4  # how often in a round what was learnt is handed on


def links(original: Problem, merged: Merged) -> list[Link]:
    """The links of the merged problem: those of the original between sequences that are still there, and orders."""
    number = {group[0]: q for q, group in enumerate(merged.origin) if len(group) == 1}
    made = [
        Link(number[x.later], number[x.earlier], x.offset, x.delay)
        for x in windows.links(original)
        if x.later in number and x.earlier in number
    ]
    return made + [Link(q, q, 1, int(merged.problem.duration[q])) for q, _ in merged.joins]


def tighten(
    merged: Merged, paths: Sequence[Link], bound: int, ranks: Iterable[int] | None = None, *, most: int = lattice.MOST
) -> Merged | None:
    """The same with narrower windows; None if no schedule is within them.

    Args:
        merged: a problem, and windows that are right for the bound.
        paths: its `links`.
        bound: the objective, in ticks.
        ranks: these only, in this order; the last first, if not given.
        most: states of a rank beyond which it is left alone.
    """
    problem, low, high = merged.problem, merged.low, merged.high
    order = tuple(reversed(range(problem.ranks)) if ranks is None else ranks)
    often = -(-len(order) // _SWEEPS)
    views = {rank: lattice.alone(merged, rank) for rank in order}
    width, before = int((high - low).sum()), 0
    while width != before:
        for number, rank in enumerate(order, start=1):
            found = lattice.between(views[rank], low, high, most)
            if found is None:
                return None
            low, high = found
            if number % often == 0 or number == len(order):
                low, high = _handed_on(merged, paths, bound, low, high)
                if bool((high < low).any()):
                    return None
        before, width = width, int((high - low).sum())
        if before - width <= _ENOUGH * before:
            break
    return Merged(problem, low, high, merged.joins, merged.origin)


def _handed_on(merged: Merged, paths: Sequence[Link], bound: int, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Heads and tails by longest paths; the n-th W of a rank not before the n-th end of its I."""
    length, first, duration = merged.problem.length, merged.problem.first, merged.problem.duration
    low = windows.longest(length, list(paths), low)
    for q, inputs in merged.joins:
        ends = np.concatenate([low[first[i] : first[i + 1]] + duration[i] for i in inputs])
        low[first[q] : first[q + 1]] = np.maximum(low[first[q] : first[q + 1]], np.sort(ends))
    return low, bound - windows.longest_from(length, list(paths), bound - high)


def refuted(problem: Problem, bound: int, ranks: Iterable[int] | None = None) -> bool:
    """Whether ranks alone show that no schedule has objective <= bound; False if they do not show it."""
    chosen = None if ranks is None else tuple(ranks)
    low, high = windows.within(problem, bound)
    if bool((high < low).any()):
        return True
    merged = merge(problem, low, high)
    return tighten(merged, links(problem, merged), bound, chosen) is None


def least(problem: Problem, at_least: int, ranks: Iterable[int] | None = None) -> int:
    """No schedule has less: the least bound from `at_least` on that ranks alone do not refute.

    With one rank given, that rank alone proves it: heads and tails by longest paths, and its states. Where there is
    no schedule at all, the bound is at most that of one operation after the other.
    """
    chosen = None if ranks is None else tuple(ranks)
    horizon = int((problem.duration * problem.length).sum() + (problem.lag * problem.length[problem.after]).sum())
    low, step = at_least - 1, 1
    while low < horizon and refuted(problem, low + step, chosen):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if refuted(problem, middle, chosen) else (low, middle)
    return high
