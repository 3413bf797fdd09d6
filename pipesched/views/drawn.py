"""Draws pictures for `show`, and for a schedule in a notebook."""

from __future__ import annotations

from dataclasses import replace

from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.schedule import Program, Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.views.chart.chart import Chart, chart
from pipesched.views.chart.views import COLUMNS, GRAPHML, NotLaidOutError, Request


def text(chart: Chart, how: Request) -> str:
    """Draw a chart in characters."""
    from pipesched.views.chart.text import Text, render

    return render(chart, Text(how.width or COLUMNS, how.viewport, how.color, how.ascii))


def svg(chart: Chart, how: Request) -> str | bytes:
    """Draw a figure."""
    from pipesched.views import svg

    return svg.written(svg.render(chart, svg.asked(how)), how.written)


def html(chart: Chart, how: Request) -> str:
    """Draw a page."""
    from pipesched.views import html

    return html.render(chart)


def trace(chart: Chart, how: Request) -> str:
    """Write Chrome's trace events."""
    from pipesched.views import trace

    return trace.render(chart)


def dag(chart: Chart, how: Request) -> str | bytes:
    """Draw a graph.

    Raises:
        NotLaidOutError: if the program `dot` is missing.
    """
    from pipesched.views import graph

    if how.written == GRAPHML:
        return graph.graphml(chart)
    force = "force" in how.more
    if how.written == "dot":
        return graph.dot(chart, force=force)
    made = graph.drawn(chart, how.written, force=force)
    if made is None:
        raise NotLaidOutError(graph.HOW_TO_GET_IT, graph.dot(chart, force=force))
    return made


def csv(chart: Chart, how: Request) -> str:
    """Write the table, with one line per operation."""
    from pipesched.views import spreadsheet

    return spreadsheet.csv(chart)


def notebook(of: Schedule | Program | Analysis) -> str:
    """Draw a schedule for a notebook: as a figure, or as a line of text that says why it cannot be drawn.

    A program is drawn as far as it runs under strict communication, an analysis at its costs and under its model.
    """
    from pipesched.views import svg

    if isinstance(of, Program):
        of = of.schedule
    made = Analysis(of) if isinstance(of, Schedule) else replace(of)  # a copy without cached values
    try:
        return svg.render(Chart(made))
    except PipeschedError as error:
        return svg.note(f"{made.schedule.name}: {'; '.join(found.message for found in error.diagnostics)}")


def graph(schedule: Schedule, costs: Costs | None = None) -> object:
    """Return the graph of a schedule, for networkx."""
    from pipesched.views import graph

    return graph.graph(chart(schedule.with_program(None), costs))


def table(schedule: Schedule, costs: Costs | None = None) -> object:
    """Return the table of a schedule, for pandas."""
    from pipesched.views import spreadsheet

    return spreadsheet.pandas(chart(schedule.with_program(None), costs))
