"""Colours of operations that people with any kind of colour vision can distinguish.

The default is the palette of text charts (`chart.colours`). Labels are black or white, whichever has more contrast. Two
styles imitate papers:

    zero-bubble   arXiv:2401.10241, with the colours that the authors' code plots. Its B is our I.
                  span 24, bubble rate by span 0 %: idle time over ranks x span
    megatron      arXiv:2104.04473: forward blue, backward green, the first chunk dark, later ones light, idle grey.
                  makespan 33, bubble fraction (idle / work) 37.5 %, as in half of the literature

Every rule of a figure's style sheet begins with a class named by a hash of the sheet, so that several figures on one
page (cells of a notebook) do not affect each other or the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256

from pipesched.analysis.idle import Idle, headline
from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import share
from pipesched.model.ops import Op
from pipesched.model.units import Unit
from pipesched.views.chart.colours import FILL, LIGHTEN, OTHER, channels, shade


@dataclass(frozen=True)
class Style:
    """The style of an SVG figure. fill: the fill for each value of `Kind.colour`, as ``#rrggbb``. called: the names of
    kinds in this style's legend, by letter. lighten: how far the last chunk's colour is shifted to white, from 0 to 1.

    numbers: labels show the microbatch only, without a letter. first: the number shown for the first rank and
    microbatch. idle: the colour of idle time; None shows the background. font: the font of all text. row: the word for
    a rank. cost: formats the times as text.
    """

    name: str
    fill: Mapping[str, str]
    called: Mapping[str, str] = field(default_factory=dict)
    lighten: float = LIGHTEN
    numbers: bool = False
    first: int = 0
    idle: str | None = None
    font: str = "'DejaVu Sans', Verdana, sans-serif"
    row: str = "rank"
    cost: Callable[[Idle, Unit], str] = headline

    def colour(self, op: Op) -> str:
        """Return the colour of a kind of operation, from the default style if this style has none."""
        return self.fill.get(op.kind.colour) or FILL.get(op.kind.colour, OTHER)

    def words(self, op: Op) -> str:
        """Return the legend's text for a kind."""
        return self.called.get(op.name, f"{op.name} {op.kind.words}")


def overhead(makespan: Fraction, work: Sequence[Fraction]) -> Fraction | None:
    """Return the idle time of all ranks / their work, or None without work."""
    return makespan * len(work) / sum(work) - 1 if sum(work) else None


def _by_work(times: Idle, unit: Unit) -> str:
    fraction = share(overhead(times.makespan, times.work) or Fraction(0))
    return f"makespan {unit.text(times.makespan)}, bubble fraction (idle / work) {fraction}"


STYLES = {
    "default": Style("default", FILL),
    "zero-bubble": Style(
        "zero-bubble",
        {"forward": "#397af2", "input": "#44d3da", "weights": "#e0f0e7", "full": "#44d3da"},
        {"F": "F", "I": "B", "W": "W", "B": "BW"},
        numbers=True,
        font="'Times New Roman', 'DejaVu Serif', serif",
        row="Device",
        cost=lambda times, unit: f"span {unit.text(times.span)}, bubble rate by span {share(times.span_bubble)}",
    ),
    "megatron": Style(
        "megatron",
        {"forward": "#3b6fb5", "input": "#5fa55a", "weights": "#d8a73c", "full": "#5fa55a"},
        {"F": "Forward Pass", "I": "Backward Pass, input", "W": "Backward Pass, weights", "B": "Backward Pass"},
        numbers=True,
        first=1,
        idle="#c9c9c9",
        font="Arial, 'DejaVu Sans', sans-serif",
        row="Device",
        cost=_by_work,
    ),
}

GROUND = ("#ffffff", "#14171c")  # backgrounds of a figure, in light and dark schemes

# The colour of waits without end, in light and dark schemes. They are also hatched or marked, for all kinds of colour
# vision.
ALARM = ("#b00020", "#ff6b81")


def style(name: str) -> Style:
    """Return a style by its name.

    Raises:
        PipeschedError: PS225: there is no such style.
    """
    if name not in STYLES:
        raise fail(Code.USAGE, f"there is no style {name!r}", help=f"styles are {', '.join(STYLES)}")
    return STYLES[name]


def ink(colour: str) -> str:
    """Return black or white, whichever has more contrast (relative luminance, WCAG 2.2)."""
    light = [channel / 255 for channel in channels(colour)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in light]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else "#fff"


SIZE = 12
"""The usual font size of a figure's text, in pixels."""

_ACTIVATION, _GRADIENT = ("#1f6fae", "#7cc4f2"), ("#b8410e", "#f2a07c")  # colours of arrows, in light and dark schemes


def sheet(style: Style, seen: Sequence[tuple[Op, int]], chunks: int, outline: float) -> tuple[str, str]:
    """Return the figure's class and style sheet. seen: drawn kinds and chunks. outline: line width of a slot's edge."""
    light = [
        ("text", f"font:{SIZE}px {style.font}"),
        (".t", "fill:#222"),
        (".h", "font-weight:bold;font-size:14px"),
        (".c", "text-anchor:middle"),
        (".l", "stroke:#888;stroke-width:1;fill:none"),
        (".s", f"stroke:#222;stroke-width:{outline}"),
        (".k", "stroke:#222;stroke-width:2"),
        (".m", "fill:#888;fill-opacity:.3;stroke:#777;stroke-width:1"),
        (".p", "fill:#555"),
        (".z", f"fill:{GROUND[0]}"),
        *_arrows(0),
        *_alarms(0),
        *_fills(style, seen, chunks),
    ]
    ground = (".z", f"fill:{GROUND[1]}")
    dark = [(".t", "fill:#ddd"), (".k", "stroke:#eee"), (".p", "fill:#bbb"), ground, *_arrows(1), *_alarms(1)]
    scope = "s" + sha256(repr((light, dark)).encode()).hexdigest()[:8]
    return scope, f"{_rules(scope, light)}@media(prefers-color-scheme:dark){{{_rules(scope, dark)}}}"


def _fills(style: Style, seen: Sequence[tuple[Op, int]], chunks: int) -> list[tuple[str, str]]:
    rules = []
    for op, chunk in seen:
        colour = shade(style.colour(op), chunk, chunks, style.lighten)
        rules += [(f".{op.name}{chunk}", f"fill:{colour}"), (f".n{op.name}{chunk}", f"fill:{ink(colour)}")]
    return rules + ([(".i", f"fill:{style.idle}")] if style.idle else [])


def _arrows(scheme: int) -> list[tuple[str, str]]:
    rules = []
    for kind, colours in (("f", _ACTIVATION), ("g", _GRADIENT)):
        rules += [(f".{kind}", f"stroke:{colours[scheme]}"), (f".{kind}0", f"fill:{colours[scheme]}")]
    return rules


def _alarms(scheme: int) -> list[tuple[str, str]]:
    """Return the rules for endless waits (row, cross, text, messages, arrow heads, hatching) and for other waits."""
    red, quiet = ALARM[scheme], ("#888", "#999")[scheme]
    return [
        (".x", f"stroke:{red};stroke-width:2;fill:none"),
        (".e", f"stroke:{red};stroke-width:2;stroke-opacity:.55"),
        (".u", f"stroke:{red};stroke-width:2.5;fill:none"),
        (".v", f"fill:{red};font-weight:bold"),
        (".r", f"stroke:{red};stroke-width:2;fill:none"),
        (".q", f"fill:{red}"),
        (".w", f"stroke:{quiet};stroke-width:1;stroke-dasharray:4 3;fill:none"),
    ]


def plain_sheet() -> str:
    """Return the rules for the background and the text of a document, outside of the figures in it."""
    light, dark = (
        f"rect.pipesched{{fill:{ground}}}text.pipesched{{font:{SIZE}px sans-serif;fill:{ink}}}"
        for ground, ink in zip(GROUND, ("#222", "#ddd"), strict=True)
    )
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _rules(scope: str, rules: Sequence[tuple[str, str]]) -> str:
    return "".join(f".{scope} {selector}{{{body}}}" for selector, body in rules)
