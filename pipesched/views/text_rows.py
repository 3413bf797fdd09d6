"""The row of a rank: its slots one by one, or one kind a column where they are too many for that.

At every scale each kind, idle time among them, has its share of the columns.
"""

from __future__ import annotations

import numpy as np

from pipesched.model.ops import Op
from pipesched.views import cells
from pipesched.views.apportion import intervals, rows
from pipesched.views.palette import MIXED, alarm, paint, terminal
from pipesched.views.text_layout import Layout

_IDLE = len(cells.KINDS)


def row(layout: Layout, rank: int) -> str:
    """The characters of a rank, from the first column to the last; where it stops for good, its mark."""
    made = _mixture(layout, rank) if layout.mixed else _slots(layout, rank)
    if rank not in layout.stops:
        return "".join(text for text, _ in made)
    while made and made[-1][1]:
        made.pop()
    mark, cycle = layout.stops[rank]
    return "".join(text for text, _ in made) + (alarm(mark) if cycle and layout.how.color else mark)


def _slots(layout: Layout, rank: int) -> list[tuple[str, bool]]:
    """Slot by slot, and whether that is idle time."""
    return [
        (_idle(layout, first, last), True)
        if i < 0
        else (_painted(layout, i, layout.labels.fill(i, last - first)), False)
        for i, first, last in spans(layout, rank)
    ]


def spans(layout: Layout, rank: int) -> list[tuple[int, int, int]]:
    """Each slot that is given columns: its first operation, or -1 for idle time; its first column, the one after it."""
    at, times, schedule = layout.axis, layout.chart.times, layout.chart.schedule
    part = slice(int(schedule.start[rank]), int(schedule.start[rank + 1]))
    inside = (times.end[part] > at.begin) & (times.start[part] < at.end) & (times.start[part] >= 0)
    index = part.start + np.flatnonzero(inside & ~schedule.joined[part])
    times_of = zip(index.tolist(), at.fine(times.start[index]), at.fine(times.end[index]), strict=True)
    whole_row = (-1, at.columns * at.whole, at.columns * at.whole)
    things: list[int] = []
    edges: list[int] = []
    for i, begin, end in (*times_of, whole_row):
        for thing, until in ((-1, begin), (i, end)):
            if until > (edges[-1] if edges else 0):
                things.append(thing)
                edges.append(until)
    kind = [_IDLE if i < 0 else int(layout.kinds[i]) for i in things]
    return [(things[x], first, last) for x, first, last in intervals(edges, kind, at.columns, at.whole)]


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
    return terminal(Op(int(layout.chart.schedule.op[index])), int(layout.chunk[index]), layout.chunks)


def _mixture(layout: Layout, rank: int) -> list[tuple[str, bool]]:
    """Column by column one of the kinds in it, so that all have their shares, and their chunks if they are told."""
    at = layout.axis
    busy = cells.shares(layout.chart, layout.grains, rank, at)
    idle = [max(at.whole - sum(column), 0) for column in zip(*busy.values(), strict=True)] or [at.whole] * at.columns
    grains = [*busy, _IDLE * layout.chunks]
    shown = rows([*(x.tolist() for x in busy.values()), idle], [x // layout.chunks for x in grains], at.whole)
    return [(layout.dot, True) if x == len(busy) else (_mark(layout, grains[x]), False) for x in shown]


def _mark(layout: Layout, grain: int) -> str:
    kind, chunk = divmod(grain, layout.chunks)
    letter = cells.KINDS[kind]
    text = letter.lower() if chunk % 2 else letter
    if not layout.how.color:
        return text
    return paint(text, MIXED if letter == "+" else terminal(Op[letter], chunk, layout.chunks))
