"""The seam, at which a small schedule can be extended to every number of microbatches.

Let n_q(t) be the number of operations of sequence q that have started by t. If for every q

    n_q(t + P) = n_q(t) + K     for all t in  seam - A - 1 .. seam - 1,     A >= P + the longest duration and lag

then the operations of the P ticks before the seam can be repeated there j times: every constraint compares counters at
times at most A apart, and the comparisons are the same across each copy. The result runs jK additional microbatches and
ends jP ticks later:

    before ........ | kernel | after          m0 microbatches,      C ticks
    before ........ | kernel | kernel | kernel | after    m0 + 2K,  C + 2P

If C is a lower bound at m0 that consists of the first operations' heads, all the work of a rank, and the last
operations' tails, it grows by exactly the rank's work with each microbatch; if P is K times this work, the schedule is
optimal for every m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.problem import Orders, Problem, Repeat

MOST_PER_KERNEL = 4  # most microbatches of a kernel


@dataclass(frozen=True, eq=False)
class Seam:
    """A schedule of m0 microbatches that can be extended at the seam. every: K, the microbatches per `period` ticks.

    before, kernel, after: for each rank, the sequence of each operation; the kernel is the last `period` ticks of
    `before`. value: the objective at m0, in ticks. at: the time of the seam; start: the starts of the operations at m0.
    """

    microbatches: int
    every: int
    period: int
    value: int
    before: tuple[tuple[int, ...], ...]
    kernel: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    at: int
    start: Ints

    def words(self, copies: int) -> list[list[int]]:
        """Return, for each rank, the sequence of each operation in order, for m0 + copies * K microbatches."""
        parts = zip(self.before, self.kernel, self.after, strict=True)
        return [[*before, *kernel * copies, *after] for before, kernel, after in parts]

    def unrolled(self, problem: Problem) -> Orders:
        """Return the orders for the problem of m0 + jK microbatches."""
        copies, rest = divmod(problem.placement.microbatches - self.microbatches, self.every)
        if copies < 0 or rest:
            raise ValueError("no number of kernel copies yields this number of microbatches")
        return [_numbered(problem, word) for word in self.words(copies)]


def _numbered(problem: Problem, word: list[int]) -> list[int]:
    """Return the operation numbers of a word of sequences, with each sequence in microbatch order."""
    letters = np.array(word, dtype=np.int64)
    order = np.argsort(letters, kind="stable")
    ranks = np.empty(len(letters), dtype=np.int64)
    ranks[order] = np.arange(len(letters)) - np.searchsorted(letters[order], letters[order])
    numbers: list[int] = (problem.first[letters] + ranks).tolist()
    return numbers


def reach(problem: Problem) -> int:
    """Return the longest time between two starts that a constraint compares."""
    duration = int(problem.duration.max(initial=0))
    return max(duration, int((problem.duration[problem.before] + problem.lag).max(initial=0)))


def middle(problem: Problem, bound: int, every: int, period: int) -> Repeat:
    """Return the part that an engine must repeat, around the middle of a schedule of `bound` ticks."""
    length = period + reach(problem)
    seam = (bound + length - period) // 2
    return Repeat(seam - length - 1, seam - 1, every, period)


def find_seam(problem: Problem, start: Ints) -> Seam | None:
    """Find a seam in the starts of a schedule, if the schedule repeats somewhere, shortest kernel first."""
    for every in range(1, MOST_PER_KERNEL + 1):
        for period in _periods(problem, start, every):
            seam = _seam_at(problem, start, every, period)
            if seam is not None:
                return cut(problem, start, seam, every, period)
    return None


def _periods(problem: Problem, start: Ints, every: int) -> list[int]:
    """Return the candidates for the period: times between operations K apart in the middle of a sequence."""
    found = set()
    for a, b in pairwise(problem.first.tolist()):
        middle = (a + b - every) // 2
        if b - a > every:
            found.add(int(start[middle + every] - start[middle]))
    return sorted(x for x in found if x > 0)


def _seam_at(problem: Problem, start: Ints, every: int, period: int) -> int | None:
    """Return the time at which the schedule can be cut, or None."""
    length = period + reach(problem)
    tables = [start[a:b] for a, b in pairwise(problem.first.tolist())]
    good = _repeats(tables, every, period)
    for low, high in good:
        if high - low >= length:
            return high + 1
    return None


def _repeats(tables: list[Ints], every: int, period: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of t with n_q(t + period) = n_q(t) + every for all q, as (first, last), the longest first.

    Each n_q changes only at starts, so one t between two changes decides for all t between them, however fine the ticks
    are.
    """
    end = max(int(table[-1]) for table in tables if len(table)) + 1
    changes = np.unique(np.concatenate([[-1, end + 1], *tables, *(table - period for table in tables)]))
    edge = changes[(changes >= -1) & (changes <= end + 1)]
    t = edge[:-1]
    good = np.ones(len(t), dtype=np.bool_)
    for table in tables:
        count = np.searchsorted(table, t, side="right")
        good &= np.searchsorted(table, t + period, side="right") == count + every
    edges = np.flatnonzero(np.diff(np.concatenate([[0], good.astype(np.int8), [0]])))
    runs = zip(edge[edges[::2]].tolist(), edge[edges[1::2]].tolist(), strict=True)
    return ((first, after - 1) for first, after in sorted(runs, key=lambda run: run[0] - run[1]))


def cut(problem: Problem, start: Ints, seam: int, every: int, period: int) -> Seam:
    """Cut a schedule at a time into words: before the cut, the kernel (the last period before it), and after it."""
    orders = convert.by_start(problem, start)
    words = [[(int(problem.sequence[x]), int(start[x])) for x in order] for order in orders]
    return Seam(
        problem.placement.microbatches,
        every,
        period,
        problem.value(start),
        tuple(tuple(q for q, t in word if t < seam) for word in words),
        kernel=tuple(tuple(q for q, t in word if seam - period <= t < seam) for word in words),
        after=tuple(tuple(q for q, t in word if t >= seam) for word in words),
        at=seam,
        start=start,
    )


def holds(seam: Seam, problem_of: Callable[[int], Problem], copies: int) -> bool:
    """Return True if a schedule with this many copies is valid, and each copy adds at most `period` ticks."""
    problem = problem_of(seam.microbatches + copies * seam.every)
    value = convert.value(problem, seam.unrolled(problem))
    return value is not None and value <= seam.value + copies * seam.period
