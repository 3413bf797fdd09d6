"""The encoding of memory as a comparison of two sums of counters.

At every t, on a rank:   taken by started operations  -  freed by ended operations   <=  cap

    "taken >= v"   must be true if it holds                one >= u and two >= v      ->   sum >= u + v
    "freed >= v"   must be false if it does not hold     one <= u and two <= v      ->   sum <= u + v
    cap            taken >= v  ->  freed >= v - cap

Each sum needs only one direction of implication, so adding two sums takes one clause per pair of values. At equal
times, releases precede allocations, since a rank can order its operations this way. These are the totalizers of
Bailleux and Boufkhad, CP 2003, with weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.solve.encoding.clauses import TRUE, Clauses, Encoding
from pipesched.optimizer.solve.problem import Problem


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum of counters. base: the least value; values: the further values, ascending; literals: "the sum is at least
    the value".
    """

    base: int
    values: Ints
    literals: Ints

    @property
    def most(self) -> int:
        return int(self.values[-1]) if len(self.values) else self.base

    def above(self) -> tuple[Ints, Ints]:
        """Return (v, literal of "at least v"), base included."""
        return np.concatenate([[self.base], self.values]), np.concatenate([[TRUE], self.literals])

    def below(self) -> tuple[Ints, Ints]:
        """Return (v, literal of "more than v")."""
        return np.concatenate([[self.base], self.values]), np.concatenate([self.literals, [-TRUE]])


_NONE = np.zeros(0, dtype=np.int64)


def memory(made: Encoding, rank: int) -> None:
    """Add clauses for the memory of one rank, for every t at which an operation can start or end."""
    problem = made.problem
    ops = np.concatenate([made.of(q) for q in problem.on[rank]])
    last = made.high[ops] + problem.duration[problem.sequence[ops]]
    sooner = takes_before(problem, rank)
    for t in range(int(made.low[ops].min()), int(last.max()) + 1):
        _at(made, rank, t, early=False)
        if sooner:
            _at(made, rank, t, early=True)


def join(made: Encoding, q: int, inputs: tuple[int, ...]) -> None:
    """Add clauses for: n operations of q start by t only if n operations of all inputs have ended by t."""
    low, high = made.low[made.of(q)], made.high[made.of(q)]
    for t in range(int(low.min(initial=0)), int(high.max(initial=0)) + 1):
        started = _counter(made, q, t, 1)
        ended = [_counter(made, i, t - int(made.problem.duration[i]), 1) for i in inputs]
        if started.most > sum(x.base for x in ended):
            _compare(made.clauses, started, _freed(made.clauses, ended, started.most), 0)


def takes_before(problem: Problem, rank: int) -> bool:
    """Return True if an end that takes memory can come just before an end that frees memory, at the same time.

    This happens if I takes memory at its end (release torch) and W has no duration; in between, that memory is held.
    """
    held = problem.on[rank]
    return any(problem.frees[q] < 0 for q in held) and any(
        problem.frees[q] > 0 and problem.duration[q] == 0 for q in held
    )


def _at(made: Encoding, rank: int, t: int, *, early: bool) -> None:
    """Add clauses for: taken - freed <= cap at t; early: just before the starts at t."""
    problem, cap = made.problem, int(made.problem.cap[rank])
    taken, freed = [], []
    for q in problem.on[rank]:
        d, frees = int(problem.duration[q]), int(problem.frees[q])
        if problem.takes[q]:
            taken.append(_counter(made, q, t - early, int(problem.takes[q])))
        if frees < 0:
            taken.append(_counter(made, q, t - d, -frees))
        elif frees:
            freed.append(_counter(made, q, t - max(d, int(early)), frees))
    floor = cap + sum(x.base for x in freed)
    ceiling = sum(x.most for x in taken) - cap
    if ceiling > floor - cap:
        _compare(made.clauses, _taken(made.clauses, taken, floor), _freed(made.clauses, freed, ceiling), cap)


def _counter(made: Encoding, q: int, t: int, weight: int) -> Sum:
    """Return weight times the number of operations of q that have started by t."""
    ops = made.of(q)
    sure = int(np.searchsorted(made.high[ops], t, side="right"))
    maybe = int(np.searchsorted(made.low[ops], t, side="right"))
    x = ops[sure:maybe]
    return Sum(sure * weight, weight * np.arange(sure + 1, maybe + 1), made.started(x, np.full(len(x), t)))


def _taken(clauses: Clauses, parts: list[Sum], floor: int) -> Sum:
    """Return the sum of the parts, with literals only for values above the floor."""
    total, rest = Sum(0, _NONE, _NONE), sum(x.most for x in parts)
    for part in parts:
        rest -= part.most
        total = _at_least(clauses, total, part, floor - rest)
    return total


def _freed(clauses: Clauses, parts: list[Sum], ceiling: int) -> Sum:
    """Return the sum of the parts, with literals only for values up to the ceiling."""
    total, rest = Sum(0, _NONE, _NONE), sum(x.base for x in parts)
    for part in parts:
        rest -= part.base
        total = _at_most(clauses, total, part, ceiling - rest)
    return total


def _shifted(total: Sum, by: int) -> Sum:
    return Sum(total.base + by, total.values + by, total.literals)


def _at_least(clauses: Clauses, one: Sum, two: Sum, floor: int) -> Sum:
    """Return a sum with clauses for one >= u, two >= v -> sum >= u + v; no literals for values up to the floor."""
    if not len(one.values) or not len(two.values):
        return _shifted(two, one.base) if not len(one.values) else _shifted(one, two.base)
    (u, of_one), (v, of_two) = one.above(), two.above()
    total = u[:, None] + v
    values = np.unique(total[total > max(floor, one.base + two.base)])
    literals = clauses.new(len(values))
    reached = np.concatenate([[TRUE], literals])[np.searchsorted(values, total, side="right")]
    clauses.add(-of_one[:, None], -of_two, reached)
    clauses.add(-literals[1:], literals[:-1])
    return Sum(one.base + two.base, values, literals)


def _at_most(clauses: Clauses, one: Sum, two: Sum, ceiling: int) -> Sum:
    """Return a sum with clauses for one <= u, two <= v -> sum <= u + v; values from the ceiling on share a literal."""
    if not len(one.values) or not len(two.values):
        return _shifted(two, one.base) if not len(one.values) else _shifted(one, two.base)
    (u, of_one), (v, of_two) = one.below(), two.below()
    total = u[:, None] + v
    values = np.unique(total)[1:]
    values = values[: np.searchsorted(values, ceiling) + 1]
    literals = clauses.new(len(values))
    passed = np.concatenate([literals, [-TRUE]])[np.searchsorted(values, total, side="right")]
    clauses.add(of_one[:, None], of_two, -passed)
    clauses.add(-literals[1:], literals[:-1])
    return Sum(one.base + two.base, values, literals)


def _compare(clauses: Clauses, taken: Sum, freed: Sum, cap: int) -> None:
    v, reached = taken.above()
    literal = np.concatenate([freed.literals, [-TRUE]])[np.searchsorted(freed.values, v - cap)]
    clauses.add(-reached, np.where(v - cap <= freed.base, TRUE, literal))
