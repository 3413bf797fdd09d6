"""Assigns columns of characters to operations.

    time      |F  |B      |F  |B      |F  |B          an F takes 2 of 6 ticks, a column spans 4
    columns   |  F   |  B   |  B   |  F   | ...       every third column is an F

A slot that is wider than a column gets the columns from its rounded start to its rounded end. A column that covers
several slots shows the kind with the most time that earlier columns have not shown.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from pipesched.model.columns import Ints
from pipesched.views.chart.axis import Axis
from pipesched.views.chart.slots import KINDS
from pipesched.views.chart.text_layout import Bars, Layout

IDLE = -1


def spans(layout: Layout, bars: Bars, number: int) -> list[tuple[int, int, int]]:
    """Return the bars of a row that get a column: operation or IDLE, first column, end column (exclusive)."""
    at = layout.axis
    op, *edges = _inside(at, bars, number)
    first, last = ((2 * edge + at.whole) // (2 * at.whole) for edge in edges)
    found, free = [], 0
    for index, begin, end in zip(op.tolist(), first.tolist(), last.tolist(), strict=True):
        found += [(IDLE, free, begin)] * (begin > free) + [(index, begin, end)] * (end > begin)
        free = end
    return found + [(IDLE, free, at.columns)] * (at.columns > free)


def shares(layout: Layout, bars: Bars, number: int) -> list[int]:
    """Return, for each column of a row, kind * chunks + chunk, or IDLE. The chunk is 0 for an overlap pair, and for
    every operation if chunks are not shown.
    """
    at, chunks = layout.axis, layout.chart.chunks
    op, begin, end = _inside(at, bars, number)
    chunk = layout.chart.chunk[op] * (layout.kinds[op] != KINDS.index("+")) * layout.chunked
    own = layout.kinds[op].astype(np.int64) * chunks + chunk
    takes = {grain: _taken(begin[own == grain], end[own == grain], at.edges) for grain in np.unique(own).tolist()}
    takes[IDLE] = np.full(at.columns, at.whole, dtype=np.int64) - sum(takes.values())
    kinds, parts = Counter[int](), Counter[int]()  # the time that has not been shown yet
    drawn: list[int] = []
    for column in zip(*(taken.tolist() for taken in takes.values()), strict=True):
        there = {grain: taken for grain, taken in zip(takes, column, strict=True) if taken}
        for grain, taken in there.items():
            kinds[grain // chunks] += taken
            parts[grain] += taken
        drawn.append(max(there, key=lambda grain: (kinds[grain // chunks], parts[grain])))
        kinds[drawn[-1] // chunks] -= at.whole
        parts[drawn[-1]] -= at.whole
    return drawn


def _taken(begin: Ints, end: Ints, edges: Ints) -> Ints:
    """Return the part of each column that these bars cover, in the unit of `edges`."""
    before = np.searchsorted(begin, edges, side="right")
    passed = np.append(0, np.cumsum(end - begin))[before] - np.maximum(np.append(0, end)[before] - edges, 0)
    return np.asarray(np.diff(passed))


def _inside(at: Axis, bars: Bars, number: int) -> tuple[Ints, Ints, Ints]:
    """Return operation, begin and end of the bars in the picture; overlapping bars of a measured run are cut."""
    op, start, end = (
        column[slice(*bars.cut[number : number + 2].tolist())] for column in (bars.op, bars.start, bars.end)
    )
    inside = (end > at.begin) & (start < at.end)
    ends = np.maximum.accumulate(at.fine(end[inside]))
    return op[inside], np.maximum(at.fine(start[inside]), np.append(0, ends)[:-1]), ends
