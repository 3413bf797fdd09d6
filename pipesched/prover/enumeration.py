"""Points of small sets, and values of expressions at points, as arrays; a row begins with the point's parameters.

    { [p, r, i] : 0 <= r < p and 0 <= i < p - r }

Each column ranges between bounds that depend on the columns before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipesched.model.columns import Bools, Ints
from pipesched.prover.presburger import Affine, PwAff, Set, Space, TooHard, Value, coefficients, isl, spend

POINTS = 60_000  # most points of a set
_TRIED = 16 * POINTS  # most points at which its conditions are decided
_A_POINT = 100  # steps charged for each point


def points(of: Set, sizes: Ints) -> Ints:
    """Return the points of a set at the given sizes, in lexicographic order. sizes: one row of parameters per size.

    Raises:
        TooHard: the set has too many points.
    """
    parts = of.compute_divs().get_basic_sets()
    width = sizes.shape[1] + of.dim(isl().dim_type.set)
    found = np.vstack([np.zeros((0, width), dtype=np.int64), *(_points(part, sizes) for part in parts)])
    found = np.unique(found, axis=0)
    if len(found) > POINTS:
        raise TooHard
    spend(_A_POINT * len(found))
    return found


def values(of: PwAff, rows: Ints) -> Ints:
    """Return the values of an expression at points in its domain. A value that is not whole is rounded down."""
    made = np.zeros(len(rows), dtype=np.int64)
    for where, value in of.get_pieces():
        inside = np.zeros(len(rows), dtype=np.bool_)
        for part in where.compute_divs().get_basic_sets():
            inside |= _inside(part, rows)
        made[inside] = _floor(value, _with_quotients(value, rows[inside]))
    return made


def at(space: Space, value: Value, rows: Ints) -> list[int]:
    """Return the values of a number at points; in base p, p is the first parameter."""
    if isinstance(value, int):
        return [value] * len(rows)
    total = np.zeros(len(rows), dtype=np.int64)
    for digit in space.digits(value):
        total = total * rows[:, 0] + values(digit, rows)
    return total.tolist()


def _points(part: Affine, rows: Ints) -> Ints:
    """Return the points of a set that consists of one piece, at the given sizes."""
    limits, first = [*_limits(part)], rows.shape[1]
    for weights in limits:
        if not weights[first + 1 :].any():
            rows = rows[rows @ weights[1 : first + 1] + weights[0] >= 0]
    for column in range(first, first + part.dim(isl().dim_type.set)):
        if len(rows):
            low, high = _ends(part, rows, column - first, [x for x in limits if not x[column + 2 :].any()])
            counts = np.maximum(high - low + 1, 0)
            if counts.sum() > _TRIED:
                raise TooHard
            steps = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
            rows = np.repeat(np.column_stack([rows, low]), counts, axis=0)
            rows[:, column] += steps
    return rows[_inside(part, rows)] if len(rows) else np.zeros((0, first + part.dim(isl().dim_type.set)), np.int64)


def _ends(part: Affine, rows: Ints, dimension: int, limits: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the least and the largest value of a dimension in each row, or over all rows if the dimension has no
    limit.
    """
    lows, highs = [], []
    for weights in limits:
        own, rest = int(weights[rows.shape[1] + 1]), rows @ weights[1 : rows.shape[1] + 1] + weights[0]
        if own > 0:
            lows.append(-(rest // own))
        elif own < 0:
            highs.append(rest // -own)
    if not (lows and highs):
        kind, within = isl().dim_type, isl().Set.from_basic_set(part)
        for k in range(rows.shape[1]):
            at = (kind.param, k) if k < rows.shape[1] - dimension else (kind.set, k - rows.shape[1] + dimension)
            within = within.lower_bound_val(*at, int(rows[:, k].min())).upper_bound_val(*at, int(rows[:, k].max()))
        if within.is_empty():
            return np.zeros(len(rows), np.int64), np.full(len(rows), -1)
        for found, end in ((lows, within.dim_min_val(dimension)), (highs, within.dim_max_val(dimension))):
            if not end.is_int():
                raise TooHard
            found.append(np.full(len(rows), end.to_python()))
    return np.max(lows, axis=0), np.min(highs, axis=0)


def _limits(part: Affine) -> Iterator[Ints]:
    """Yield a set's conditions that have no quotients, as the weights of 1 and of each column; the weighted sum is at
    least 0.
    """
    kind = isl().dim_type
    width = 1 + part.dim(kind.param) + part.dim(kind.set)
    for each in part.get_constraints():
        if not any(coefficients(each)[width:]):
            weights = _weights(each, width)
            yield weights
            if each.is_equality():
                yield -weights


def _inside(part: Affine, rows: Ints) -> Bools:
    """Return a mask of the points inside a set that consists of one piece."""
    inside, columns = np.ones(len(rows), dtype=np.bool_), _with_quotients(part, rows)
    for each in part.get_constraints():
        value = columns @ _weights(each, columns.shape[1])
        inside &= (value == 0) if each.is_equality() else value >= 0
    return inside


def _with_quotients(of: Affine, rows: Ints) -> Ints:
    """Return the columns of points, preceded by 1 and followed by the quotients in a set or an expression."""
    columns = np.hstack([np.ones((len(rows), 1), dtype=np.int64), rows])
    for k in range(of.dim(isl().dim_type.div)):
        columns = np.hstack([columns, _floor(of.get_div(k), columns).reshape(-1, 1)])
    return columns


def _floor(of: Affine, columns: Ints) -> Ints:
    """Return a weighted sum of columns, rounded down."""
    parts = int(of.get_denominator_val().to_python())
    found: Ints = columns @ _weights(of, columns.shape[1], parts) // parts
    return found


def _weights(of: Affine, width: int, parts: int = 1) -> Ints:
    """Return the weights of the given number of columns, with quotients last, multiplied by `parts`."""
    return np.array([int(x * parts) for x in coefficients(of)[:width]], dtype=np.int64)
