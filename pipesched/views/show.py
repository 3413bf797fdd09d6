"""Draws files as pictures.

    read ──> examine ──> Chart ──> a view ──> Picture
                           └─ an overlay: additional data

A wrong file is drawn as far as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipesched import render
from pipesched.analysis.standstill import Standstill
from pipesched.command import options
from pipesched.command.options import Given
from pipesched.compile import examined
from pipesched.diagnostics import Code, Diagnostic, Judged, fail
from pipesched.examine import Options
from pipesched.extension import rows
from pipesched.model.numbers import exact
from pipesched.support.source import Source
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.views import GRAPHML, Laid, Request, draw, overlay, takes, taking, views
from pipesched.views.rows import Overlay, View


def request(given: Given, suffix: str = "") -> Request:
    """Return the request for a picture in the format that is named, or that the file's suffix selects.

    Raises:
        PipeschedError: PS225: a suffix is unknown, or an option does not apply to the format.
    """
    by_name = views()
    known = {of: view for view in by_name.values() for of in view.suffixes}
    if suffix and not given["format"] and suffix not in known:
        raise fail(
            Code.USAGE, f"no format has the suffix {suffix}", help=f"give --format, or one of {', '.join(known)}"
        )
    view = by_name[given["format"]] if given["format"] else known.get(suffix, by_name["text"])
    written = view.written(suffix)
    if given["end"] == GRAPHML and GRAPHML in view.forms.values():
        written, given = GRAPHML, {**given, "end": None}
    _require_options_of(view, given)
    if given["end"] == GRAPHML:
        raise fail(Code.USAGE, f"--to {GRAPHML} applies to dag, not to {view.name}")
    more = {name: given[name] for name in takes(view) if given[name] not in (None, False, ())}
    return options.request(Request, given, format=view.name, written=written, more=more)


def _require_options_of(view: View, given: Given) -> None:
    """Raise PipeschedError (PS225) for an option that does not apply to a view, or conflicts with another option."""
    for name in dict.fromkeys(option for each in views().values() for option in takes(each)):
        if given[name] not in (None, False, ()) and name not in takes(view):
            option = {"begin": "from", "end": "to"}.get(name, name)
            raise fail(Code.USAGE, f"--{option} applies to {' and '.join(taking(name))}, not to {view.name}")
    for row in rows(Overlay):
        if given[row.option] and any(given[name] for name in row.without):
            said = " and ".join(f"--{name}" for name in row.without if given[name])
            raise fail(Code.USAGE, f"{said} {row.why}")


@dataclass(frozen=True)
class Picture(Judged):
    """A drawn chart, with the findings on the file.

    drawn: text; for PDF and PNG, the bytes decoded as UTF-8, with surrogates for invalid bytes (PEP 383). published:
    the keys that an overlay adds to the JSON.
    """

    chart: Chart
    source: str
    format: str
    written: str
    drawn: str
    diagnostics: tuple[Diagnostic, ...] = ()
    published: Mapping[str, object] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Picture {self.chart.title} as {self.written}>"

    def __str__(self) -> str:
        return self.drawn

    def _repr_svg_(self) -> str | None:
        """Return the figure or graph for a notebook."""
        return self.drawn if self.written == "svg" else None

    def to_json(self) -> dict[str, object]:
        """Return the published form, see ``emit/README.md``."""
        made, figures = self.chart, ("makespan", "span", "bubble", "span_bubble")
        spent = made.analysis.idle if made.analysis.standstill is None else None
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
            **self.published,
        }


def show(source: Source, asked: Options, how: Request) -> Picture:
    """Draw a file at the costs in the options; the file's own costs apply to kinds that have no cost there.

    Raises:
        PipeschedError: as `load`; PS222, PS225: options do not apply to the file; PS815: the file cannot be drawn;
        PS816 to PS818: a trace is unreadable, or belongs to another schedule; PS820: cairosvg or the program `dot` is
        missing.
    """
    made, above = examined(source, asked), overlay(how)
    laid = Laid(made.analysis) if above is None or above.lay is None else above.lay.load()(made, how)
    assert isinstance(laid, Laid)
    fault = made.report.fault
    drawn = Chart(laid.analysis, "" if fault is None else str(fault.code))
    picture = draw(drawn, how, laid.over)
    text = picture if isinstance(picture, str) else picture.decode("utf-8", "surrogateescape")
    return Picture(
        drawn, source.name, how.format, how.written, text, diagnostics=made.report.diagnostics, published=laid.published
    )


def _stopped(stop: Standstill) -> dict[str, object]:
    """Return, as JSON, where a run stops for good: the blocked ranks and the cycle; steps count from 1."""
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
