"""The variables: when every operation has started, as a unary counter.

t          low       ...        high
y[x, t]    0 0 0 0 1 1 1 1 1 1 1 true      from low to high - 1 a variable; false before, true from then
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pipesched.model.columns import Bools, Ints
from pipesched.optimizer.encoding.clauses import TRUE, Clauses
from pipesched.optimizer.problem import Problem

Joins = tuple[tuple[int, tuple[int, ...]], ...]
"""(sequence, sequences): the n-th operation of the first starts when n of the others, all told, have ended."""


@dataclass(eq=False)
class Encoding:
    """The clauses for one C, and where the counters are.

    low, high: the earliest and the latest start, int64, shape (operations,). base: the variable of y[x, low[x]]; those
    of one operation follow each other. joins: the sequences of merged W, see `merge`.
    """

    problem: Problem
    low: Ints
    high: Ints
    joins: Joins = ()
    clauses: Clauses = field(default_factory=Clauses)

    def __post_init__(self) -> None:
        width = np.maximum(self.high - self.low, 0)
        self.base = 1 + np.cumsum(width) - width
        self.counters = self.clauses.variables = int(width.sum())

    def started(self, x: Ints, t: Ints) -> Ints:
        """The literal of "operation x has started by t"."""
        literal = self.base[x] + t - self.low[x]
        return np.where(t >= self.high[x], TRUE, np.where(t < self.low[x], -TRUE, literal))

    def of(self, q: int) -> Ints:
        """The operations of a sequence."""
        return np.arange(self.problem.first[q], self.problem.first[q + 1])

    def starts(self, true: Bools) -> Ints:
        """The start of every operation in a model; true: by variable, shape (variables + 1,)."""
        x, _ = over(self.low, self.high)
        return self.low + np.bincount(x[~true[1 : self.counters + 1]], minlength=len(self.low))


def over(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """(which, step): every entry, with 0, 1, .. high - low - 1."""
    count = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
