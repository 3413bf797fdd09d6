"""Files as pictures.

    read ──> examine ──> Chart ──> a row of VIEWS ──> Picture
                           └─ measured: a run of it, under the plan

What is wrong with a file does not keep it from being drawn, as far as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipesched import render
from pipesched.analysis.standstill import Standstill
from pipesched.chart.chart import Chart, chart
from pipesched.chart.views import GRAPHML, VIEWS, Request, draw, taking
from pipesched.command import options, sources
from pipesched.compile import examined
from pipesched.diagnostics import Code, Diagnostic, Judged, PipeschedError, fail
from pipesched.examine import Options
from pipesched.model.costs import Costs
from pipesched.model.numbers import exact
from pipesched.model.schedule import Program, Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.source import Source

if TYPE_CHECKING:
    from pipesched.runtime.measured.deviation import Against


_OF_TIME = ("style", "messages", "memory", "measured")


def request(given: Mapping[str, Any], suffix: str = "") -> Request:
    """The format that is named, or that of a file's suffix, and how to draw it.

    Raises:
        PipeschedError: PS225, an unknown suffix, or an option that means nothing for the format.
    """
    known = {of: view for view in VIEWS.values() for of in view.suffixes}
    if suffix and not given["format"] and suffix not in known:
        raise fail(
            Code.USAGE, f"no format has the suffix {suffix}", help=f"give --format, or one of {', '.join(known)}"
        )
    view = VIEWS[given["format"]] if given["format"] else known.get(suffix, VIEWS["text"])
    written = view.written(suffix)
    if given["end"] == GRAPHML and GRAPHML in view.forms.values():
        written, given = GRAPHML, {**given, "end": None}
    for name in dict.fromkeys(option for each in VIEWS.values() for option in each.takes):
        if given[name] not in (None, False, ()) and name not in view.takes:
            option = {"begin": "from", "end": "to"}.get(name, name)
            raise fail(Code.USAGE, f"--{option} is for {' and '.join(taking(name))}, not for {view.name}")
    if given["measured"] and given["messages"]:
        raise fail(Code.USAGE, "--messages is for a plan alone, not with --measured")
    if given["model"] is not None and any(given[name] for name in _OF_TIME):
        said = " and ".join(f"--{name}" for name in _OF_TIME if given[name])
        raise fail(Code.USAGE, f"{said} is for operations; with --model bytes are drawn")
    if given["end"] == GRAPHML:
        raise fail(Code.USAGE, f"--to {GRAPHML} is for dag, not for {view.name}")
    return options.request(Request, given, format=view.name, written=written)


@dataclass(frozen=True)
class Picture(Judged):
    """A chart as it was drawn, and what is wrong with what it shows.

    drawn: a text; the bytes of a PDF or a PNG as what UTF-8 makes of them, with surrogates for the rest (PEP 383).
    run: what was measured.
    """

    chart: Chart
    source: str
    format: str
    written: str
    drawn: str
    diagnostics: tuple[Diagnostic, ...] = ()
    run: Against | None = None

    def __repr__(self) -> str:
        return f"<Picture {self.chart.title} as {self.written}>"

    def __str__(self) -> str:
        return self.drawn

    def _repr_svg_(self) -> str | None:
        """How a notebook shows a figure, or a graph."""
        return self.drawn if self.written == "svg" else None

    def to_json(self) -> dict[str, object]:
        """The published form, see ``emit/README.md``."""
        made = self.chart
        spent, figures = (
            made.analysis.idle if made.analysis.standstill is None else None,
            ("makespan", "span", "bubble", "span_bubble"),
        )
        measured = {} if self.run is None else {"measured": _measured(self.run)}
        return {
            "ok": self.ok,
            "name": made.identifier,
            "title": made.schedule.title or None,
            "source": self.source,
            "parameters": dict(made.sizes),
            **made.analysis.costs.published(made.analysis.costs_used),
            **exact(**{name: None if spent is None else getattr(spent, name) for name in figures}),
            "format": self.format,
            "picture": self.drawn,
            "stopped": None if made.analysis.standstill is None else _stopped(made.analysis.standstill),
            "diagnostics": [render.as_json(found) for found in self.diagnostics],
            **measured,
        }


class NoDot(PipeschedError):
    """PS820: there is no program `dot` to lay out a graph; dot: its text."""

    def __init__(self, dot: str) -> None:
        from pipesched.views.graph import HOW_TO_GET_IT

        super().__init__([Diagnostic(Code.NEEDS, HOW_TO_GET_IT)])
        self.dot = dot


def show(source: Source, asked: Options, how: Request) -> Picture:
    """A file as a picture, at the costs of the options over its own.

    Raises:
        PipeschedError: as `load`; PS222, PS225, options that mean nothing for it; PS815, what cannot be drawn; PS816 to
            PS818, no trace, or of another schedule; PS820, no cairosvg, or no program `dot`.
    """
    made = examined(source, asked)
    fault, traces = made.report.fault, sources.traces(how.measured)
    plan = made.analysis.having(None) if traces else made.analysis  # it did run, whatever the messages do
    drawn = Chart(plan, "" if fault is None else str(fault.code), caps=made.byte_caps)
    run = None
    if traces:
        from pipesched.runtime.measured import measured_traces
        from pipesched.runtime.measured.deviation import against

        if fault is not None and not plan.finished:
            raise PipeschedError([fault])
        run = against(plan.schedule, plan.timeline, plan.ticks, measured_traces.read(traces))
    picture = draw(drawn, how, run)
    if picture is None:
        raise NoDot(str(draw(drawn, replace(how, written="dot"))))
    text = picture if isinstance(picture, str) else picture.decode("utf-8", "surrogateescape")
    return Picture(drawn, source.name, how.format, how.written, text, made.report.diagnostics, run)


def _stopped(stop: Standstill) -> dict[str, object]:
    """Where a run never ends: the ranks that do not, and the cycle; steps count from 1."""
    return {
        "model": stop.model or None,
        "ranks": [{"rank": x.rank, "at": x.at, "step": x.step} for x in stop.blocked],
        "cycle": [
            {
                "rank": x.blocked.rank,
                "at": x.blocked.at,
                "step": x.blocked.step,
                "needs": x.needs or None,
                "other": x.other,
                "until": x.until or None,
                "until_step": x.until_step or None,
                "behind": x.behind or None,
                "message": {1: "sends", -1: "receives", 0: None}[x.direction],
            }
            for x in stop.cycle
        ],
    }


def _measured(run: Against) -> dict[str, object]:
    """Measured times as JSON numbers: seconds, and units of cost."""
    return {
        "unit": run.unit / 1e9,
        "step": run.step,
        "steps": [length / 1e9 for length in run.lengths],
        "makespan": float(run.makespan),
        "ratios": [
            {
                "kind": x.kind,
                "stage": None if x.stage < 0 else x.stage,
                "cost": float(x.planned),
                "ran": float(x.ran),
                "ratio": None if x.ratio is None else float(x.ratio),
            }
            for x in (*run.kinds, *run.stages)
        ],
        "late": [
            {"rank": x.rank, "operation": str(x.operation), "planned": float(x.planned), "ran": float(x.ran)}
            for x in run.late
        ],
        "clocks_disagree": run.skew / 1e9,
    }


def notebook(of: Schedule | Program | Analysis) -> str:
    """How a schedule shows itself in a notebook: as a figure, or in words where it is too large for one.

    A program, as far as it runs under strict communication; an analysis, at its costs and under its model.
    """
    from pipesched.views import svg

    if isinstance(of, Program):
        of = of.schedule
    made = Analysis(of) if isinstance(of, Schedule) else replace(of)  # which keeps nothing of what is derived for it
    try:
        return svg.render(Chart(made))
    except PipeschedError as error:
        return svg.note(f"{made.schedule.name}: {'; '.join(found.message for found in error.diagnostics)}")


def graph(schedule: Schedule, costs: Costs | None = None) -> object:
    """The graph of a schedule, for networkx."""
    from pipesched.views import graph

    return graph.graph(chart(schedule.with_program(None), costs))


def table(schedule: Schedule, costs: Costs | None = None) -> object:
    """The table of a schedule, for pandas."""
    from pipesched.views import spreadsheet

    return spreadsheet.pandas(chart(schedule.with_program(None), costs))
