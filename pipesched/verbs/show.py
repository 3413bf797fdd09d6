"""Files as pictures.

    read ──> load ──> Schedule ──> Chart ──> text · svg · html · trace · dag · csv
                         └─ examine: what is wrong with it, told beside the picture; where it stops

Each format is one function of a chart. What is wrong with a file does not keep it from being drawn, as far as it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipesched.analysis.deviation import Against
from pipesched.compile import examined
from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.examine import Options
from pipesched.model.costs import Costs
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.source import Source
from pipesched.views.chart import Chart, chart
from pipesched.views.svg import Svg
from pipesched.views.text import Text


@dataclass(frozen=True)
class Picture:
    """A chart, and what is wrong with what it shows."""

    chart: Chart
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def fault(self) -> Diagnostic | None:
        """The first error."""
        return next((found for found in self.diagnostics if found.severity == "error"), None)


def picture(source: Source, options: Options, *, ran: bool = False) -> Picture:
    """A file with its times, at the costs of the options over its own.

    ran: it did run to its end, whatever the messages do under the model of the options.

    Raises:
        PipeschedError: as `load`, and PS222, PS225, options that mean nothing for it.
    """
    made = examined(source, options)
    fault = made.report.fault
    analysis = made.analysis.having(None) if ran else made.analysis
    return Picture(Chart(analysis, "" if fault is None else str(fault.code)), made.report.diagnostics)


def laid_over(made: Picture, traces: Sequence[Source]) -> Against:
    """The measured run of which these are the traces, beside the plan.

    Raises:
        PipeschedError: PS816, PS818, no trace; PS817, of another schedule; what is wrong with a file that does not end.
    """
    from pipesched.analysis.deviation import against
    from pipesched.formats import measured_traces

    plan = made.chart
    if not plan.times.finished and made.fault is not None:
        raise PipeschedError([made.fault])
    return against(plan.schedule, plan.times, plan.analysis.ticks, measured_traces.read(traces))


def against_text(chart: Chart, run: Against, how: Text | None = None) -> str:
    """Plan and run in characters, and where the run leaves the plan."""
    from pipesched.views import against

    return against.text(chart, run, how)


def against_svg(chart: Chart, run: Against, how: Svg | None = None) -> str:
    """Plan and run as an SVG file."""
    from pipesched.views import against

    return against.figure(chart, run, how)


def text(chart: Chart, how: Text | None = None) -> str:
    """The chart in characters."""
    from pipesched.views import text

    return text.render(chart, how)


def svg(chart: Chart, how: Svg | None = None) -> str:
    """The chart as an SVG file."""
    from pipesched.views import svg

    return svg.render(chart, how)


def printed(figure: str, written: str) -> str:
    """A figure as ``pdf`` or ``png``; the bytes with surrogates (PEP 383)."""
    from pipesched.views import printed

    return printed.printed(figure, written).decode("utf-8", "surrogateescape")


def html(chart: Chart) -> str:
    """The chart as a page that needs nothing else."""
    from pipesched.views import html

    return html.render(chart)


def trace(chart: Chart) -> str:
    """The chart as Chrome's trace events."""
    from pipesched.views import trace

    return trace.render(chart)


def csv(chart: Chart) -> str:
    """The times of the chart, a line an operation."""
    from pipesched.views import timings

    return timings.csv(chart)


def dag(chart: Chart, written: str = "dot", *, force: bool = False) -> str | None:
    """The dependency graph as ``dot``, ``graphml``, ``svg``, ``pdf`` or ``png``; None where there is no program `dot`.

    Bytes are told as what UTF-8 makes of them, with surrogates for the rest (PEP 383).
    """
    from pipesched.views import dag, graph

    match written:
        case "graphml":
            return graph.graphml(chart)
        case "svg":
            return dag.svg(chart, force=force)
        case "png" | "pdf":
            drawn = dag.png(chart, force=force) if written == "png" else dag.pdf(chart, force=force)
            return None if drawn is None else drawn.decode("utf-8", "surrogateescape")
        case _:
            return dag.dot(chart, force=force)


def notebook(of: Schedule | Program | Analysis) -> str:
    """How a schedule shows itself in a notebook: as a figure, or in words where it is too large for one.

    A program, as far as it runs under strict communication; an analysis, at its costs and under its model.
    """
    from pipesched.views import svg

    if isinstance(of, Program):
        of = Analysis(of.computes, own=of)
    made = Analysis(of) if isinstance(of, Schedule) else replace(of)  # which keeps nothing of what is derived for it
    try:
        return svg.render(Chart(made))
    except PipeschedError as error:
        return svg.note(f"{made.schedule.name}: {'; '.join(found.message for found in error.diagnostics)}")


def graph(schedule: Schedule, costs: Costs | None = None) -> object:
    """The graph of a schedule, for networkx."""
    from pipesched.views import graph

    return graph.graph(chart(schedule, costs))


def table(schedule: Schedule, costs: Costs | None = None) -> object:
    """The table of a schedule, for pandas."""
    from pipesched.views import table

    return table.pandas(chart(schedule, costs))
