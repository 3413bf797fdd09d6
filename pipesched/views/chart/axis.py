"""Maps time to columns of characters.

    exact     k columns per unit of time, if they fit: nothing is rounded
    scaled    otherwise, a round number of units per column: 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten

The unit is the largest time that divides every start and end, so that F=10, B=20 are drawn like F=1, B=2.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, gcd

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints
from pipesched.views.chart.chart import Chart

_FARTHEST = 2**62  # ticks, so that one more column still fits in 64 bits
_ROUND = [Fraction(x, 100) for x in (100, 125, 150, 200, 250, 300, 400, 500, 600, 800)]


@dataclass(frozen=True)
class Viewport:
    """The interval of time to draw, in the user's unit, where None means 0 or the makespan."""

    begin: Fraction | None = None
    end: Fraction | None = None

    def ticks(self, chart: Chart) -> tuple[int, int]:
        """Return the interval in ticks, rounded outwards; it is never empty.

        Raises:
            PipeschedError: PS225: the interval ends before it begins, begins after the makespan, or exceeds 64 bits.
        """
        begin = 0 if self.begin is None else int(self.begin * chart.scale // 1)
        end = chart.times.makespan if self.end is None else ceil(self.end * chart.scale)
        if max(begin, end) > _FARTHEST:
            raise fail(Code.USAGE, f"{chart.said(max(begin, end))} is too far to draw: ticks exceed 64 bits")
        if end > begin or (self.begin, self.end) == (None, None):
            return begin, max(end, begin + 1)
        there = f"the makespan is {chart.unit.text(chart.makespan)}"
        raise fail(Code.USAGE, f"there is nothing to draw from {chart.said(begin)} on; {there}")


WHOLE = Viewport()


@dataclass(frozen=True)
class Axis:
    """The columns of time, from tick `begin` to `end`. step: ticks per column. unit: columns per unit, 0 if scaled."""

    begin: int
    end: int
    step: Fraction
    columns: int
    unit: int

    def fine(self, ticks: Ints) -> Ints:
        """Return the exact distance of each time from the first column, clipped; a column is `whole` wide."""
        return np.asarray((np.clip(ticks, self.begin, self.end) - self.begin) * self.step.denominator)

    @property
    def edges(self) -> Ints:
        """The edges of all columns, in the unit of `fine`."""
        return np.arange(self.columns + 1) * self.whole

    @property
    def whole(self) -> int:
        """The width of a column, in the unit of `fine`."""
        return self.step.numerator

    @property
    def bounds(self) -> Ints:
        """The edges of all columns in ticks, shape (columns + 1,), rounded down."""
        return self.begin + np.arange(self.columns + 1) * self.step.numerator // self.step.denominator


def axis(chart: Chart, columns: int, viewport: Viewport, label: int) -> Axis:
    """Return the axis with at most `columns` columns. label: the number of characters for the shortest slot."""
    begin, end = viewport.ticks(chart)
    one = unit(chart, begin)
    units = -(-(end - begin) // one)
    if units <= columns:
        wide = max(1, min(columns // units, ceil((label + 1) / Fraction(chart.shortest, one))))
        return Axis(begin, end, Fraction(one, wide), ceil(Fraction((end - begin) * wide, one)), wide)
    step = nice(Fraction(end - begin, columns * chart.scale)) * chart.scale
    return Axis(begin, end, step, ceil((end - begin) / step), 0)


def unit(chart: Chart, begin: int) -> int:
    """Return the largest time in ticks that divides every start, every end, and `begin`."""
    ran = chart.times.start >= 0
    return gcd(begin, int(np.gcd.reduce(chart.times.start[ran])), int(np.gcd.reduce(chart.times.end[ran]))) or 1


def nice(least: Fraction) -> Fraction:
    """Return the smallest round number that is at least `least`."""
    power = Fraction(1)
    while power * 10 <= least:
        power *= 10
    while power > least:
        power /= 10
    return next((x * power for x in _ROUND if x * power >= least), power * 10)


def ruler(axis: Axis, chart: Chart) -> str:
    """Return the line above the columns, with the times at round steps."""
    gap = nice(max(axis.step * 8, axis.step * axis.unit) / chart.scale) * chart.scale
    line = [" "] * axis.columns
    mark = ceil(Fraction(axis.begin) / gap) * gap
    free = 0
    while mark < axis.end:
        column, text = int((mark - axis.begin) / axis.step), chart.unit.mark(mark / chart.scale)
        if column >= free and column + len(text) <= axis.columns:
            line[column : column + len(text)] = text
            free = column + len(text) + 1
        mark += gap
    return "".join(line).rstrip()
