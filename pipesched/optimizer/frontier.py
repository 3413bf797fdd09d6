"""Answers for a range of caps, and a plot of the bubble against the cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from pipesched.model.numbers import percent, shown
from pipesched.optimizer.optimize import clock, optimize
from pipesched.optimizer.optimize_report import Frontier
from pipesched.optimizer.optimize_request import Request
from pipesched.optimizer.solve.search.state import INTERRUPTED, State


def frontier(
    request: Request, caps: Sequence[Fraction], progress: Callable[[State], None] = lambda state: None
) -> Frontier:
    """Optimize for every cap, or for the caps up to the one at which the user interrupts."""
    points = []
    for cap, part in clock(request).shared(caps):
        points.append((cap, optimize(replace(request, mem_cap=(cap,)), progress, part)))
        if points[-1][1].reason == INTERRUPTED:
            break
    return Frontier(tuple(points))


def frontier_plot(frontier: Frontier) -> str:
    """Return the plot of bubble against cap, as SVG."""
    from pipesched.views.plot import Point, plot

    points = [
        Point(cap, answer.least_bubble * 100, answer.status)
        for cap, answer in frontier.points
        if answer.least_bubble is not None
    ]
    timed = bool(frontier.points[0][1].instance.costs.unit)
    said = (shown, (lambda bubble: percent(bubble / 100)) if timed else shown)
    return plot(points, x="memory cap (microbatches)", y="bubble, %", title=frontier.terms, said=said)
