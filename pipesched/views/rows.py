"""Figures, pages, graphs, traces and tables of a schedule."""

from pipesched.extension import Codes, Drawing, Lazy, View

_PRINTED = {".pdf": "pdf", ".png": "png"}

ROWS = (
    Codes(Lazy("views.codes:ViewsCode")),
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
    Drawing("picture", Lazy("views.drawn:notebook")),
    Drawing("graph", Lazy("views.drawn:graph")),
    Drawing("table", Lazy("views.drawn:table")),
    View("csv", Lazy("views.drawn:csv"), (".csv",)),
)
