"""The rows that add figures, pages, graphs, traces and tables of a schedule."""

from pipesched.extension import Codes, Drawing, Lazy, Option, Row, View, flag

_PRINTED = {".pdf": "pdf", ".png": "png"}


def _flag(name: str, help: str, after: str, place: int = 0) -> Option:
    return Option(name, flag, help, default=False, on=("show",), after=after, place=place)


ROWS: tuple[Row, ...] = (
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
    Option(
        "style",
        help="svg: drawing style of a paper.",
        choices=("default", "zero-bubble", "megatron"),
        on=("show",),
        after="ascii",
    ),
    _flag("messages", "svg: arrows from sender to receiver.", after="style"),
    _flag("memory", "svg: activations held, under each rank.", after="messages"),
    _flag("force", "svg, dag: draw more than 50,000 and 3,000 operations.", after="memory", place=1),
    Drawing("picture", Lazy("views.drawn:notebook")),
    Drawing("graph", Lazy("views.drawn:graph")),
    Drawing("table", Lazy("views.drawn:table")),
    View("csv", Lazy("views.drawn:csv"), (".csv",)),
)
