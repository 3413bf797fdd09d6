"""The options of `show`."""

from __future__ import annotations

from dataclasses import replace

from pipesched.command import values
from pipesched.command.options import ALL, COLOR, DIGITS, FILE, JSON
from pipesched.command.values import positive
from pipesched.extension import Option, flag
from pipesched.views.chart.views import taking, views


def _for(option: str) -> str:
    """Return the views to which an option of `show` applies."""
    return f"{', '.join(taking(option))}: "


OPTIONS: tuple[Option, ...] = (
    Option("format", None, "[default: by the suffix of -o, or text]", choices=tuple(views())),
    FILE,
    Option("width", positive, _for("width") + "Number of columns [default: width of the terminal, or 80].", "N"),
    Option("begin", values.instant, _for("begin") + "Start of the time interval to draw.", "T", flags=("--from",)),
    Option(
        "end",
        values.end,
        _for("end") + ("End of the time interval to draw; dag: `graphml` writes GraphML."),
        "T|graphml",
        flags=("--to",),
    ),
    Option("ascii", flag, _for("ascii") + "Use only ASCII characters.", default=False),
    *ALL,
    DIGITS,
    replace(JSON, help="Print one JSON object: format, picture, and the findings on the file."),
    COLOR,
)
