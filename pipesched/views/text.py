"""A chart in characters: ranks down, time across.

             0    5    10   15                           the time
    rank 0   F0F1F2F3· · · B0  F4B1  ...                 a slot, its idle time as dots
    rank 1     ...

             0 to 4 activations, | between phases   peak
    rank 0   ▂▄▆▇▇▇▇▇|▇▇▇▇▇▆|▄▂                        4  what it holds

Where all fits, every slot has the columns of its time. Where a column holds several slots it shows one of their kinds.
At every scale the columns of a kind are its share of the rank's time (`apportion`).
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesched.diagnostics import Code, fail
from pipesched.views.axis import ruler
from pipesched.views.chart import Chart
from pipesched.views.text_layout import Layout, Text
from pipesched.views.text_memory import memory
from pipesched.views.text_rows import row
from pipesched.views.text_words import legend, stopped, title

_LEAST = 24  # columns without which no picture is of use

__all__ = ["Text", "render"]


def render(chart: Chart, how: Text | None = None) -> str:
    """The chart as lines of at most `width` characters, each ended.

    Raises:
        PipeschedError: PS225, a width below 24 columns, or a window without time.
    """
    how = how or Text()
    if how.width < _LEAST:
        raise fail(Code.USAGE, f"{how.width} columns are too few to draw in", help=f"give at least {_LEAST}")
    return "".join(line.rstrip() + "\n" for line in _lines(Layout(chart, how)))


def _lines(layout: Layout) -> Iterator[str]:
    yield from title(layout)
    yield ""
    yield " " * layout.left + ruler(layout.axis, layout.chart)
    for rank in range(layout.chart.schedule.ranks):
        yield layout.name(rank) + row(layout, rank)
    yield from stopped(layout)
    yield ""
    yield from memory(layout)
    yield ""
    yield from legend(layout)
