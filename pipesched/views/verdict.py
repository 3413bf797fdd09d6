"""The cost of a chart in one line, in the words of those who report it.

cost       makespan 33 = 24 work + 9 idle   bubble 27.3 % (3/11)   as every command tells it
span       span 24, bubble rate by span 0 %                        zero-bubble papers: idle time over ranks x span
overhead   makespan 33, bubble fraction (idle / work) 37.5 %       half of the literature

What never ends says who waits for whom, and under which model: "deadlock PS401 under strict: ranks 0 and 1 wait ...".
What is drawn to its end though the file is wrong says so: "; wrong: PS301".
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipesched.analysis.idle import Idle, headline
from pipesched.model.numbers import share, shown
from pipesched.views import standing
from pipesched.views.chart import Chart


def cost(chart: Chart) -> str:
    """Makespan, and the bubble."""
    times = spent(chart)
    if times is None:
        return _stops(chart)
    return f"{headline(times.makespan, times.span, times.work)}{_wrong(chart)}"


def span(chart: Chart) -> str:
    """Span and the idle part of it."""
    times = spent(chart)
    if times is None:
        return _stops(chart)
    return f"span {shown(times.span)}, bubble rate by span {share(times.span_bubble)}{_wrong(chart)}"


def overhead(chart: Chart) -> str:
    """Makespan, and idle time over work."""
    times = spent(chart)
    if times is None:
        return _stops(chart)
    fraction = share(times.overhead or Fraction(0))
    return f"makespan {shown(times.makespan)}, bubble fraction (idle / work) {fraction}{_wrong(chart)}"


def timeless(chart: Chart) -> int:
    """How many slots take no time at all."""
    return int(np.count_nonzero((chart.times.start >= 0) & (chart.times.start == chart.times.end)))


def _wrong(chart: Chart) -> str:
    """What must not be overlooked: that the file is wrong, and what was assumed of the costs."""
    parts = ([f"wrong: {chart.wrong}"] if chart.wrong else []) + [*chart.analysis.remarks]
    return "".join(f"; {part}" for part in parts)


def _stops(chart: Chart) -> str:
    assert chart.stop is not None
    found = chart.stop.code
    return standing.headline(chart, chart.stop) + _wrong(replace(chart, wrong="") if chart.wrong == found else chart)


def spent(chart: Chart) -> Idle | None:
    """Its times, None where it never ends."""
    return chart.analysis.idle if chart.stop is None else None
