"""VIEWS: every kind of picture, a row each.

    name    suffixes                        what it is
    text    .txt                            a chart in characters
    svg     .svg .pdf .png                  a figure; PDF and PNG are the figure as cairosvg paints it
    html    .html .htm                      a page that needs nothing else
    trace   .json                           Chrome's trace events, for Perfetto
    dag     .dot .gv .graphml, .svg .pdf    the dependency graph: DOT, GraphML, or laid out by the program `dot`
    csv     .csv                            the times, a line an operation

With a model, text, svg and html are what every rank holds over time (`views.stacked`).

A row names the options that mean something for it; elsewhere they are refused, and help texts name its rows. A view is
imported when it is drawn. To add one is to add its file here in `views/` and its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesched.chart.chart import Chart
    from pipesched.runtime.measured.deviation import Against

GRAPHML = "graphml"


COLUMNS = 80
"""Of a text, where there is no terminal."""


@dataclass(frozen=True)
class Request:
    """What to draw. written: of a figure svg, pdf or png; of a graph dot, graphml, svg, pdf or png.

    width, ascii, color: of a text. begin, end: in the unit of costs. style, messages, memory: of a figure. measured:
    the files of a run. force: draw what is large. model: draw what it holds in bytes; how is in the chart.
    """

    format: str = "text"
    written: str = ""
    width: int | None = None
    begin: Fraction | None = None
    end: Fraction | None = None
    ascii: bool = False
    style: str | None = None
    messages: bool = False
    memory: bool = False
    measured: tuple[object, ...] = ()
    model: object = None
    force: bool = False
    color: bool = False


@dataclass(frozen=True)
class View:
    """A row. draw: the picture of a chart, with a measured run of it or None; None where the program `dot` is missing.

    suffixes: of files, that name the view. takes: the options that mean something for it. forms: by suffix, of a view
    that is written in several; form: in which it is, else.
    """

    name: str
    draw: Callable[[Chart, Request, Against | None], str | bytes | None]
    suffixes: tuple[str, ...]
    takes: tuple[str, ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    form: str = ""

    def written(self, suffix: str) -> str:
        """The form in which a file of that suffix is written."""
        return self.forms.get(suffix, self.form or self.name)


def _text(chart: Chart, how: Request, run: Against | None) -> str:
    from pipesched.chart import text
    from pipesched.chart.axis import Viewport
    from pipesched.runtime.measured import against

    characters = text.Text(how.width or COLUMNS, Viewport(how.begin, how.end), how.color, how.ascii)
    return text.render(chart, characters) if run is None else against.text(chart, run, characters)


def _svg(chart: Chart, how: Request, run: Against | None) -> str | bytes:
    from pipesched.chart.axis import Viewport
    from pipesched.runtime.measured import against
    from pipesched.views import svg

    shapes = svg.Svg(how.style or "default", how.messages, how.memory, Viewport(how.begin, how.end), how.force)
    figure = svg.render(chart, shapes) if run is None else against.figure(chart, run, shapes)
    return figure if how.written == "svg" else svg.printed(figure, how.written)


def _html(chart: Chart, how: Request, run: Against | None) -> str:
    from pipesched.views import html

    return html.render(chart)


def _trace(chart: Chart, how: Request, run: Against | None) -> str:
    from pipesched.views import trace

    return trace.render(chart)


def _dag(chart: Chart, how: Request, run: Against | None) -> str | bytes | None:
    from pipesched.views import graph

    if how.written == GRAPHML:
        return graph.graphml(chart)
    if how.written == "dot":
        return graph.dot(chart, force=how.force)
    return graph.drawn(chart, how.written, force=how.force)


def _csv(chart: Chart, how: Request, run: Against | None) -> str:
    from pipesched.views import spreadsheet

    return spreadsheet.csv(chart)


_PRINTED = {".pdf": "pdf", ".png": "png"}
VIEWS = {
    view.name: view
    for view in (
        View("text", _text, (".txt",), ("width", "begin", "end", "ascii", "measured", "model")),
        View(
            "svg",
            _svg,
            (".svg", *_PRINTED),
            ("begin", "end", "style", "messages", "memory", "measured", "model", "force"),
            _PRINTED,
        ),
        View("html", _html, (".html", ".htm"), ("model",)),
        View("trace", _trace, (".json",)),
        View(
            "dag",
            _dag,
            (".dot", ".gv", ".graphml"),
            ("force",),
            {".graphml": GRAPHML, ".svg": "svg", **_PRINTED},
            "dot",
        ),
        View("csv", _csv, (".csv",)),
    )
}


def draw(chart: Chart, how: Request, run: Against | None = None) -> str | bytes | None:
    """The picture of a chart, with a measured run of it or None; of one with a model, the bytes that its ranks hold.

    None where the program `dot` is missing.
    """
    if chart.analysis.trained is None:
        return VIEWS[how.format].draw(chart, how, run)
    from pipesched.chart.axis import Viewport
    from pipesched.planning import stacked
    from pipesched.views import svg

    part = Viewport(how.begin, how.end)
    if how.format == "text":
        return stacked.text(chart, how.width or COLUMNS, part, ascii=how.ascii)
    if how.format == "html":
        return stacked.page(chart, part)
    figure = stacked.figure(chart, part)
    return figure if how.written == "svg" else svg.printed(figure, how.written)


def taking(option: str) -> tuple[str, ...]:
    """The views for which an option means something."""
    return tuple(view.name for view in VIEWS.values() if option in view.takes)
