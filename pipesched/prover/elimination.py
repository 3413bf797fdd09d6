"""Gaussian elimination in exact numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction


def reduced(equations: Iterable[Sequence[Fraction]], unknowns: int) -> tuple[list[list[Fraction]], list[int]]:
    """Return the equations in reduced row echelon form, and the pivot column of each."""
    rows, pivots = [list(row) for row in equations], list[int]()
    for column in range(unknowns):
        at = len(pivots)
        pivot = next((k for k in range(at, len(rows)) if rows[k][column]), None)
        if pivot is None:
            continue
        rows[at], rows[pivot] = rows[pivot], rows[at]
        lead = rows[at][column]
        rows[at] = [x / lead for x in rows[at]]
        for k, other in enumerate(rows):
            if k != at and other[column]:
                factor = other[column]
                rows[k] = [x - factor * y for x, y in zip(other, rows[at], strict=True)]
        pivots.append(column)
    return rows, pivots
