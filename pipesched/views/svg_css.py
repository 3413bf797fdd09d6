"""The style sheet of a figure: fills of kinds and chunks, inks for light paper and for dark.

Every rule begins with a class of the figure's own, named after the sheet itself, so that several figures on one page,
such as the cells of a notebook, leave each other and the page alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from pipesched.model.ops import Op
from pipesched.views.palette import ALARM, GROUND, Style, ink, shade

SIZE = 12
"""Of the letters beside the rows, in pixels."""

_ACTIVATION, _GRADIENT = ("#1f6fae", "#7cc4f2"), ("#b8410e", "#f2a07c")  # of arrows, on light and on dark


def sheet(style: Style, seen: Sequence[tuple[Op, int]], chunks: int, outline: float) -> tuple[str, str]:
    """The class of the figure, and its sheet. seen: kinds and chunks. outline: the width of the edge of a slot."""
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
        colour = shade(style.fill[op], chunk, chunks, style.lighten)
        rules += [(f".{op.name}{chunk}", f"fill:{colour}"), (f".n{op.name}{chunk}", f"fill:{ink(colour)}")]
    return rules + ([(".i", f"fill:{style.idle}")] if style.idle else [])


def _arrows(scheme: int) -> list[tuple[str, str]]:
    rules = []
    for kind, colours in (("f", _ACTIVATION), ("g", _GRADIENT)):
        rules += [(f".{kind}", f"stroke:{colours[scheme]}"), (f".{kind}0", f"fill:{colours[scheme]}")]
    return rules


def _alarms(scheme: int) -> list[tuple[str, str]]:
    """What waits for ever: its row, the cross, its words, messages and their heads, the hatching; others that wait."""
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
    """The ground, and the words on it, of what is no figure itself."""
    light, dark = (
        f"rect.pipesched{{fill:{ground}}}text.pipesched{{font:{SIZE}px sans-serif;fill:{ink}}}"
        for ground, ink in zip(GROUND, ("#222", "#ddd"), strict=True)
    )
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _rules(scope: str, rules: Sequence[tuple[str, str]]) -> str:
    return "".join(f".{scope} {selector}{{{body}}}" for selector, body in rules)
