"""The table of views, with a row for every kind of picture.

    name    suffixes                        contents
    text    .txt                            a chart in characters
    svg     .svg .pdf .png                  a figure; cairosvg converts it to PDF and PNG
    html    .html .htm                      a self-contained page
    trace   .json                           Chrome's trace events, for Perfetto
    dag     .dot .gv .graphml, .svg .pdf    the dependency graph: DOT, GraphML, or laid out by the program `dot`
    csv     .csv                            the times, one line per operation

An overlay is drawn with the plan or instead of it: a measured run, or the bytes of a transformer over time.

A row names the options that apply to its view; all other options are refused. Help texts name the views to which an
option applies. A view is imported when it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.extension import rows
from pipesched.views.rows import Overlay, View

if TYPE_CHECKING:
    from pipesched.schedule_analysis import Analysis
    from pipesched.views.chart.axis import Viewport
    from pipesched.views.chart.chart import Chart

GRAPHML = "graphml"

COLUMNS = 80
"""The width of text that does not go to a terminal."""


@dataclass(frozen=True)
class Request:
    """A request for a picture. format: the name of the view. written: the file format: svg, pdf or png for a figure;
    dot, graphml, svg, pdf or png for a graph.

    width, ascii, color: the form of a text chart. begin, end: the time interval, in the unit of the costs. more: the
    options of extensions that were given.
    """

    format: str = "text"
    written: str = ""
    width: int | None = None
    begin: Fraction | None = None
    end: Fraction | None = None
    ascii: bool = False
    color: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def viewport(self) -> Viewport:
        """The time interval to draw."""
        from pipesched.views.chart.axis import Viewport

        return Viewport(self.begin, self.end)


@dataclass(frozen=True)
class Laid:
    """An analysis, and the value `over` that an overlay draws. published: the overlay's own keys in the JSON."""

    analysis: Analysis
    over: object = None
    published: Mapping[str, object] = field(default_factory=dict)


class NotLaidOutError(PipeschedError):
    """PS820: the program that lays out a graph is missing. text: the graph as DOT."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__([Diagnostic(Code.NEEDS, message)])
        self.text = text


def views() -> dict[str, View]:
    """Return all views by name."""
    return {view.name: view for view in rows(View)}


def overlay(how: Request) -> Overlay | None:
    """Return the requested overlay, or None."""
    return next((row for row in rows(Overlay) if row.option in how.more), None)


def draw(chart: Chart, how: Request, over: object = None) -> str | bytes:
    """Draw a chart as text or bytes. over: the value of the requested overlay; ignored if no overlay is requested.

    Raises:
        PipeschedError: PS225, PS815: the chart cannot be drawn; PS820: a library is missing.
    """
    above = overlay(how)
    if above is None:
        return views()[how.format].draw.load()(chart, how)
    return above.draw[how.format].load()(chart, how, over)


def takes(view: View) -> tuple[str, ...]:
    """Return the options that apply to a view, including those of overlays on it."""
    return (*view.takes, *(row.option for row in rows(Overlay) if view.name in row.draw))


def taking(option: str) -> tuple[str, ...]:
    """Return the views to which an option applies."""
    return tuple(view.name for view in views().values() if option in takes(view))
