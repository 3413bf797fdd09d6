"""The kinds of row for pictures, the verb `show`, and the pictures: charts, figures, pages, graphs, traces, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import TypeAlias

from pipesched.extension import Codes, Drawing, Lazy, Option, Row, Verb, flag, rows

Shares: TypeAlias = Sequence[tuple[Fraction, Fraction]]


class View(Row):
    """A kind of picture. draw: a function of a chart and a request that returns text or bytes.

    suffixes: the file name suffixes that select the view. takes: the options that apply to the view. forms: the file
    format of a suffix, if the view writes several formats. form: the format for other suffixes, or empty for `name`.
    """

    name: str
    draw: Lazy[Callable[..., str | bytes]]
    suffixes: tuple[str, ...]
    takes: tuple[str, ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    form: str = ""

    def written(self, suffix: str) -> str:
        """Return the file format for a suffix."""
        return self.forms.get(suffix, self.form or self.name)


class Overlay(Row):
    """A picture that shows more than the plan, if an option of `show` requests it.

    draw: for each view, a function of a chart, a request and the result of `lay`. lay: a function of an examination and
    a request that returns the data to draw, as `views.chart.views.Laid`; None if the overlay needs only the analysis.
    without: options that do not apply to the overlay. why: the reason, as given in the message.
    """

    option: str
    draw: Mapping[str, Lazy[Callable[..., str | bytes]]]
    lay: Lazy[Callable[..., object]] | None = None
    without: tuple[str, ...] = ()
    why: str = ""


class Inset(Row):
    """Details that the page shows for a selected slot. name: the name of the property and of the column in the page.

    data: takes a chart; returns the insets as JSON, and for each operation the index of its inset, or -1.
    """

    name: str
    data: Lazy[Callable[..., tuple[object, Sequence[int]]]]


class Strip(Row):
    """Parts of slots that charts mark with a strip. name: their name in legends.

    parts: takes a chart; returns for each operation the marked parts of its slot, each as begin and end in fractions of
    its time. The second operation of a pair has none.
    """

    name: str
    parts: Lazy[Callable[..., Sequence[Shares]]]


def forms() -> Mapping[str, tuple[str, ...]]:
    """Return the file name suffixes of `show`, by view."""
    return {view.name: (*view.suffixes, *view.forms) for view in rows(View)}


_PRINTED = {".pdf": "pdf", ".png": "png"}


def _flag(name: str, help: str, after: str, place: int = 0) -> Option:
    return Option(name, flag, help, default=False, on=("show",), after=after, place=place)


ROWS: tuple[Row, ...] = (
    Codes(Lazy("views.codes:ViewsCode")),
    Verb(
        "show",
        "Look",
        "Draw a schedule: in the terminal, or as SVG, page, trace or graph.",
        Lazy("views.show_command:show"),
        Lazy("views.options:OPTIONS"),
        forms,
        place=1,
    ),
    View("text", Lazy("views.drawn:text"), (".txt",), ("width", "begin", "end", "ascii")),
    View(
        "svg",
        Lazy("views.drawn:svg"),
        (".svg", *_PRINTED),
        ("begin", "end", "style", "messages", "memory", "force"),
        _PRINTED,
    ),
    View("html", Lazy("views.drawn:html"), (".html", ".htm")),
    View("trace", Lazy("views.drawn:trace"), (".json",)),
    View(
        "dag",
        Lazy("views.drawn:dag"),
        (".dot", ".gv", ".graphml"),
        ("force",),
        {".graphml": "graphml", ".svg": "svg", **_PRINTED},
        "dot",
    ),
    Option(
        "style",
        help="svg: use the drawing style of a paper.",
        choices=("default", "zero-bubble", "megatron"),
        on=("show",),
        after="ascii",
    ),
    _flag("messages", "svg: draw arrows from sender to receiver.", after="style"),
    _flag("memory", "svg: draw the memory curve of each rank.", after="messages"),
    _flag("force", "Draw more operations than the limit (svg: 50,000, dag: 3,000).", after="memory", place=1),
    Drawing("picture", Lazy("views.drawn:notebook")),
    Drawing("graph", Lazy("views.drawn:graph")),
    Drawing("table", Lazy("views.drawn:table")),
    View("csv", Lazy("views.drawn:csv"), (".csv",)),
)
