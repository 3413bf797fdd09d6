"""Clauses as arrays: a literal a column, so that a million are one expression.

Literals are those of DIMACS. TRUE and -TRUE stand for what is known; a clause with a true literal is none, and a false
literal is left out of its clause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pipesched.model.columns import Column, Ints

TRUE = np.int64(2**40)
_SLICE = 8192  # clauses that are Python lists at one time


@dataclass(eq=False)
class Clauses:
    """variables: 1 .. variables. blocks: int arrays, shape (clauses, literals). impossible: some clause is empty."""

    variables: int = 0
    blocks: list[Column] = field(default_factory=list)
    impossible: bool = False

    def new(self, count: int) -> Ints:
        """So many new variables."""
        made = np.arange(self.variables + 1, self.variables + 1 + count)
        self.variables += count
        return made

    def add(self, *columns: Ints) -> None:
        """A clause a row; columns are broadcast against each other."""
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
        """How many clauses."""
        return sum(map(len, self.blocks)) + self.impossible

    def lists(self) -> Iterator[list[int]]:
        """Every clause."""
        for block in self.blocks:
            for at in range(0, len(block), _SLICE):
                yield from block[at : at + _SLICE].tolist()
        if self.impossible:
            yield []

    def dimacs(self) -> Iterator[str]:
        """The lines of a DIMACS file, its comments left to the caller, in pieces."""
        yield f"p cnf {self.variables} {self.count()}\n"
        for block in self.blocks:
            line = "%d " * block.shape[1] + "0\n"
            for at in range(0, len(block), _SLICE):
                part = block[at : at + _SLICE]
                yield (line * len(part)) % tuple(part.ravel().tolist())
        if self.impossible:
            yield "0\n"
