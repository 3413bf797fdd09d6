"""Colours of operations in a terminal, and the palette that they approximate.

The default is the palette of Color Universal Design (jfly.uni-koeln.de/color): forward sky blue, backward vermilion,
its parts I orange and W bluish green. Later chunks of a rank are lighter.
"""

from __future__ import annotations

from functools import cache

from pipesched.model.ops import Op

FILL = {
    "forward": "#56b4e9",
    "input": "#e69f00",
    "weights": "#009e73",
    "full": "#d55e00",
    "recompute": "#b3b3b3",
    "offload": "#cc79a7",
    "load": "#f0e442",
}
"""The palette: a colour ``#rrggbb`` for each value of `Kind.colour`."""

OTHER = "#999999"  # the colour of a class without one

LIGHTEN = 0.6  # how close to white the last chunk is
MIXED = 245  # forwards and backwards in one character
STRIP, STRIP_FILL = 94, "#9a6a00"  # strips that mark parts of slots; no kind has this colour
_BLACK = 16
_ALARM = 160  # waits without end
_LEVELS = (0, 95, 135, 175, 215, 255)  # levels of the colours 16 to 231 of a terminal, a cube


def shade(colour: str, chunk: int, chunks: int, lighten: float = LIGHTEN) -> str:
    """Return the colour of a chunk: unchanged for the first, a fraction `lighten` of the way to white for the last."""
    part = lighten * chunk / (chunks - 1) if chunks > 1 else 0.0
    return "#" + "".join(f"{round(x + (255 - x) * part):02x}" for x in channels(colour))


@cache
def terminal(op: Op, chunk: int, chunks: int) -> int:
    """Return the colour, among a terminal's 256, that is nearest to the shade of a chunk."""
    want = channels(shade(FILL.get(op.kind.colour, OTHER), chunk, chunks))

    def away(number: int) -> int:
        levels = (_LEVELS[number // 36], _LEVELS[number // 6 % 6], _LEVELS[number % 6])
        return sum((a - b) ** 2 for a, b in zip(want, levels, strict=True))

    return 16 + min(range(216), key=away)


def channels(colour: str) -> list[int]:
    """Return the red, green and blue of ``#rrggbb``."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def paint(text: str, background: int, *, bold: bool = False) -> str:
    """Return the text in black on one of the 256 colours, with ANSI codes."""
    return f"\x1b[{'1;' * bold}38;5;{_BLACK};48;5;{background}m{text}\x1b[0m" if text else text


def alarm(text: str) -> str:
    """Return the text in bold white on red, with ANSI codes."""
    return f"\x1b[1;38;5;231;48;5;{_ALARM}m{text}\x1b[0m"
