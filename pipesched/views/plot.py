"""A small scatter plot as SVG, without a library: the same points give the same bytes.

bubble |  x gpipe                  a series has a shape, a colour (shapes alone are also distinct),
ratio  |                           and a line through its points in the given order
       |        o 1f1b             smaller is better: the Pareto-optimal points can be joined
       +-----------------
         peak memory

A label is to the right of its mark or, if it does not fit there, to the left, above or below; it does not cover marks,
labels or the frame. If every series is a single point there is no legend: a label that does not fit next to its mark is
farther away, with a line to it, and points at the same position share a label. In other plots such a label is omitted;
the tooltip names the point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import cos, floor, log10, pi, sin
from textwrap import wrap
from typing import TypeAlias

from pipesched.model.numbers import shown
from pipesched.support.safe import safe

WIDTH, HEIGHT = 720, 440
_LEFT, _TOP, _BOTTOM = 64, 40, 52  # margins
_LEGEND, _BARE = 200, 24  # the right margin, with a legend and without
_LINE = 15  # pixels from one line of a note to the next
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")  # distinct for the colour-blind
_SHAPES = ("circle", "square", "diamond", "up", "down", "cross")
_STYLE = """\
text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #24292f }
.label { font-size: 10px }
.title { font-size: 14px; font-weight: 600 }
.frame { stroke: #57606a; fill: none }
.grid { stroke: #d0d7de }
.front { stroke: #57606a; stroke-dasharray: 5 4; fill: none }
.lead { stroke: #8b949e }
.back { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .back { fill: #0d1117 }
  .grid { stroke: #30363d }
  .frame, .front { stroke: #8b949e }
}"""


Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
Spot: TypeAlias = tuple[float, float]
Said: TypeAlias = Callable[[Fraction], str]
_LETTER, _MARK = 6, 6  # pixels: the width of a letter, and half the width of a mark


@dataclass(frozen=True)
class Point:
    """A point of a series. note: the text that distinguishes the point in its series, shown as a tooltip."""

    x: Fraction
    y: Fraction
    series: str
    note: str = ""


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels, with marks at round numbers."""

    low: Fraction
    step: Fraction
    steps: int
    begin: int
    end: int

    @property
    def marks(self) -> list[Fraction]:
        return [self.low + self.step * i for i in range(self.steps + 1)]

    def at(self, value: Fraction) -> str:
        """Return the position of a value in pixels, to a tenth."""
        exact = self.begin + (self.end - self.begin) * (value - self.low) / (self.step * self.steps)
        return f"{round(float(exact), 1):g}"


def plot(
    points: Sequence[Point],
    *,
    x: str,
    y: str,
    title: str = "",
    frontier: bool = False,
    notes: Sequence[str] = (),
    said: tuple[Said, Said] = (shown, shown),
) -> str:
    """Return the points as an SVG file. x, y: the axis titles. frontier: join the Pareto-optimal points (smaller x and
    y are better). notes: text under the plot. said: functions that format x and y in tooltips.
    """
    series = list(dict.fromkeys(point.series for point in points))
    legend = len(points) > len(series) or len(points) == 1
    below = _wrapped(notes)
    low = max(HEIGHT - _BOTTOM, _TOP + 20 * (len(series) + 1))  # a plot with more points is larger
    frame = (_LEFT, _TOP, WIDTH - (_LEGEND if legend else _BARE), low)
    across = axis([point.x for point in points], frame[0], frame[2])
    up = axis([point.y for point in points], frame[3], frame[1])
    best = front(points) if frontier else []
    lines = [*_head(low + _BOTTOM + _LINE * len(below), title, f"{y} against {x}"), *_axes(across, up, frame, x, y)]
    lines += _joined(best, across, up)
    for number, name in enumerate(series):
        mine = [point for point in points if point.series == name]
        lines += _series(mine, number, across, up, said)
        lines += _legend(name, number) if legend else []
    spots, ends = _spots(points, across, up), _spots(best, across, up)
    if legend:
        lines += labels(distinct_notes([(point.series, point.note) for point in points]), spots, frame)
    else:
        lines += labels(*_together([point.series for point in points], spots), frame, pairwise(ends))
    for number, line in enumerate(below):
        lines.append(f'<text class="label" x="{_LEFT}" y="{low + 58 + _LINE * number}">{safe(line, "xml")}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _wrapped(notes: Sequence[str]) -> list[str]:
    """Wrap notes to the width of the plot."""
    wide = (WIDTH - _LEFT - _BARE) // _LETTER
    return [line for note in notes for line in wrap(note, wide, subsequent_indent="  ")]


def _joined(best: Sequence[Point], across: Axis, up: Axis) -> Iterator[str]:
    """Yield the line through the Pareto-optimal points."""
    if best:
        path = " ".join(f"{across.at(point.x)},{up.at(point.y)}" for point in best)
        yield f'<polyline class="front" points="{path}"/>'


def _head(height: int, title: str, axes: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{safe(title or axes, "xml")}">',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{_LEFT}" y="24">{safe(title, "xml")}</text>',
    ]


def _spots(points: Sequence[Point], across: Axis, up: Axis) -> list[Spot]:
    return [(float(across.at(point.x)), float(up.at(point.y))) for point in points]


def front(points: Sequence[Point]) -> list[Point]:
    """Return the Pareto front, from left to right."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (point.x, point.y)):
        if not best or point.y < best[-1].y:
            best.append(point)
    return best


def axis(values: Sequence[Fraction], begin: int, end: int) -> Axis:
    """Return an axis from 0, or below, to a round number at or above the largest value, in steps of 1, 2 or 5."""
    high, low = max([*values, Fraction(0)]), min([*values, Fraction(0)])
    spread = (high - low) or Fraction(1)
    power = Fraction(10) ** floor(log10(float(spread / 5)))
    step = next(power * x for x in (1, 2, 5, 10) if spread / (power * x) <= 8)
    first = low // step
    return Axis(first * step, step, max(1, int(-(-high // step) - first)), begin, end)


def _axes(across: Axis, up: Axis, frame: Box, x: str, y: str) -> Iterator[str]:
    left, top, right, bottom = map(int, frame)
    for mark in across.marks:
        at = across.at(mark)
        yield f'<line class="grid" x1="{at}" y1="{top}" x2="{at}" y2="{bottom}"/>'
        yield f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{shown(mark)}</text>'
    for mark in up.marks:
        at = up.at(mark)
        yield f'<line class="grid" x1="{left}" y1="{at}" x2="{right}" y2="{at}"/>'
        yield f'<text x="{left - 8}" y="{at}" dy="4" text-anchor="end">{shown(mark)}</text>'
    yield f'<rect class="frame" x="{left}" y="{top}" width="{right - left}" height="{bottom - top}"/>'
    yield f'<text x="{(left + right) // 2}" y="{bottom + 40}" text-anchor="middle">{safe(x, "xml")}</text>'
    middle = (top + bottom) // 2
    yield f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{safe(y, "xml")}</text>'


def _series(points: Sequence[Point], number: int, across: Axis, up: Axis, said: tuple[Said, Said]) -> Iterator[str]:
    """Yield a line through the points, and a mark on each with its note."""
    color, shape = _COLORS[number % len(_COLORS)], _SHAPES[number % len(_SHAPES)]
    spots = [(across.at(point.x), up.at(point.y)) for point in points]
    if len(spots) > 1:
        path = " ".join(f"{a},{b}" for a, b in spots)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-opacity="0.5"/>'
    for point, (a, b) in zip(points, spots, strict=True):
        title = f"{point.series} {point.note}: {said[0](point.x)}, {said[1](point.y)}".replace("  ", " ")
        yield f'<g transform="translate({a} {b})"><title>{safe(title, "xml")}</title>{_mark(shape, color)}</g>'


def _legend(name: str, number: int) -> Iterator[str]:
    color, shape = _COLORS[number % len(_COLORS)], _SHAPES[number % len(_SHAPES)]
    left, top = WIDTH - _LEGEND + 20, _TOP + 12 + 20 * number
    text = f'<text x="12" y="4">{safe(name, "xml")}</text>'
    yield f'<g transform="translate({left} {top})">{_mark(shape, color)}{text}</g>'


def _mark(shape: str, color: str) -> str:
    if shape == "circle":
        return f'<circle r="5" fill="{color}"/>'
    drawn = {
        "square": "M-4.5-4.5h9v9h-9z",
        "diamond": "M0-6L6 0L0 6L-6 0z",
        "up": "M0-6L5.5 4.5H-5.5z",
        "down": "M0 6L5.5-4.5H-5.5z",
        "cross": "M-5-5L5 5M5-5L-5 5",
    }
    fill = "none" if shape == "cross" else color
    return f'<path d="{drawn[shape]}" fill="{fill}" stroke="{color}" stroke-width="1.5"/>'


def distinct_notes(points: Sequence[tuple[str, str]]) -> list[str]:
    """Return a label for each (series, note): the series or, if it has several points, the words of the note that do
    not occur in all notes of the series. The label is empty if there is only one point.
    """
    notes: dict[str, list[set[str]]] = {}
    for series, note in points:
        notes.setdefault(series, []).append(set(note.split()))
    shared = {series: set.intersection(*own) for series, own in notes.items()}
    return [
        " ".join(word for word in note.split() if word not in shared[series])
        if len(notes[series]) > 1
        else series * (len(notes) > 1)
        for series, note in points
    ]


def _together(texts: Sequence[str], spots: Sequence[Spot]) -> tuple[list[str], list[Spot]]:
    """Merge texts at the same spot into one text, in their order."""
    found: dict[Spot, list[str]] = {}
    for text, spot in zip(texts, spots, strict=True):
        found.setdefault(spot, []).append(text)
    return [", ".join(names) for names in found.values()], list(found)


def labels(
    texts: Sequence[str], spots: Sequence[Spot], frame: Box, drawn: Iterable[tuple[Spot, Spot]] | None = None
) -> Iterator[str]:
    """Yield the text of each spot if it fits next to the spot. drawn: lines that no text may cover; if given, a text
    that does not fit is put at the end of a line from its spot.
    """
    marks = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in spots]
    taken, lines = list[Box](), list(drawn or ())
    for text, (x, y) in zip(texts, spots, strict=True):
        wide = _LETTER * len(text)
        for (left, base), end in _places(x, y, wide, afar=drawn is not None):
            box = (left, base - 9, left + wide, base + 2)
            if (
                not text
                or not _free(box, frame, (*marks, *taken), lines)
                or (end and any(_meets((x, y), end, other) for other in taken))
            ):
                continue
            taken.append(box)
            if end:
                lines.append(((x, y), end))
                yield f'<line class="lead" x1="{x:g}" y1="{y:g}" x2="{end[0]:g}" y2="{end[1]:g}"/>'
            yield f'<text class="label" x="{left:g}" y="{base:g}">{safe(text, "xml")}</text>'
            break


def _places(x: float, y: float, wide: float, *, afar: bool) -> Iterator[tuple[Spot, Spot | None]]:
    """Yield the places for a label of width `wide`: next to its spot, then at the end of a line."""
    for at in ((x + 9, y + 4), (x - 9 - wide, y + 4), (x - wide / 2, y - 9), (x - wide / 2, y + 17)):
        yield at, None
    if afar:
        yield from _afar(x, y, wide)


def _afar(x: float, y: float, wide: float) -> Iterator[tuple[Spot, Spot]]:
    """Yield places for a label of width `wide` around a spot, near ones first, each with the end of its line."""
    for far in range(18, WIDTH, 6):
        for turn in range(16):
            angle = pi * (turn + 0.5) / 8
            end = (round(x + far * cos(angle), 1), round(y + far * sin(angle), 1))
            yield (end[0] + 2 if cos(angle) > 0 else end[0] - 2 - wide, end[1] + 3.5), end


def _free(box: Box, frame: Box, boxes: Iterable[Box], lines: Iterable[tuple[Spot, Spot]]) -> bool:
    """Return True if a box is within the frame and does not cover anything."""
    within = box[0] > frame[0] and box[1] > frame[1] and box[2] < frame[2] and box[3] < frame[3]
    return within and not any(_overlap(box, x) for x in boxes) and not any(_meets(*line, box) for line in lines)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _meets(begin: Spot, end: Spot, box: Box) -> bool:
    """Return True if a line crosses a box: its parts within the width and the height of the box overlap."""
    low, high = 0.0, 1.0
    for a, b, least, most in zip(begin, end, box[:2], box[2:], strict=True):
        if a == b:
            if not least < a < most:
                return False
        else:
            first, last = sorted(((least - a) / (b - a), (most - a) / (b - a)))
            low, high = max(low, first), min(high, last)
    return low < high
