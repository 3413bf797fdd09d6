"""Gaussian elimination in exact numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd, lcm


def reduced(equations: Iterable[Sequence[Fraction | int]], unknowns: int) -> tuple[list[list[Fraction]], list[int]]:
    """Return the equations in reduced row echelon form, and the pivot column of each.

    Internally, each equation is scaled to small whole numbers.
    """
    rows, pivots = [_whole(row) for row in equations], list[int]()
    for column in range(unknowns):
        at = len(pivots)
        pivot = next((k for k in range(at, len(rows)) if rows[k][column]), None)
        if pivot is None:
            continue
        rows[at], rows[pivot] = rows[pivot], rows[at]
        own = rows[at]
        for k, other in enumerate(rows):
            if k != at and (factor := other[column]):
                made = [x * own[column] - factor * y for x, y in zip(other, own, strict=True)]
                common = gcd(*made) or 1
                rows[k] = [x // common for x in made]
        pivots.append(column)
    leads = [row[column] for row, column in zip(rows, pivots, strict=False)]
    return [[Fraction(x, lead) for x in row] for row, lead in zip(rows, leads, strict=False)], pivots


def _whole(row: Sequence[Fraction | int]) -> list[int]:
    scale = lcm(*(x.denominator for x in row))
    return [int(x * scale) for x in row]
