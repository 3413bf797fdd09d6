"""A plot of the bytes that every rank holds over time, stacked by kind, with its cap as a line.

    80 GB ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  the cap
          │      ▟█▙▟█▙▟█▙            activations, for W, messages, working: change with each operation
          │████████████████████       parameters, gradients, optimizer
          └──────────────────── time

Time is divided into columns. Each column shows the instant at which the rank holds the most; an operation's bytes count
from its start until the next one starts. In a terminal, each kind is a letter; a page also has the table by rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipesched.model.columns import Ints
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.footprint import KINDS, Footprint, footprint
from pipesched.planning.footprint_report import InBytes
from pipesched.planning.workload import byte_caps
from pipesched.support.safe import safe
from pipesched.views.chart import caption
from pipesched.views.chart.axis import Viewport
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.views import COLUMNS, Request
from pipesched.views.svg import written

LETTERS = dict(zip(KINDS, "PGOAWVMXR", strict=True))
_FILL = dict(
    zip(
        KINDS,
        ("#7f7f7f", "#a9a9a9", "#cfcfcf", "#56b4e9", "#e69f00", "#0072b2", "#009e73", "#cc79a7", "#f0e442"),
        strict=True,
    )
)  # distinct for all kinds of colour vision, as in `views.palette`
_COLUMNS, _LEFT, _TOP, _GAP = 800, 90, 74, 26
_STYLE = """\
text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #24292f }
.title { font-size: 14px; font-weight: 600 }
.back { fill: #ffffff }
.frame { stroke: #57606a; fill: none }
.cap { stroke: #d55e00; stroke-width: 1.5; stroke-dasharray: 6 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .back { fill: #0d1117 }
  .frame { stroke: #8b949e }
}"""


@dataclass(frozen=True, eq=False)
class _Stack:
    """The data of a plot. used: the bytes that each rank holds. columns: for each rank, the bytes of each kind, shape
    (kinds, columns). top: the upper end of the scale.
    """

    chart: Chart
    used: Footprint
    columns: tuple[Ints, ...]
    begin: int
    end: int

    @property
    def caps(self) -> tuple[Fraction, ...] | None:
        """The caps in bytes, by rank."""
        return byte_caps(self.chart.analysis)

    @property
    def top(self) -> int:
        """The largest number of bytes among the peaks and the caps."""
        return max(1, *(int(x.sum(axis=0).max()) for x in self.columns), *map(int, self.caps or ()))

    def words(self, rank: int) -> str:
        """Describe a rank's peak and the operation at which the rank reaches it."""
        at, most = self.used.peak_at[rank], sum(self.used.peaks[rank].values())
        where = f" at {self.used.schedule[at]}" if at >= 0 else ""
        return f"rank {rank}: {gigabytes(most)}{where}"

    @property
    def heading(self) -> str:
        model, _ = self.used.trained
        cap = f"; cap {gigabytes(max(self.caps))}" if self.caps else ""
        return f"{caption.heading(self.chart)}  {model.name}{cap}"


def _stack(chart: Chart, count: int, viewport: Viewport) -> _Stack:
    used = chart.analysis.fact(footprint)
    assert used is not None
    begin, end = viewport.ticks(chart)
    edges = begin + np.arange(count + 1, dtype=np.int64) * (end - begin) // count
    return _Stack(chart, used, tuple(_of(chart, used, r, edges) for r in range(used.schedule.ranks)), begin, end)


def _of(chart: Chart, used: Footprint, rank: int, edges: Ints) -> Ints:
    """Return the bytes of a rank as an array of shape (kinds, columns)."""
    low, high = used.schedule.start[rank : rank + 2].tolist()
    ran = low + np.flatnonzero(chart.times.start[low:high] >= 0)
    changing = np.stack([column[ran] for column in used.held.values()])
    nothing = np.zeros((len(changing), 1), dtype=np.int64)
    changing = np.concatenate([nothing, changing, nothing], axis=1)
    last = chart.times.end[ran].max(initial=0)
    begins = np.concatenate([[-1], chart.times.start[ran], [last]])
    first, after = np.searchsorted(begins, edges[:-1], "right") - 1, np.searchsorted(begins, edges[1:], "left")
    total = changing.sum(axis=0)
    most = [i + int(np.argmax(total[i : max(j, i + 1)])) for i, j in zip(first.tolist(), after.tolist(), strict=True)]
    fixed = np.array([used.at(rank, -1)[kind] for kind in KINDS[: len(KINDS) - len(changing)]], dtype=np.int64)
    return np.concatenate([np.repeat(fixed[:, None], len(most), axis=1), changing[:, most]])


def text(chart: Chart, width: int, viewport: Viewport, *, ascii: bool = False) -> str:
    """Draw the plot with characters, with the ranks one below the other."""
    edge, dash = ("|", "-") if ascii else ("│", "┄")
    made = _stack(chart, max(width - 11, 10), viewport)
    rows = 8 if len(made.columns) <= 4 else 5
    lines = [made.heading]
    for rank, stack in enumerate(made.columns):
        lines.append(made.words(rank))
        heights = np.cumsum(stack, axis=0)
        for row in range(rows - 1, -1, -1):
            level = made.top * (2 * row + 1) // (2 * rows)
            which = (heights <= level).sum(axis=0)
            cap = made.caps is not None and row == (int(made.caps[rank]) * rows - 1) // made.top
            empty = dash if cap else " "
            cells = "".join(LETTERS[KINDS[kind]] if kind < len(KINDS) else empty for kind in which.tolist())
            label = gigabytes(Fraction(made.top * (row + 1), rows)) if row in (rows - 1, 0) else ""
            lines.append(f"{label:>9} {edge}{cells}".rstrip())
    there = [kind for number, kind in enumerate(KINDS) if any(x[number].any() for x in made.columns)]
    return "\n".join([*lines, "  ".join(f"{LETTERS[kind]} {kind}" for kind in there), ""])


def figure(chart: Chart, viewport: Viewport) -> str:
    """Draw the plot as an SVG document."""
    made = _stack(chart, _COLUMNS, viewport)
    tall = 110 if len(made.columns) <= 8 else 64
    width, height = _LEFT + _COLUMNS + 20, _TOP + (tall + _GAP) * len(made.columns) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{safe(made.heading, "xml")}">',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
        f'<text class="title" x="{_LEFT}" y="24">{safe(made.heading, "xml")}</text>',
        *_legend(made),
    ]
    for rank in range(len(made.columns)):
        lines += _panel(made, rank, _TOP + (tall + _GAP) * rank, tall)
    return "\n".join([*lines, "</svg>", ""])


def _legend(made: _Stack) -> Iterator[str]:
    across = _LEFT
    for number, kind in enumerate(KINDS):
        if any(stack[number].any() for stack in made.columns):
            yield f'<rect x="{across}" y="36" width="12" height="12" fill="{_FILL[kind]}"/>'
            yield f'<text x="{across + 17}" y="46">{kind}</text>'
            across += 34 + 7 * len(kind)


def _panel(made: _Stack, rank: int, top: int, tall: int) -> Iterator[str]:
    """Draw a rank's memory stacked by kind, with the cap and the scale."""
    bottom, stack = top + tall, made.columns[rank]
    heights = np.concatenate([np.zeros((1, _COLUMNS), dtype=np.int64), np.cumsum(stack, axis=0)])
    pixel = np.round(bottom - tall * heights / made.top, 1)
    yield f'<text x="{_LEFT}" y="{top - 6}">{made.words(rank)}</text>'
    for number, kind in enumerate(KINDS):
        if stack[number].any():
            most = gigabytes(int(stack[number].max()))
            path = _steps(pixel[number + 1], forward=True) + _steps(pixel[number], forward=False)
            yield f'<path d="M{path}z" fill="{_FILL[kind]}"><title>{kind}: up to {most}</title></path>'
    if made.caps:
        at = round(bottom - tall * int(made.caps[rank]) / made.top, 1)
        yield f'<line class="cap" x1="{_LEFT}" y1="{at:g}" x2="{_LEFT + _COLUMNS}" y2="{at:g}"/>'
    yield f'<rect class="frame" x="{_LEFT}" y="{top}" width="{_COLUMNS}" height="{tall}"/>'
    for at, said in ((top + 10, gigabytes(made.top)), (bottom, "0")):
        yield f'<text x="{_LEFT - 6}" y="{at}" text-anchor="end">{said}</text>'
    if rank == len(made.columns) - 1:
        begin, end = (made.chart.said(ticks) for ticks in (made.begin, made.end))
        yield f'<text x="{_LEFT}" y="{bottom + 16}">{begin}</text>'
        yield f'<text x="{_LEFT + _COLUMNS}" y="{bottom + 16}" text-anchor="end">{end}</text>'


def _steps(level: np.ndarray[tuple[int, ...], np.dtype[np.float64]], *, forward: bool) -> str:
    """Return the SVG points of a step curve, from left to right if `forward`, otherwise from right to left."""
    cut = np.flatnonzero(np.diff(level)) + 1
    ends = list(zip([0, *cut.tolist()], [*cut.tolist(), len(level)], strict=True))
    points = [(x, level[low]) for low, high in ends for x in (low, high)]
    return " ".join(f"{_LEFT + x},{y:g}" for x, y in (points if forward else reversed(points))) + " "


def page(chart: Chart, viewport: Viewport) -> str:
    """Return a self-contained page: the figure, and the table by rank."""
    made = _stack(chart, 10, viewport)
    assumed = (f"assumed: {said}" for said in (*chart.analysis.rests_on, *made.used.assumed))
    table = "\n".join([*InBytes.of(made.used, made.caps).lines(), "", *assumed])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{safe(made.heading, 'xml')}</title>\n"
        "<style>:root { color-scheme: light dark } svg { max-width: 100%; height: auto }</style>\n"
        f"</head>\n<body>\n{figure(chart, viewport)}<pre>{safe(table, 'xml')}</pre>\n</body>\n</html>\n"
    )


def draw_text(chart: Chart, how: Request, over: object) -> str:
    """Draw the bytes with characters, for `show`."""
    return text(chart, how.width or COLUMNS, how.viewport, ascii=how.ascii)


def draw_svg(chart: Chart, how: Request, over: object) -> str | bytes:
    """Draw the bytes as a figure."""
    return written(figure(chart, how.viewport), how.written)


def draw_html(chart: Chart, how: Request, over: object) -> str:
    """Draw the bytes as a page."""
    return page(chart, how.viewport)
