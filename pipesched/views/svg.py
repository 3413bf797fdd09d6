r"""Draws a chart as an SVG file: a figure for a paper, a README, or a slide.

    title: makespan and bubble
    rank 0  [F0][F1][F2][F3]            [B0    ]     the width of a slot is its time; an overlap pair is two halves
              [O0][O1]                               copies out and in, where activations are offloaded
            ▁▁▂▂▃▃▄▄                                 memory of the rank, on demand
    rank 1      [F0]\                                messages as arrows, on demand
    0    5    10                                     the time, the legend

No library is used; the same chart gives the same bytes. The figure has its own background; colours follow
the reader's light or dark scheme if the viewer supports it (`prefers-color-scheme`), and the light scheme otherwise.

PDF and PNG are rendered by cairosvg in the light scheme; a PDF has a fixed date.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from math import ceil
from types import ModuleType

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Column
from pipesched.model.ops import Op
from pipesched.support.safe import safe
from pipesched.views import palette
from pipesched.views.chart import caption, slots
from pipesched.views.chart.axis import WHOLE, Viewport, nice, unit
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.colours import STRIP_FILL
from pipesched.views.chart.views import Request
from pipesched.views.codes import ViewsCode
from pipesched.views.palette import plain_sheet, sheet
from pipesched.views.svg_shapes import Cells, Frame, Stop, number

MAX_OPS = 50_000
"""The largest number of operations drawn without --force; their figure has about 10 MB, at which viewers stall."""

_LETTER = 7  # width of a letter in the shortest slot, if the picture then stays narrower than
_WIDEST = 2400
_ROW, _GAP, _CURVE, _LANES = 24, 8, 22, 22
_TOP = 52


@dataclass(frozen=True)
class Svg:
    """A request for a figure. style: default, zero-bubble or megatron. force: draw any number of operations.

    pixels: the pixels per tick, None for as many as fit. words: text to show instead of the times.
    """

    style: str = "default"
    messages: bool = False
    memory: bool = False
    viewport: Viewport = WHOLE
    force: bool = False
    pixels: Fraction | None = None
    words: str = ""


def asked(how: Request) -> Svg:
    """Return the figure that the options of `show` describe."""
    given = {name: how.more[name] for name in ("style", "messages", "memory", "force") if name in how.more}
    return Svg(viewport=how.viewport, **given)


def render(chart: Chart, how: Svg | None = None) -> str:
    """Return the chart as an SVG document.

    Raises:
        PipeschedError: PS225: the style is unknown or the viewport is empty; PS815: there are too many operations.
    """
    how = how or Svg()
    if len(chart.schedule) > MAX_OPS and not how.force:
        message = f"{len(chart.schedule):,} operations are too many for a figure; the limit is {MAX_OPS:,}"
        raise fail(ViewsCode.TOO_LARGE, message, help="draw fewer microbatches, draw text or a page, or give --force")
    return "\n".join(_Page(chart, how).lines()) + "\n"


def note(words: str) -> str:
    """Return a line of text as an SVG document, for a schedule that cannot be drawn."""
    size = f'width="{20 + 7 * len(words)}" height="32"'
    css = f'<style>{plain_sheet()}</style><rect class="pipesched" width="100%" height="100%"/>'
    text = f'<text class="pipesched" x="10" y="20">{safe(words, "xml")}</text>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{css}{text}</svg>\n'


class _Page:
    """Lays out the document of a figure, from top to bottom."""

    def __init__(self, chart: Chart, how: Svg) -> None:
        self.chart, self.how, self.style = chart, how, palette.style(how.style)
        self.paper = self.style.name != "default"
        self.begin, self.end = how.viewport.ticks(chart)
        ranks = chart.schedule.ranks
        self.left = 12 + 7 * len(f"{self.style.row} {ranks}")
        curve = _CURVE if how.memory else 0
        lanes = _LANES if chart.times.copies is not None else 0
        self.pitch = _ROW + lanes + curve + (0 if self.paper and not how.memory else _GAP)
        self.frame = Frame(
            self._pixels(), self.begin, self.end, self.left, _TOP, pitch=self.pitch, row=_ROW, curve=curve, lanes=lanes
        )
        self.cells = Cells(chart, self.style, self.frame)
        self.foot = _TOP + self.pitch * ranks
        self.stop = Stop(chart, chart.analysis.standstill, self.frame) if chart.analysis.standstill else None
        tail = self.stop.width if self.stop else 0
        least = 24 + (7 if self.stop else 6) * len(self._cost())  # for the title, which is not cut
        self.width = max(ceil(self.frame.x(self.end)) + tail + (40 if how.memory else 14), 420, least)
        self.key = list(self._placed())
        self.height = max((y for _, y, _, _ in self.key), default=self.foot + 12) + 24

    def _pixels(self) -> Fraction:
        """Return the pixels per tick: a whole number per unit of time if that fits."""
        if self.how.pixels is not None:
            return self.how.pixels
        one = unit(self.chart, self.begin)
        slot = 4 + _LETTER * max(3, slots.widest(self.chart, stages=self.chart.chunks > 2 and not self.style.numbers))
        per_unit = Fraction(slot * one, min(self.chart.shortest, self.end - self.begin))
        widest = Fraction(_WIDEST * one, self.end - self.begin)
        if per_unit > widest:
            per_unit = widest
        if per_unit >= 1:
            return Fraction(min(ceil(per_unit), max(int(widest), 1)), one)
        return per_unit / one

    def lines(self) -> Iterator[str]:
        outline = 0.6 if self.frame.length(self.chart.shortest) > 8 else 0.15
        scope, css = sheet(self.style, self._seen(), self.chart.chunks, outline)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{scope}" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img">'
        )
        name, cost = caption.heading(self.chart), self.how.words or caption.cost(self.chart)
        yield f"<title>{safe(f'{name}, {cost}', 'xml')}</title>"
        yield f"<style>{css}</style>"
        yield f'<path class="z" d="M0 0H{self.width}V{self.height}H0z"/>'
        words = ((20, "t h", name), (38, "v" if self.stop else "t", self._cost()))
        for y, kind, text in words:
            yield f'<text class="{kind}" x="12" y="{y}" xml:space="preserve">{safe(text, "xml")}</text>'
        drawn = self.cells
        yield from self._rows()
        yield from drawn.slots()
        yield from drawn.strips()
        yield from drawn.copies()
        if self.how.memory:
            yield from drawn.curves()
        if not self.paper:
            yield from drawn.marks()
        if self.how.messages:
            yield from drawn.messages(scope)
        if self.stop:
            yield from replace(self.stop, scope=scope).lines()
        yield from self._time()
        yield from self._legend(scope)
        yield "</svg>"

    def _cost(self) -> str:
        """Return the times in the words of the style, or the given words."""
        if self.how.words:
            return self.how.words
        cost = caption.cost(self.chart, self.style.cost)
        if (self.begin, self.end) == (0, max(self.chart.times.makespan, 1)):
            return cost
        return f"{cost}; time {self.chart.said(self.begin)} to {self.chart.said(self.end)}"

    def _seen(self) -> list[tuple[Op, int]]:
        """Return every kind and chunk that occurs."""
        pairs: Column = np.unique(np.stack([self.chart.schedule.op, self.chart.chunk], axis=1), axis=0)
        return [(Op(op), chunk) for op, chunk in pairs.tolist()]

    def _rows(self) -> Iterator[str]:
        """Yield the name of each rank, and the background that shows its idle time."""
        for rank in range(self.chart.schedule.ranks):
            y = self.frame.y(rank)
            name = f"{self.style.row} {rank + self.style.first}"
            yield f'<text class="t" x="12" y="{number(y + Fraction(_ROW, 2) + 4)}">{name}</text>'
            kind = "i s" if self.style.idle else "l"
            shape = f'x="{self.left}" y="{number(y)}" width="{number(self.frame.length(self.end - self.begin))}"'
            if self.paper:
                yield f'<rect class="{kind}" {shape} height="{_ROW}"/>'
            else:
                x = number(self.frame.x(self.end))
                yield f'<path class="l" d="M{self.left} {number(y + _ROW)}H{x}" stroke-dasharray="1 3"/>'

    def _time(self) -> Iterator[str]:
        """Yield the time axis: numbers at round steps, or an arrow as in the papers."""
        y = self.foot + 4
        if self.paper:
            yield f'<text class="t" x="12" y="{y + 14}">Time</text>'
            yield f'<path class="l" d="M{self.left} {y + 10}h60m-5 -3l5 3l-5 3"/>'
            return
        scale = self.chart.scale
        gap = nice(min(Fraction(40) / self.frame.pixels, Fraction(self.end - self.begin, 2)) / scale) * scale
        mark = ceil(Fraction(self.begin) / gap) * gap
        while mark <= self.end:
            x, when = number(self.frame.x(mark)), self.chart.unit.mark(mark / scale)
            yield f'<path class="l" d="M{x} {y}v4"/><text class="t c" x="{x}" y="{y + 16}">{when}</text>'
            mark += gap

    def _legend(self, scope: str) -> Iterator[str]:
        """Yield the legend of colours and marks, on as many lines as needed."""
        for x, y, kind, words in self.key:
            if kind:
                fills = {"x": f"url(#{scope}h)", "strip": STRIP_FILL}
                hatched = f' style="fill:{fills[kind]}"' if kind in fills else ""
                yield f'<rect class="{kind} s"{hatched} x="{x}" y="{y}" width="16" height="12"/>'
            yield f'<text class="t" x="{x + 21 * bool(kind)}" y="{y + 10}">{safe(words, "xml")}</text>'

    def _placed(self) -> Iterator[tuple[int, int, str, str]]:
        """Yield the entries of the legend: position, class of the swatch, text."""
        start = self.left + (84 if self.paper else 0)
        x, y = start, self.foot + (6 if self.paper else 30)
        for kind, words in self._entries():
            wide = int(21 * bool(kind) + 7 * len(words))
            if x > start and x + wide > self.width:
                x, y = start, y + 18
            yield x, y, kind, words
            x += wide + 14

    def _entries(self) -> Iterator[tuple[str, str]]:
        seen = {op for op, _ in self._seen()}
        for op in sorted(seen):
            yield f"{op.name}0", self.style.words(op)
        if self.chart.chunks > 1:
            yield "", f"lighter: {self.chart.later}"
        if self.cells.form == "stage":
            yield "", "F9.5: stage 9, microbatch 5"
        if self.chart.schedule.joined.any():
            yield "", "two halves: an overlap"
        for name in self.chart.strips:
            yield "strip", name
        if not self.paper:
            yield "", "bars: warm-up | steady | cool-down"
        if self.chart.stepped:
            yield "", "triangles: STEP"
        if self.how.memory:
            yield "", "grey: activations held, with the peak at the right"
        if caption.timeless(self.chart):
            yield "", f"operations without duration, not visible: {caption.timeless(self.chart)}"
        if self.how.messages:
            yield "f0", "activation"
            yield "g0", "gradient"
        if self.chart.analysis.standstill:
            yield "x", "waits forever"


def pixels(chart: Chart, how: Svg) -> Fraction:
    """Return the width of a tick of the chart in pixels."""
    return _Page(chart, how).frame.pixels


def size(document: str) -> tuple[int, int]:
    """Return the width and height of a document that `render` made."""
    width, height = (int(document.split(f'{key}="', 1)[1].split('"', 1)[0]) for key in ("width", "height"))
    return width, height


_SCALE = 2  # pixels of a PNG per pixel of the figure, so that it is sharp on paper
_LARGEST = 32_000  # most pixels of a side, cairo's limit


def written(document: str, format: str) -> str | bytes:
    """Return a document that `render` made as ``svg``, ``pdf`` or ``png``.

    Raises:
        PipeschedError: PS820: cairosvg or the library cairo is not installed; PS815: the figure is too large for a PNG.
    """
    if format == "svg":
        return document
    cairo = _cairo(format)
    if format == "pdf":
        return _pdf(cairo, document)
    side = max(size(document))
    if side > _LARGEST:
        message = f"a figure of {side:,} pixels is too large for a PNG; the limit is {_LARGEST:,}"
        raise fail(ViewsCode.TOO_LARGE, message, help="write it as .svg or .pdf, or draw a part with --from and --to")
    return bytes(cairo.svg2png(bytestring=document.encode(), scale=min(_SCALE, _LARGEST / side)))


def _cairo(format: str) -> ModuleType:
    """Return the module cairosvg, which loads the library cairo."""
    wanted = f"a {format.upper()} needs cairosvg"
    try:
        return import_module("cairosvg")
    except ImportError:
        help = "pip install 'pipesched[views]', or write the figure as .svg"
        raise fail(Code.NEEDS, f"{wanted}, which is not installed", help=help) from None
    except OSError:
        help = "apt-get install libcairo2, or brew install cairo; or write the figure as .svg"
        raise fail(Code.NEEDS, f"{wanted}, which cannot find the library cairo", help=help) from None


def _pdf(cairo: ModuleType, document: str) -> bytes:
    """Return a PDF with a fixed date."""
    from cairocffi import PDF_METADATA_CREATE_DATE

    class Undated(cairo.surface.PDFSurface):  # type: ignore[name-defined, misc]
        def finish(self) -> None:
            self.cairo.set_metadata(PDF_METADATA_CREATE_DATE, "1970-01-01T00:00:00Z")
            super().finish()

    return bytes(Undated.convert(bytestring=document.encode()))
