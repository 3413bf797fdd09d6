"""The row of a rank: its slots one by one, or what takes most of each column where they are too many for that."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from pipesched.model.ops import Op
from pipesched.views import cells
from pipesched.views.palette import MIXED, TERMINAL, paint
from pipesched.views.text_layout import Layout

NEARLY = Fraction(9, 10)
"""Of a column: as good as all of it."""


def row(layout: Layout, rank: int) -> str:
    """The characters of a rank, from the first column to the last."""
    return _mixture(layout, rank) if layout.mixed else _slots(layout, rank)


def _slots(layout: Layout, rank: int) -> str:
    """Slot by slot: there are no more of them than columns."""
    at, times, schedule = layout.axis, layout.chart.times, layout.chart.schedule
    part = slice(int(schedule.start[rank]), int(schedule.start[rank + 1]))
    inside = (times.end[part] > at.begin) & (times.start[part] < at.end) & (times.start[part] >= 0)
    index = part.start + np.flatnonzero(inside & ~schedule.joined[part])
    edges = [at.edge(column[index]).tolist() for column in (times.start, times.end)]
    row, column = "", 0
    for i, begin, end in zip(index.tolist(), *edges, strict=True):
        row += _idle(layout, column, begin) + _painted(layout, i, layout.labels.fill(i, end - begin))
        column = max(column, end)
    return row + _idle(layout, column, at.columns)


def _idle(layout: Layout, begin: int, end: int) -> str:
    """A dot for each unit of time; in every column where time is scaled."""
    every = layout.axis.unit or 1
    return "".join(" " if column % every else layout.dot for column in range(begin, end))


def _painted(layout: Layout, index: int, text: str) -> str:
    """The text of a slot in the colours of its operations; of a pair, up to the plus in that of its F.

    Odd microbatches are bold, so that neighbours of one colour are told apart.
    """
    if not layout.how.color:
        return text
    if cells.KINDS[layout.kinds[index]] != "+":
        return paint(text, _colour(layout, index), bold=_odd(layout, index))
    first = text.find("+") if text.find("+") > 0 else len(text) // 3
    parts = ((text[:first], index), (text[first:], index + 1))
    return "".join(paint(part, _colour(layout, i), bold=_odd(layout, i)) for part, i in parts)


def _odd(layout: Layout, index: int) -> bool:
    return bool(layout.chart.schedule.microbatch[index] % 2)


def _colour(layout: Layout, index: int) -> int:
    return TERMINAL[Op(int(layout.chart.schedule.op[index]))][layout.chunk[index] % 2]


def _mixture(layout: Layout, rank: int) -> str:
    """The kind that takes most of each column, a dot where at least half of it is idle."""
    whole = np.diff(layout.axis.bounds)
    shares = cells.shares(layout.chart, layout.kinds, rank, layout.axis)
    most, best, busy = shares.argmax(axis=0), shares.max(axis=0), shares.sum(axis=0)
    pure = best * NEARLY.denominator >= whole * NEARLY.numerator
    columns = zip(most.tolist(), pure.tolist(), (2 * busy > whole).tolist(), strict=True)
    return "".join(_mark(layout, kind, full) if used else layout.dot for kind, full, used in columns)


def _mark(layout: Layout, kind: int, full: bool) -> str:
    letter = cells.KINDS[kind]
    text = letter if full else letter.lower()
    if not layout.how.color:
        return text
    return paint(text, MIXED if letter == "+" else TERMINAL[Op[letter]][0 if full else 1])
