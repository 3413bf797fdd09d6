"""Narrows the time windows of a rank to the starts that occur in some order, and then the windows of other ranks.

    state   the number of operations of each sequence of the rank that are done
    T       the earliest time at which a state can be reached        from the states with one operation fewer
    U       the latest time at which a state can be left             from the states with one operation more

The sequences of a rank are chains of like operations, so its orders are the paths through a lattice of counts, most of
which a cap removes. In every order, the time at a state is at least T. One pass decides whether the rank can do its
work at all, given the heads and tails of the whole problem, the rank's memory and its own precedences; it also gives
each operation a time window. The lattice lacks the delays of paths through other ranks, which heads and tails include.
A narrower window on one rank changes the heads and tails of other ranks, so this is repeated (`tighten`):

    rank by rank: time windows by its lattice ──> longest paths ──> the next rank

The pass either narrows the time windows without losing a schedule, or shows that no schedule exists. With several
chunks per rank, this yields the best lower bounds: on a folded placement, the last rank alone often decides the
optimum, since no other rank delays its chunks. Most refutable objectives are refuted here in the time it takes to write
the clauses; for other objectives, fewer clauses remain. This is dynamic programming over subsets (Held and Karp, 1962),
with counts instead of subsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.solve.bounds.longest_paths import Link, links, longest, longest_from
from pipesched.optimizer.solve.problem import Problem
from pipesched.optimizer.solve.reductions import Merged, restrict

MOST = 400_000  # most states of one rank; with more, its windows do not change
_LATE = np.int64(2**60)


@dataclass(frozen=True, eq=False)
class Rank:
    """The sequences of one rank, numbered from 0.

    For each sequence: first, the number of its first operation; length, the number of its operations; duration, the
    time of one operation; peak, the most that an operation adds to held memory while it runs; change, the amount that
    remains added after its end. before: pairs (q, b): operation i of q comes after operation i of b. joins: pairs (q,
    inputs): operation i of q comes after i + 1 operations of all inputs together.
    """

    first: Ints
    length: Ints
    duration: Ints
    peak: Ints
    change: Ints
    cap: int
    before: tuple[tuple[int, int], ...]
    joins: tuple[tuple[int, tuple[int, ...]], ...]

    @cached_property
    def stride(self) -> Ints:
        """For each sequence, the amount by which one more operation changes the number of a state."""
        return np.concatenate([[1], np.cumprod(self.length + 1)[:-1]])

    @property
    def numbered(self) -> bool:
        """True if the numbers of all states fit in 64 bits."""
        return float(np.prod(self.length + 1.0)) < 2.0**62

    def next(self, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (state, sequence, operation) for every operation that can run next."""
        counts = keys // self.stride[:, None] % (self.length[:, None] + 1)
        may = counts < self.length[:, None]
        may &= self.change @ counts + self.peak[:, None] <= self.cap
        for after, b in self.before:
            may[after] &= counts[b] > counts[after]
        for after, inputs in self.joins:
            may[after] &= counts[list(inputs)].sum(axis=0) > counts[after]
        q, state = np.nonzero(may)
        return state, q, self.first[q] + counts[q, state]


def alone(merged: Merged, rank: int) -> Rank:
    """Return the sequences of one rank, with the precedences between them."""
    problem = merged.problem
    held = list(problem.on[rank])
    number = {q: i for i, q in enumerate(held)}
    part, _ = restrict(problem, (rank,))
    change = problem.takes[held] - problem.frees[held]
    return Rank(
        problem.first[held],
        problem.length[held],
        problem.duration[held],
        np.maximum(problem.takes[held], change),
        change,
        cap=int(problem.cap[rank]),
        before=tuple(zip(part.after.tolist(), part.before.tolist(), strict=True)),
        joins=tuple((number[q], tuple(number[i] for i in inputs)) for q, inputs in merged.joins if q in number),
    )


def between(rank: Rank, low: Ints, high: Ints) -> tuple[Ints, Ints] | None:
    """Return the (earliest, latest) starts at which this rank can do its work; None if it cannot do its work.

    With more than MOST states, low and high are returned unchanged. rank: the result of `alone`. low, high: for every
    operation of the problem, the earliest start by heads and the latest start by tails.
    """
    steps = forward(rank, low, high)
    if steps is None:
        return low, high
    return backward(rank, steps, low, high) if len(steps) == rank.length.sum() else None


@dataclass(frozen=True, eq=False)
class Step:
    """All steps from states with n operations done to states with n + 1.

    states: the number of states with n operations done. source, target: indices of the states before and after a step.
    q, x: the sequence and the operation. soonest: the earliest start of x at the source state.
    """

    states: int
    source: Ints
    target: Ints
    q: Ints
    x: Ints
    soonest: Ints


def forward(rank: Rank, low: Ints, high: Ints) -> list[Step] | None:
    """Return all steps between states that occur in some order; None if there are too many states."""
    if not rank.numbered:
        return None
    keys, time, states = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), 1
    steps: list[Step] = []
    for _ in range(int(rank.length.sum())):
        source, q, x = rank.next(keys)
        soonest = np.maximum(time[source], low[x])
        fits = np.flatnonzero(soonest <= high[x])
        if not len(fits):
            break
        source, q, x, soonest = source[fits], q[fits], x[fits], soonest[fits]
        reached = keys[source] + rank.stride[q]
        order = np.argsort(reached, kind="stable")
        reached = reached[order]
        new = np.concatenate([[True], reached[1:] != reached[:-1]])
        target = np.empty(len(order), dtype=np.int64)
        target[order] = np.cumsum(new) - 1
        steps.append(Step(len(keys), source, target, q, x, soonest))
        keys, time = reached[new], np.minimum.reduceat((soonest + rank.duration[q])[order], np.flatnonzero(new))
        states += len(keys)
        if states > MOST:
            return None
    return steps


def backward(rank: Rank, steps: list[Step], low: Ints, high: Ints) -> tuple[Ints, Ints] | None:
    """Return the earliest and latest starts over all orders that end in time; None if no order ends in time."""
    least, most = low.copy(), high.copy()
    for first, length in zip(rank.first.tolist(), rank.length.tolist(), strict=True):
        least[first : first + length], most[first : first + length] = _LATE, -_LATE
    late = np.full(1, _LATE)
    for step in reversed(steps):
        last = np.minimum(late[step.target] - rank.duration[step.q], high[step.x])
        alive = np.flatnonzero(step.soonest <= last)
        source, x, last = step.source[alive], step.x[alive], last[alive]
        np.minimum.at(least, x, step.soonest[alive])
        np.maximum.at(most, x, last)
        late = np.full(step.states, -_LATE)
        np.maximum.at(late, source, last)
    return (least, most) if late[0] > -_LATE else None


_ENOUGH = 0.1  # fraction of the time windows; a round that removes less is the last
_SWEEPS = 4  # how often per round narrower windows are passed on to the other ranks


def merged_links(original: Problem, merged: Merged) -> list[Link]:
    """Return the links of the merged problem: between sequences that are not merged, and within each merged one."""
    number = {group[0]: q for q, group in enumerate(merged.origin) if len(group) == 1}
    made = [
        Link(number[x.later], number[x.earlier], x.offset, x.delay)
        for x in links(original)
        if x.later in number and x.earlier in number
    ]
    return made + [Link(q, q, 1, int(merged.problem.duration[q])) for q, _ in merged.joins]


def tighten(merged: Merged, paths: Sequence[Link], bound: int) -> Merged | None:
    """Narrow the time windows; return None if they contain no schedule.

    Args:
        merged: a problem, and valid time windows for the bound.
        paths: the links of the merged problem, from `merged_links`.
        bound: the objective, in ticks.
    """
    problem, low, high = merged.problem, merged.low, merged.high
    order = range(problem.ranks)[::-1]
    often = -(-len(order) // _SWEEPS)
    views = {rank: alone(merged, rank) for rank in order}
    width, before = int((high - low).sum()), 0
    while width != before:
        for number, rank in enumerate(order, start=1):
            found = between(views[rank], low, high)
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
    """Update the windows by longest paths; the n-th W of a rank starts no sooner than the n-th end of its I."""
    length, first, duration = merged.problem.length, merged.problem.first, merged.problem.duration
    low = longest(length, list(paths), low)
    for q, inputs in merged.joins:
        ends = np.concatenate([low[first[i] : first[i + 1]] + duration[i] for i in inputs])
        low[first[q] : first[q + 1]] = np.maximum(low[first[q] : first[q + 1]], np.sort(ends))
    return low, bound - longest_from(length, list(paths), bound - high)
