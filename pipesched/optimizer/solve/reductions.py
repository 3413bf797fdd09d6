"""Reductions of a problem to a smaller, an equivalent or a coarser problem.

    restrict    some ranks only; the others run any number of operations at a time, without caps. An objective that
                these ranks alone cannot reach is unreachable: one rank, with its memory, its round trips and the
                heads and tails of the whole problem, often decides the optimum
    merge       the W of a rank as one sequence
    coarsened   durations as multiples of a number of ticks. Neither an order nor its memory depends on durations, so an
                order found for them is a schedule of the exact problem; its value is measured anew. If durations are
                rounded down, the starts of every exact schedule remain valid, so bounds are valid for both

No operation waits for a W. If all W of a rank have the same duration and free the same amount, the n-th W to start on
the rank can as well be the W of the n-th backward to end, whatever its stage: swapping two W changes no time and no sum
of memory. So one counter per rank suffices, instead of one counter per chunk:

    W of the rank: n started by t   ->   at least n of the rank's I have ended by t

This makes refutations with several chunks per rank three to ten times shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve.problem import COLUMNS, Problem


def _with(problem: Problem, kept: Ints, edges: Iterable[Ints]) -> Problem:
    """Reduce a problem to some of its sequences, with these edges (before, after, lag)."""
    before, after, lag = edges
    columns = {name: getattr(problem, name)[kept] for name in COLUMNS}
    return replace(problem, **columns, before=before, after=after, lag=lag)


def restrict(problem: Problem, ranks: Iterable[int]) -> tuple[Problem, Ints]:
    """Return (problem of only these ranks, with paths through other ranks as lags; numbers of the kept operations)."""
    kept = np.flatnonzero(np.isin(problem.rank, list(ranks)))
    number = {int(q): i for i, q in enumerate(kept)}
    follow: dict[int, list[tuple[int, int]]] = {}
    for b, a, lag in zip(problem.before.tolist(), problem.after.tolist(), problem.lag.tolist(), strict=True):
        follow.setdefault(b, []).append((a, lag))
    edges = []
    for q in kept.tolist():
        longest: dict[int, int] = {}
        open_paths = list(follow.get(q, ()))
        while open_paths:
            a, lag = open_paths.pop()
            if a in number:
                longest[a] = max(longest.get(a, 0), lag)
            else:
                open_paths += [(b, lag + int(problem.duration[a]) + more) for b, more in follow.get(a, ())]
        edges += [(number[q], number[a], lag) for a, lag in longest.items()]
    links = np.array(edges, dtype=np.int64).reshape(-1, 3).T.copy()
    part = _with(problem, kept, links)
    operations = np.concatenate(
        [np.arange(problem.first[q], problem.first[q + 1]) for q in kept] or [np.zeros(0, dtype=np.int64)]
    )
    return part, operations


@dataclass(frozen=True, eq=False)
class Merged:
    """A problem in which one sequence can represent all W of a rank, and the time windows of the operations.

    low, high: int64, shape (operations,). joins: pairs (sequence of merged W, sequences of I that it waits for).
    origin: for each sequence of the merged problem, the original sequences that it represents.
    """

    problem: Problem
    low: Ints
    high: Ints
    joins: tuple[tuple[int, tuple[int, ...]], ...]
    origin: tuple[tuple[int, ...], ...]

    def expanded(self, original: Problem, start: Ints) -> Ints:
        """Return the starts of the original operations, from the starts of the merged problem."""
        made = np.zeros(original.operations, dtype=np.int64)
        for q, sources in enumerate(self.origin):
            mine = start[self.problem.first[q] : self.problem.first[q + 1]]
            if len(sources) == 1:
                made[original.first[sources[0]] : original.first[sources[0] + 1]] = mine
        for q, inputs in self.joins:
            mine = start[self.problem.first[q] : self.problem.first[q + 1]]
            of = np.concatenate([_operations(self.problem, i) for i in inputs])
            weights = np.concatenate([_operations(original, w) for w in self.origin[q]])
            ends = start[of] + self.problem.duration[self.problem.sequence[of]]
            made[weights[np.lexsort((np.arange(len(of)), ends))]] = mine
        return made


def _operations(problem: Problem, q: int) -> Ints:
    return np.arange(problem.first[q], problem.first[q + 1])


def merge(problem: Problem, low: Ints, high: Ints) -> Merged:
    """Merge the W of ranks whose W are alike. The n-th merged W has the n-th smallest low and high of all W."""
    groups = _groups(problem)
    inside = {q for group in groups for q in group}
    origin = [(q,) for q in range(problem.sequences) if q not in inside] + groups
    number = {group[0]: i for i, group in enumerate(origin) if len(group) == 1}
    producer = dict(zip(problem.after.tolist(), problem.before.tolist(), strict=True))
    kept = np.flatnonzero(~np.isin(problem.after, list(inside)))
    renamed = np.array([number.get(q, -1) for q in range(problem.sequences)], dtype=np.int64)
    before, after = renamed[problem.before[kept]], renamed[problem.after[kept]]
    first = np.array([group[0] for group in origin], dtype=np.int64)
    part = _with(problem, first, (before, after, problem.lag[kept]))
    part = replace(part, length=np.array([problem.length[list(group)].sum() for group in origin], dtype=np.int64))
    merged = enumerate(groups, len(origin) - len(groups))
    joins = [(number_of, tuple(number[producer[w]] for w in group)) for number_of, group in merged]
    early = [_spread(_sorted(problem, group, low), problem, group) for group in origin]
    late = [-_spread(-_sorted(problem, group, high)[::-1], problem, group)[::-1] for group in origin]
    none = np.zeros(0, dtype=np.int64)
    return Merged(part, np.concatenate([none, *early]), np.concatenate([none, *late]), tuple(joins), tuple(origin))


def unmerged(problem: Problem, low: Ints, high: Ints) -> Merged:
    """Wrap a problem without merging any W."""
    return Merged(problem, low, high, (), tuple((q,) for q in range(problem.sequences)))


def _groups(problem: Problem) -> list[tuple[int, ...]]:
    """Return the sequences of W to merge: one group for each rank that has several sequences of W, all alike."""
    found = []
    for held in problem.on:
        weights = tuple(q for q in held if problem.op[q] == Op.W)
        alike = {(int(problem.duration[q]), int(problem.frees[q])) for q in weights}
        if len(weights) > 1 and len(alike) == 1:
            found.append(weights)
    return found


def _sorted(problem: Problem, group: Sequence[int], values: Ints) -> Ints:
    return np.sort(np.concatenate([values[_operations(problem, q)] for q in group]))


def _spread(times: Ints, problem: Problem, group: Sequence[int]) -> Ints:
    """Raise times until each one is at least a duration after the previous one."""
    steps = np.arange(len(times)) * int(problem.duration[group[0]])
    return np.asarray(np.maximum.accumulate(times - steps) + steps)


def coarsened(problem: Problem, ticks: int, *, down: bool = False) -> Problem:
    """Round durations and lags to the nearest multiple of `ticks`, or down; multiples of `ticks` become the unit.

    Durations above 0 become at least 1, unless they are rounded down. Lags may become 0.

    Raises:
        ValueError: if ticks < 1.
    """
    if ticks < 1:
        raise ValueError(f"a grid of {ticks} ticks")
    if down:
        duration, lag = problem.duration // ticks, problem.lag // ticks
    else:
        duration = np.where(problem.duration > 0, np.maximum(_rounded(problem.duration, ticks), 1), 0)
        lag = _rounded(problem.lag, ticks)
    return replace(problem, scale=problem.scale / ticks, duration=duration, lag=lag)


def grid(problem: Problem) -> int | None:
    """Return the largest number of ticks to whose multiples durations and lags can be rounded down with little loss;
    None if there is no such number, or if the end of an operation takes memory, which rounding would move earlier.
    """
    times = np.concatenate([problem.duration, problem.lag])
    count = np.bincount(times, np.concatenate([problem.length, problem.length[problem.after]]), 1)
    time = np.flatnonzero(count)
    ticks = np.arange(2, min(int(time.max(initial=0)), _FINEST) + 1)
    lost = (time[:, None] % ticks * count[time][:, None]).sum(axis=0)
    few = np.flatnonzero(lost <= _LOST * (time @ count[time]))
    return int(ticks[few[-1]]) if len(few) and not bool((problem.frees < 0).any()) else None


_LOST, _FINEST = 0.005, 50_000  # part of all times that rounding down may lose; the largest number of ticks tried


def _rounded(values: Ints, ticks: int) -> Ints:
    return (2 * values + ticks) // (2 * ticks)
