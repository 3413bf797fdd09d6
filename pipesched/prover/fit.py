"""Guess piecewise affine functions through given points, in exact numbers. The caller proves the guesses.

    if t <= 0:   p - 1
    else:        3 p - 3 - 2 r + 3 t

The case that holds for most points comes first; the rest is split in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import gcd, lcm

import numpy as np

from pipesched.model.columns import Bools, Ints
from pipesched.prover.presburger import spend

Weights = tuple[Fraction, ...]
CASES = 6
_STEPS = (-2, -1, 0, 1, 2)  # offsets between two values that are tried as thresholds of a case
_LARGEST = 10_000  # largest weight, and largest denominator of a weight
_NEAR = 0.01
_SIMPLE = 0.8  # factor on the number of a guard's points for each further name, where simple guards are preferred
_SOME = 2  # points for each column that are fitted first
_ZERO = 1e-9  # singular values that count as 0, as parts of the largest


@dataclass(frozen=True)
class Case:
    """An affine function that applies where all guards are at least 0. weights: the weights of the columns."""

    guards: tuple[tuple[int, ...], ...]
    weights: Weights


@dataclass(frozen=True, eq=False)
class Guard:
    """A condition ``columns @ weights >= 0``, and the points that satisfy it."""

    weights: tuple[int, ...]
    holds: Bools


def through(columns: Ints, values: Ints) -> Weights | None:
    """Return the affine function of the columns that takes these values, or None if there is none."""
    spend(len(values))
    if not len(values):
        return tuple([Fraction(0)] * int(columns.shape[1]))
    if (values == values[0]).all():
        return (Fraction(int(values[0])), *(Fraction(0),) * (columns.shape[1] - 1))
    real = columns.astype(np.float64)
    near = np.linalg.lstsq(real.T @ real, real.T @ values, rcond=None)[0]
    if np.abs(real @ near - values).max() > _NEAR:
        return None
    weights = _solved(columns.T @ columns, columns.T @ values)
    scale = lcm(*(weight.denominator for weight in weights))
    if scale > _LARGEST or any(abs(weight) > _LARGEST for weight in weights):
        return None
    whole = np.array([int(weight * scale) for weight in weights], dtype=np.int64)
    exact = bool((columns @ whole == values * scale).all())
    return tuple(weights) if exact else None


def _likely(columns: Ints, values: Ints, sides: Bools) -> Bools:
    """Return a mask of the sets in `sides` on which an affine function fits a few points, up to rounding."""
    found: Bools = np.asarray(sides.any(axis=1))
    some = _SOME * columns.shape[1]
    if not found.any():
        return found
    steps = np.arange(some)
    own = (np.flatnonzero(side) for side in sides[found])
    chosen = np.array([inside[steps * (len(inside) - 1) // (some - 1)] for inside in own])
    real, right = columns[chosen].astype(np.float64), values[chosen][:, :, np.newaxis]
    near = np.linalg.pinv(real, rcond=_ZERO) @ right
    found[found] = np.abs(real @ near - right).max(axis=(1, 2)) <= _NEAR
    return found


def _solved(matrix: Ints, right: Ints) -> list[Fraction]:
    """Return a solution of solvable equations; free unknowns are 0."""
    rows, pivots = _reduced(
        ([*row, x] for row, x in zip(matrix.tolist(), right.tolist(), strict=True)),
        matrix.shape[1],
    )
    found = [Fraction(0)] * matrix.shape[1]
    for equation, column in zip(rows, pivots, strict=False):
        found[column] = equation[-1]
    return found


def guards(columns: Ints, terms: Sequence[Sequence[int]]) -> list[Guard]:
    """Return the conditions ``a >= b + k`` for all pairs of terms, one for each set of points that they select."""
    found: dict[bytes, Guard] = {}
    for first, second in combinations(terms, 2):
        apart = np.array(first, dtype=np.int64) - np.array(second, dtype=np.int64)
        for step in _STEPS:
            weights = apart.copy()
            weights[0] += step
            holds = np.asarray(columns @ weights >= 0)
            if holds.all() or not holds.any():
                continue
            name = (holds if holds[0] else ~holds).tobytes()
            found.setdefault(name, Guard(tuple(weights.tolist()), holds))
    return list(found.values())


def cases(columns: Ints, values: Ints, known: Sequence[Guard], most: int = CASES) -> list[Case] | None:
    """Return a piecewise function through all points, or None if it would need too many cases with these guards. The
    search begins either with the guards that most points satisfy or with simple guards; of the two results, the
    function with fewer nonzero weights is chosen.
    """
    found = _cases(columns, values, known, most)
    if found is None or len(found) <= 2:
        return found
    both = filter(None, [found, _cases(columns, values, known, most, _SIMPLE)])
    return min(both, key=lambda of: sum(sum(map(bool, row)) for x in of for row in (*x.guards, x.weights)))


def _cases(columns: Ints, values: Ints, known: Sequence[Guard], most: int, simple: float = 1) -> list[Case] | None:
    if (found := through(columns, values)) is not None:
        return [Case((), found)]
    if most <= 1:
        return None
    held = np.array([g.holds for g in known], dtype=np.bool_).reshape(len(known), len(values))
    sides = np.vstack([held, ~held])
    spend(len(sides) * _SOME * columns.shape[1])
    likely = np.flatnonzero(_likely(columns, values, sides))
    names = np.array([sum(map(bool, g.weights[1:])) for g in known], dtype=np.int64)
    worth = sides[likely].sum(axis=1) * simple ** names[likely % max(1, len(known))]
    for at in likely[np.argsort(-worth, kind="stable")].tolist():
        inside = sides[at]
        if (found := through(columns[inside], values[inside])) is None:
            continue
        own = known[at % len(known)].weights
        weights, other = (own, _not(own)) if at < len(known) else (_not(own), own)
        left = [Guard(g.weights, side) for g, side in zip(known, held[:, ~inside], strict=True)]
        rest = _cases(columns[~inside], values[~inside], left, most - 1, simple)
        if rest is None:
            return None
        return [Case((weights,), found), *(Case((other, *each.guards), each.weights) for each in rest)]
    return None


def _not(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Return the negation of a guard."""
    return (-weights[0] - 1, *(-x for x in weights[1:]))


def _reduced(equations: Iterable[Sequence[Fraction | int]], unknowns: int) -> tuple[list[list[Fraction]], list[int]]:
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
