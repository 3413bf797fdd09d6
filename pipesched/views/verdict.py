"""The cost of a chart in one line, in the words of those who report it.

cost       makespan 33, idle 9 (3/11 = 27.3 %)             idle over makespan, of the rank that idles most
span       span 24, bubble rate 0 %                        zero-bubble papers: from a rank's first start to its end
overhead   makespan 33, bubble fraction 9/24 = 37.5 %      idle over work

What never ends says who waits for whom, and under which model: "deadlock PS401 under strict: ranks 0 and 1 wait ...".
What is drawn to its end though the file is wrong says so: "; wrong: PS301".
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipesched.analysis.assumptions import remarks, used
from pipesched.analysis.idle import Idle, idle
from pipesched.model.numbers import ratio, shown
from pipesched.views.chart import Chart
from pipesched.views.standing import headline


def cost(chart: Chart) -> str:
    """Makespan and idle time."""
    spent = _spent(chart)
    if spent is None:
        return _stops(chart)
    most = max(spent.idle, default=Fraction(0))
    return f"makespan {shown(spent.makespan)}, idle {shown(most)} ({share(most, spent.makespan)}){_wrong(chart)}"


def span(chart: Chart) -> str:
    """Span and the idle part of it."""
    spent = _spent(chart)
    if spent is None:
        return _stops(chart)
    idle_part = max(spent.span_idle, default=Fraction(0))
    return f"span {shown(spent.span)}, bubble rate {share(idle_part, spent.span)}{_wrong(chart)}"


def overhead(chart: Chart) -> str:
    """Makespan, and the largest idle time over work."""
    spent = _spent(chart)
    if spent is None:
        return _stops(chart)
    parts = [(x / work, x, work) for x, work in zip(spent.idle, spent.work, strict=True) if work]
    _, most, work = max(parts, default=(0, Fraction(0), Fraction(1)))
    return f"makespan {shown(spent.makespan)}, bubble fraction {share(most, work)}{_wrong(chart)}"


def share(part: Fraction, whole: Fraction) -> str:
    """``3/19 = 15.8 %``, ``20 %``; nothing of nothing is none of it."""
    return ratio(part / whole if whole else Fraction(0))


def timeless(chart: Chart) -> int:
    """How many slots take no time at all."""
    return int(np.count_nonzero((chart.times.start >= 0) & (chart.times.start == chart.times.end)))


def _wrong(chart: Chart) -> str:
    """What must not be overlooked: that the file is wrong, and what was assumed of the costs."""
    said = remarks(chart.costs, used(chart.schedule, chart.costs))
    return "".join(f"; {part}" for part in ([f"wrong: {chart.wrong}"] if chart.wrong else []) + [*said])


def _stops(chart: Chart) -> str:
    assert chart.stop is not None
    found = chart.stop.code
    return headline(chart, chart.stop) + _wrong(replace(chart, wrong="") if chart.wrong == found else chart)


def _spent(chart: Chart) -> Idle | None:
    if chart.stop is not None:
        return None
    return idle(chart.schedule, chart.times, chart.costs.ticks(chart.schedule.stages))
