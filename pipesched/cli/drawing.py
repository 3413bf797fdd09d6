"""What `show` is asked for: a format, named or told by the suffix of the file, and options that mean something for it.

    .txt text      .svg .pdf .png figure      .html page      .json trace      .csv times      .dot .gv .graphml graph

A PDF and a PNG are the figure as cairosvg paints it. A graph is DOT; ``--format dag -o x.svg``, ``x.pdf`` and ``x.png``
are laid out by the program `dot`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipesched.cli.terminal import Output, replace_file, wants_color
from pipesched.diagnostics import Code, fail

if TYPE_CHECKING:
    from pipesched.analysis.deviation import Against
    from pipesched.views.chart import Chart

FORMATS = ("text", "svg", "html", "trace", "dag", "csv")
GRAPHML = "graphml"
_SUFFIXES = {
    ".txt": "text",
    ".svg": "svg",
    ".pdf": "svg",
    ".png": "svg",
    ".html": "html",
    ".htm": "html",
    ".json": "trace",
    ".csv": "csv",
    ".dot": "dag",
    ".gv": "dag",
    ".graphml": "dag",
}
_WRITTEN = {  # by the suffix of a file, where a format has several forms
    "svg": {".pdf": "pdf", ".png": "png"},
    "dag": {".graphml": GRAPHML, ".svg": "svg", ".pdf": "pdf", ".png": "png"},
}
_ONLY = {  # what an option is for; elsewhere it would be silently ignored
    "width": ("text",),
    "ascii": ("text",),
    "begin": ("text", "svg"),
    "end": ("text", "svg"),
    "style": ("svg",),
    "messages": ("svg",),
    "memory": ("svg",),
    "force": ("svg", "dag"),
    "measured": ("text", "svg"),
}
_PIPED = 80


@dataclass(frozen=True)
class Wanted:
    """A format, and what it is written as: a graph as dot, graphml, svg, pdf or png; a figure as svg, pdf or png."""

    format: str
    written: str = ""


def wanted(given: Mapping[str, Any]) -> Wanted:
    """The format that is named, or that of the file's suffix.

    Raises:
        PipeschedError: PS225, an unknown suffix, or an option that means nothing for the format.
    """
    suffix = "" if given["json"] else os.path.splitext(given["output"] or "")[1].lower()
    format = given["format"] or _by_suffix(suffix)
    written = _WRITTEN.get(format, {}).get(suffix, "dot" if format == "dag" else "")
    if format == "dag" and given["end"] == GRAPHML:
        written = GRAPHML
    _require_fit(format, {**given, "end": None} if written == GRAPHML else given)
    return Wanted(format, written)


def _by_suffix(suffix: str) -> str:
    if not suffix:
        return "text"
    if suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise fail(Code.USAGE, f"no format has the suffix {suffix}", help=f"give --format, or one of {known}")
    return _SUFFIXES[suffix]


def _require_fit(format: str, given: Mapping[str, Any]) -> None:
    """Whether every option that was given means something for the format, else PS225."""
    for name, formats in _ONLY.items():
        if given[name] not in (None, False, ()) and format not in formats:
            option = {"begin": "from", "end": "to"}.get(name, name)
            raise fail(Code.USAGE, f"--{option} is for {' and '.join(formats)}, not for {format}")
    if given["measured"] and given["messages"]:
        raise fail(Code.USAGE, "--messages is for a plan alone, not with --measured")
    if given["end"] == GRAPHML:
        raise fail(Code.USAGE, f"--to {GRAPHML} is for dag, not for {format}")


def draw(chart: Chart, wanted: Wanted, given: Mapping[str, Any], out: Output, run: Against | None = None) -> str:
    """The picture as a text, with a measured run if there is one; the bytes of PDF and PNG with surrogates (PEP 383).

    Raises:
        PipeschedError: PS225, PS815, what cannot be drawn; PS820, no cairosvg, or no program `dot`, in which case the
            DOT is written.
    """
    from pipesched.verbs import show as picture
    from pipesched.views.axis import Window
    from pipesched.views.svg import Svg
    from pipesched.views.text import Text

    match wanted.format:
        case "text":
            width = given["width"] or shutil.get_terminal_size((_PIPED, 24)).columns
            plain = given["ascii"] or not _utf8(out)
            characters = Text(width, Window(given["begin"], given["end"]), _color(given, out), plain)
            return picture.text(chart, characters) if run is None else picture.against_text(chart, run, characters)
        case "svg":
            style, messages, memory = given["style"] or "default", given["messages"], given["memory"]
            window = Window(given["begin"], given["end"])
            shapes = Svg(style, messages, memory, window, given["force"])
            figure = picture.svg(chart, shapes) if run is None else picture.against_svg(chart, run, shapes)
            return picture.printed(figure, wanted.written) if wanted.written else figure
        case "html":
            return picture.html(chart)
        case "trace":
            return picture.trace(chart)
        case "csv":
            return picture.csv(chart)
        case _:
            return _graph(chart, wanted.written, given, out)


def _graph(chart: Chart, written: str, given: Mapping[str, Any], out: Output) -> str:
    """The graph; where `dot` is missing, its DOT goes beside the file that was asked for."""
    from pipesched.verbs import show as picture
    from pipesched.views.dag import HOW_TO_GET_IT

    made = picture.dag(chart, written, force=given["force"])
    if made is not None:
        return made
    beside = os.path.splitext(str(out.path))[0] + ".dot"
    replace_file(beside, picture.dag(chart, "dot", force=given["force"]) or "")
    raise fail(Code.NEEDS, f"{HOW_TO_GET_IT}; {beside} has the graph as DOT")


def _utf8(out: Output) -> bool:
    """Whether what is written can hold any character; files can."""
    if out.path not in (None, "-"):
        return True
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def _color(given: Mapping[str, Any], out: Output) -> bool:
    stream = sys.stdout if out.path in (None, "-") else None
    return not given["json"] and wants_color(given["color"], stream)
