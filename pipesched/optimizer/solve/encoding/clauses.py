"""Clauses as arrays with one column per literal, so that one expression builds many clauses; and the variables of an
encoding.

Literals are integers, as in DIMACS. TRUE and -TRUE are constants: a clause with a true literal is dropped, and a false
literal is removed from its clause. The start of an operation is a unary counter:

    t          low       ...        high
    y[x, t]    0 0 0 0 1 1 1 1 1 1 1 true      from low to high - 1 a variable; false before, true from then
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pipesched.model.columns import Bools, Column, Ints
from pipesched.optimizer.solve.problem import Problem

TRUE = np.int64(2**40)
_SLICE = 8192  # clauses converted to Python lists at a time


@dataclass(eq=False)
class Clauses:
    """Clauses. variables: count; blocks: int arrays, shape (clauses, literals); impossible: some clause is empty."""

    variables: int = 0
    blocks: list[Column] = field(default_factory=list)
    impossible: bool = False

    def new(self, count: int) -> Ints:
        """Create `count` new variables."""
        made = np.arange(self.variables + 1, self.variables + 1 + count)
        self.variables += count
        return made

    def add(self, *columns: Ints) -> None:
        """Add one clause per row; the columns of literals are broadcast against each other."""
        block = np.stack(np.broadcast_arrays(*columns), axis=-1).reshape(-1, len(columns))
        if (block == TRUE).any():
            block = block[(block != TRUE).all(axis=1)]
        false = block == -TRUE
        if not false.any():
            self._keep(block)
            return
        pattern = false @ (1 << np.arange(len(columns)))
        for bits in np.unique(pattern):
            left = [c for c in range(len(columns)) if not bits >> c & 1]
            self._keep(block[pattern == bits][:, left])

    def _keep(self, block: Ints) -> None:
        if not block.size:
            self.impossible |= bool(len(block))
        else:
            self.blocks.append(block.astype(np.int32))

    def count(self) -> int:
        """Return the number of clauses."""
        return sum(map(len, self.blocks)) + self.impossible

    def lists(self) -> Iterator[list[int]]:
        """Yield every clause as a list."""
        for block in self.blocks:
            for at in range(0, len(block), _SLICE):
                yield from block[at : at + _SLICE].tolist()
        if self.impossible:
            yield []

    def dimacs(self) -> Iterator[str]:
        """Yield the text of a DIMACS file, without comments, in pieces."""
        yield f"p cnf {self.variables} {self.count()}\n"
        for block in self.blocks:
            line = "%d " * block.shape[1] + "0\n"
            for at in range(0, len(block), _SLICE):
                part = block[at : at + _SLICE]
                yield (line * len(part)) % tuple(part.ravel().tolist())
        if self.impossible:
            yield "0\n"


Joins = tuple[tuple[int, tuple[int, ...]], ...]
"""(sequence, inputs): operation n of the sequence waits until a total of n operations of the inputs have ended."""


@dataclass(eq=False)
class Encoding:
    """The clauses for one C, with the variables of the counters.

    low, high: the earliest and the latest start, int64, shape (operations,). base: the variable of y[x, low[x]], which
    the variables of later t follow. joins: the sequences of merged W, see `reductions`.
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
        """Return the literal of "operation x has started by t"."""
        literal = self.base[x] + t - self.low[x]
        return np.where(t >= self.high[x], TRUE, np.where(t < self.low[x], -TRUE, literal))

    def of(self, q: int) -> Ints:
        """Return the operations of a sequence."""
        return np.arange(self.problem.first[q], self.problem.first[q + 1])

    def starts(self, true: Bools) -> Ints:
        """Return the start of every operation in a model; true: the values of the variables, shape (variables + 1,)."""
        x, _ = over(self.low, self.high)
        return self.low + np.bincount(x[~true[1 : self.counters + 1]], minlength=len(self.low))


def over(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return (index, step) for every entry and every step 0, 1, .. high - low - 1."""
    count = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
