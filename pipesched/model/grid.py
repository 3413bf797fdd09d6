"""Exact numbers by stage and microbatch: integers over one common scale.

    F[s, i] = length[i] / 2          whole  6 8 3 7      a row per stage, a column per microbatch
    at lengths 6, 8, 3, 7            scale  6 8 3 7      2

A million entries are common, so they are stored in one array; equal rows or columns may share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import lcm
from operator import mul
from typing import Any

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints
from pipesched.model.numbers import plain, shown
from pipesched.support.record import Record

_WIDEST = 2**62


class Grid(Record):
    """The grid whole / scale. whole: int64, shape (stages, microbatches). scale: the smallest possible scale."""

    whole: Ints
    scale: int

    @classmethod
    def of(cls, rows: Iterable[Iterable[Fraction | int]]) -> Grid:
        """Return a grid of exact numbers, from rows of equal length.

        Raises:
            PipeschedError: PS222: the numbers need more than 62 bits.
        """
        listed = [list(row) for row in rows]
        made = np.array(listed)
        if made.dtype == np.int64:
            return cls(made, 1)
        scale = lcm(*{x.denominator for row in listed for x in row})
        widest = max((abs(x.numerator) * (scale // x.denominator) for row in listed for x in row), default=0)
        _require_narrow(widest)
        return cls(np.array([[int(x * scale) for x in row] for row in listed], dtype=np.int64), scale)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grid):
            return NotImplemented
        return self.scale == other.scale and np.array_equal(self.whole, other.whole)

    def __hash__(self) -> int:
        return hash((self.scale, self.whole.tobytes()))

    def __repr__(self) -> str:
        stages, microbatches = self.whole.shape
        return f"<Grid {self} of {stages} stages and {microbatches} microbatches>"

    def __str__(self) -> str:
        """Return the smallest and the largest value: ``3..8``."""
        return f"{shown(self.least)}..{shown(self.most)}"

    @property
    def least(self) -> Fraction:
        return Fraction(int(self.whole.min()), self.scale)

    @property
    def most(self) -> Fraction:
        return Fraction(int(self.whole.max()), self.scale)

    @property
    def even(self) -> bool:
        """True if all microbatches have the same values."""
        return bool((self.whole == self.whole[:, :1]).all())

    @property
    def column(self) -> tuple[Fraction, ...]:
        """For each stage, the value of the first microbatch."""
        return tuple(Fraction(x, self.scale) for x in self.whole[:, 0].tolist())

    def at(self, stage: int, microbatch: int) -> Fraction:
        """Return an entry; out-of-range indices count as the nearest one."""
        (row,), (column,) = (
            np.clip([x], 0, size - 1).tolist() for x, size in zip((stage, microbatch), self.whole.shape, strict=True)
        )
        return Fraction(int(self.whole[row, column]), self.scale)

    def each(self, function: Callable[[Any, Any], Any], other: Grid) -> Grid:
        """Apply `operator.add`, `sub` or `mul` entry by entry; a single row or column is repeated.

        Raises:
            PipeschedError: PS222: the result exceeds 62 bits.
        """
        shapes = zip(self.whole.shape, other.whole.shape, strict=True)
        rows, columns = (max(x, y) if 1 in (x, y) else min(x, y) for x, y in shapes)
        a, b, scale = self.whole[:rows, :columns], other.whole[:rows, :columns], self.scale * other.scale
        if function is not mul:
            scale = lcm(self.scale, other.scale)
            _require_narrow(self.most_whole * (scale // self.scale) + other.most_whole * (scale // other.scale))
            a, b = a * (scale // self.scale), b * (scale // other.scale)
        else:
            _require_narrow(self.most_whole * other.most_whole)
        return reduced(function(a, b), scale)

    @property
    def most_whole(self) -> int:
        return int(np.abs(self.whole).max(initial=0))

    def to_json(self) -> list[list[object]]:
        """Return a list of lists; equal rows may be one object."""
        if self.whole.strides[0] == 0:
            return [self._row(self.whole[0])] * len(self.whole)
        return [self._row(row) for row in self.whole]

    def _row(self, row: Ints) -> list[object]:
        if self.scale == 1:
            return list(row.tolist())
        known, which = np.unique(row, return_inverse=True)
        written = [plain(Fraction(x, self.scale)) for x in known.tolist()]
        return [written[i] for i in which.tolist()]


def reduced(whole: Ints, scale: int) -> Grid:
    """Return the grid in lowest terms."""
    rows = whole[:1] if whole.strides[0] == 0 else whole
    common = 1 if scale == 1 else int(np.gcd(np.gcd.reduce(rows, axis=None), scale)) or 1
    return Grid(whole if common == 1 else np.broadcast_to(rows // common, whole.shape), scale // common)


def alike(numbers: Sequence[Fraction]) -> Sequence[Fraction]:
    """Return only the first number if all are equal, otherwise all numbers."""
    return numbers[:1] if numbers and numbers.count(numbers[0]) == len(numbers) else numbers


def spread(numbers: Sequence[Fraction]) -> Grid:
    """Return a grid of one number per stage, equal for all microbatches."""
    one = alike(numbers)
    return _even(one[0], len(numbers)) if len(one) == 1 else Grid.of([x] for x in one)


@lru_cache(maxsize=256)
def _even(value: Fraction, stages: int) -> Grid:
    """Return a grid of one number, which all stages share."""
    made = Grid.of([[value]])
    return Grid(np.broadcast_to(made.whole, (stages, 1)), made.scale)


def _require_narrow(widest: int) -> None:
    if widest >= _WIDEST:
        raise fail(Code.COSTS, "a cost exceeds 62 bits", help="use fewer digits, or a larger unit")
