"""Draws the shapes of a figure: rectangles, numbers, arrows, curves, and the marks of a run that stops for good.

    rank 0  [F0][F1]    [B0][F2]//✗ 0SEND_F2 waits for 1RECV_F2//|--.
                                                                    | message
    rank 1      [F0][B0][F1][B1]//✗ 1SEND_B1 waits for 0RECV_B1//|<-'

Hatching, the cross and the arrows mark a deadlock without relying on colour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from pipesched.analysis.standstill import Link, Standstill
from pipesched.model.columns import RESULT, Column, Ints
from pipesched.model.numbers import shown
from pipesched.model.ops import COPIED, Op, Result
from pipesched.support.record import Record
from pipesched.support.safe import safe
from pipesched.views import marks
from pipesched.views.chart import caption
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.colours import STRIP_FILL
from pipesched.views.chart.slots import phases, steps
from pipesched.views.palette import Style
from pipesched.views.places import Places, places

_LETTERS, _HALF = 10.5, 8.5  # pixels of a label's letter in a whole cell, and in half of one
_WIDE = Fraction(62, 100)  # width of a letter, relative to its size
_MARGIN = 3
_STRIP = 4  # height of a strip in a slot


def _digits(values: Column) -> Column:
    return np.char.str_len(values.astype(np.str_))


def number(value: Fraction | int | float) -> str:
    """Format a number with at most three decimals."""
    return f"{float(value):.3f}".rstrip("0").rstrip(".")


def most_fit(widths: Column, lengths: Column) -> bool:
    """Return True if at least nine of ten labels fit. widths, lengths: of each slot and of its label, in pixels."""
    return 10 * int(np.count_nonzero(lengths <= widths)) >= 9 * len(widths)


@dataclass(frozen=True)
class Frame:
    """The positions of times and ranks on the page, in pixels. pixels: pixels per tick. begin, end: the viewport, in
    ticks. pitch: the distance between rows. lanes: the height of the copies, between a row and its memory curve.
    """

    pixels: Fraction
    begin: int
    end: int
    left: int
    top: int
    pitch: int
    row: int
    curve: int
    lanes: int = 0

    def x(self, ticks: int | Fraction) -> Fraction:
        return self.left + self.length(ticks - self.begin)

    def length(self, ticks: int | Fraction) -> Fraction:
        return self.pixels * ticks

    def y(self, rank: int) -> int:
        return self.top + self.pitch * rank


class Cells(Record):
    """Draws what is inside the frame: slots, copies, memory curves, messages."""

    chart: Chart
    style: Style
    frame: Frame

    def slots(self) -> Iterator[str]:
        """Yield a rectangle with a tooltip for each operation that takes time in the viewport, rank by rank."""
        schedule, times, frame = self.chart.schedule, self.chart.times, self.frame
        inside = (times.start >= 0) & (times.end > frame.begin) & (times.start < frame.end)
        inside &= times.end > times.start
        for rank in range(schedule.ranks):
            low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
            yield "<g>"
            for i in (low + np.flatnonzero(inside[low:high])).tolist():
                yield self._slot(i, rank)
                if i in self.chart.stepped:
                    x, y = frame.x(min(int(times.end[i]), frame.end)), frame.y(rank) + frame.row
                    yield f'<g><title>STEP</title><path class="t" d="M{number(x)} {y}l-4 6h8z"/></g>'
            yield "</g>"

    def strips(self) -> Iterator[str]:
        """Yield the marked parts of slots, along the lower edge of their row."""
        times, frame, rank = self.chart.times, self.frame, self.chart.schedule.rank
        edges = Fraction(frame.begin), Fraction(frame.end)
        for name, every in self.chart.strips.items():
            for i in (i for i, parts in enumerate(every) if parts and times.start[i] >= 0):
                start, whole = int(times.start[i]), int(times.end[i] - times.start[i])
                y = frame.y(int(rank[i])) + frame.row - _STRIP
                for share in every[i]:
                    low, high = (min(max(start + x * whole, edges[0]), edges[1]) for x in share)
                    box = f'x="{number(frame.x(low))}" y="{number(y)}" width="{number(frame.length(high - low))}"'
                    shape = f'<rect {box} height="{_STRIP}" fill="{STRIP_FILL}">'
                    yield from [f"{shape}<title>{safe(name, 'xml')}</title></rect>"] * (low < high)

    def copies(self) -> Iterator[str]:
        """Yield the copies under each rank: copies to the host above copies back."""
        found, frame, schedule = self.chart.times.copies, self.frame, self.chart.schedule
        if found is None:
            return
        shown_ = (found.start >= 0) & (found.end > frame.begin) & (found.start < frame.end) & (found.end > found.start)
        half = Fraction(frame.lanes - 2, 2)
        for k in np.flatnonzero(shown_).tolist():
            i, ticks = int(found.op[k]), (int(found.start[k]), int(found.end[k]))
            begin, end = max(ticks[0], frame.begin), min(ticks[1], frame.end)
            rank, op = int(schedule.rank[i]), Op(int(schedule.op[i]))
            x, width = frame.x(begin), frame.length(end - begin)
            y = frame.y(rank) + frame.row + 1 + half * (op not in COPIED)
            kind = f"{op.name}{self.chart.chunk[i]}"
            box = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(half)}"'
            words = f"{self._named(i, rank)}: {self.chart.said(ticks[0])} to {self.chart.said(ticks[1])}"
            label = self._label(i, width, float(half) - 1, (x + width / 2, y + half / 2), kind)
            yield f'<g><title>{safe(words, "xml")}</title><rect class="{kind} s" {box}/>{label}</g>'

    def _slot(self, i: int, rank: int) -> str:
        schedule, frame = self.chart.schedule, self.frame
        begin = max(int(self.chart.times.start[i]), frame.begin)
        end = min(int(self.chart.times.end[i]), frame.end)
        second, paired = bool(schedule.joined[i]), bool(schedule.paired[i])
        y = Fraction(frame.y(rank)) + (Fraction(frame.row, 2) if second else 0)
        height = Fraction(frame.row, 2 if paired else 1)
        kind = f"{Op(int(schedule.op[i])).name}{self.chart.chunk[i]}"
        x, width = frame.x(begin), frame.length(end - begin)
        box = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        label = self._label(i, width, _HALF if paired else _LETTERS, (x + width / 2, y + height / 2), kind)
        return f'<g><title>{self._tooltip(i, rank)}</title><rect class="{kind} s" {box}/>{label}</g>'

    def _label(self, i: int, width: Fraction, size: float, middle: tuple[Fraction, Fraction], kind: str) -> str:
        """Return the label of a slot, or an empty string if it does not fit."""
        microbatch = str(int(self.chart.schedule.microbatch[i]) + self.style.first)
        stage = f"{self.chart.schedule.stage[i]}." if self.form == "stage" else ""
        text = kind[0] * (self.form != "number") + stage + microbatch
        if _MARGIN + len(text) * _WIDE * Fraction(size) > width:
            return ""
        x, y = number(middle[0]), number(middle[1] + Fraction(size) * Fraction(36, 100))
        return f'<text class="c n{kind}" x="{x}" y="{y}" style="font-size:{size}px">{text}</text>'

    @cached_property
    def form(self) -> str:
        """The longest form that fits: stage (``F9.5``; more than two chunks), letter (``F5``) or number (``5``)."""
        forms = ["number"] if self.style.numbers else ["stage", "letter", "number"][self.chart.chunks <= 2 :]
        return next((form for form in forms if self._fits(form)), "number")

    def _fits(self, form: str) -> bool:
        """Return True if a form of label fits in nearly all slots."""
        schedule, times = self.chart.schedule, self.chart.times
        letters = _digits(schedule.microbatch + self.style.first) + (form != "number")
        if form == "stage":
            letters += 1 + _digits(schedule.stage)
        need = _MARGIN + letters * float(_WIDE) * np.where(schedule.paired, _HALF, _LETTERS)
        lasting = times.end > times.start
        return most_fit((times.end - times.start)[lasting] * float(self.frame.pixels), need[lasting])

    def _tooltip(self, i: int, rank: int) -> str:
        """Return the tooltip of an operation."""
        chart, at = self.chart, self._places
        times = f"{chart.said(chart.times.start[i])} to {chart.said(chart.times.end[i])}"
        place = f"; {at.name}:{at.line[i]}:{at.column[i]}" if at.line[i] else ""
        return safe(f"{self._named(i, rank)}: {times}; held {shown(chart.analysis.memory.at(i))}{place}", "xml")

    def _named(self, i: int, rank: int) -> str:
        schedule = self.chart.schedule
        what = f"{Op(int(schedule.op[i])).name} of stage {schedule.stage[i]}, microbatch {schedule.microbatch[i]}"
        return f"{what} on rank {rank}"

    @cached_property
    def _places(self) -> Places:
        return places(self.chart.schedule)

    def marks(self) -> Iterator[str]:
        """Yield the bars between the phases of each rank."""
        frame = self.frame
        for rank in range(self.chart.schedule.ranks):
            for instant in sorted(set(phases(self.chart, rank))):
                if frame.begin < instant < frame.end:
                    yield f'<path class="k" d="M{number(frame.x(instant))} {frame.y(rank) - 3}v{frame.row + 6}"/>'

    def messages(self, scope: str) -> Iterator[str]:
        """Yield an arrow from the end of each producer to the start of its consumer on another rank."""
        yield (
            f'<defs><marker id="{scope}p" class="p" viewBox="0 0 6 6" refX="6" refY="3" '
            'markerWidth="5" markerHeight="5" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
        )
        schedule, times, found = self.chart.schedule, self.chart.times, self.chart.analysis.dependencies.messages()
        for sender, i in zip(found.producer.tolist(), found.consumer.tolist(), strict=True):
            begin, end = int(times.end[sender]), int(times.start[i])
            if end < 0:
                continue
            first, last = max(begin, self.frame.begin), min(end, self.frame.end)
            if first < last or first == last == begin == end:  # an operation that takes no time may be at the edge
                head = f' marker-end="url(#{scope}p)"' if end <= self.frame.end else ""
                line = self._arrow(int(schedule.rank[sender]), begin, int(schedule.rank[i]), end)
                yield f'<path class="{"f" if RESULT[schedule.op[i]] == Result.ACTIVATION else "g"}"{head} d="{line}"/>'

    def _arrow(self, source: int, begin: int, target: int, end: int) -> str:
        """Return an arrow from the lower edge of a row to the upper edge of a later one, or back, cut to fit."""
        frame, down = self.frame, target > source
        top = frame.y(source) + (frame.row if down else 0)
        rise = frame.y(target) + (0 if down else frame.row) - top
        first, last, whole = max(begin, frame.begin), min(end, frame.end), (end - begin) or 1
        y0 = top + Fraction(rise * (first - begin), whole)
        y1 = top + rise - Fraction(rise * (end - last), whole)
        return f"M{number(frame.x(first))} {number(y0)}L{number(frame.x(last))} {number(y1)}"

    def curves(self) -> Iterator[str]:
        """Yield the memory curve of each rank, with its peak at the right; all curves have the same scale."""
        held, frame = self.chart.analysis.memory, self.frame
        most = max(held.peak, default=Fraction(0)) or Fraction(1)
        for rank in range(self.chart.schedule.ranks):
            base = frame.y(rank) + frame.row + frame.lanes + frame.curve
            path = self._stairs(rank, base, (frame.curve - 3) / (most / held.part))
            yield f'<path class="m" d="{path}"/>'
            x = number(frame.x(frame.end) + 4)
            yield f'<text class="t" x="{x}" y="{base}">{shown(held.peak[rank])}</text>'

    def _stairs(self, rank: int, base: int, each: Fraction) -> str:
        """Return the closed path of a rank's memory curve. each: pixels per `memory.part`."""
        frame = self.frame
        when, held = outline(*steps(self.chart, rank))
        path = f"M{number(frame.x(frame.begin))} {base}"
        for instant, parts in zip(when.tolist(), held.tolist(), strict=True):
            x = frame.x(min(max(instant, frame.begin), frame.end))
            path += f"H{number(x)}V{number(base - each * max(parts, 0))}"
        return path + f"H{number(frame.x(frame.end))}V{base}z"


def outline(when: Ints, held: Ints) -> tuple[Ints, Ints]:
    """Return the steps as a line to draw. Of several steps at one instant it keeps only the last, preceded by the
    highest if that is larger, so that freeing one activation and allocating another at the same time makes no notch,
    and no peak is lost.
    """
    first = np.flatnonzero(np.concatenate([np.ones(1, dtype=np.bool_), when[1:] > when[:-1]]))
    last = np.append(first[1:], len(when)) - 1
    most, rest = np.maximum.reduceat(held, first), held[last]
    juts = most > np.maximum(rest, np.append(0, rest[:-1]))
    instants, values = np.repeat(when[first], 2), np.stack([most, rest], axis=1).ravel()
    kept = np.stack([juts, np.ones(len(first), dtype=np.bool_)], axis=1).ravel()
    return instants[kept], values[kept]


_LETTER, _LANE = 8, 12  # pixels of a bold letter, and between messages


class Stop(Record):
    """The drawing of a stalled run, to the right of the last operations. scope: the class of the figure."""

    chart: Chart
    stop: Standstill
    frame: Frame
    scope: str = ""

    @property
    def shown(self) -> bool:
        """True if the drawn interval reaches the last operation."""
        return self.frame.end >= self.chart.times.makespan

    @property
    def width(self) -> int:
        """The width of this drawing, in pixels."""
        return self._label + 10 + _LANE * (max(self._lanes.values(), default=-1) + 1) if self.shown else 0

    @cached_property
    def _marks(self) -> list[marks.Mark]:
        return marks.marks(self.stop)

    @property
    def _label(self) -> int:
        return 26 + _LETTER * max(len(mark.words) for mark in self._marks)

    @property
    def _edge(self) -> float:
        """The right end of the rows of waiting ranks."""
        return float(self.frame.x(self.frame.end)) + (self._label if self.shown else 0)

    @cached_property
    def _lanes(self) -> dict[Link, int]:
        """The lane of each message; messages that span a common rank have different lanes."""
        busy: list[set[int]] = []
        lanes: dict[Link, int] = {}
        for x in sorted(marks.messages(self.stop), key=lambda x: abs(x.other - x.blocked.rank)):
            low, high = sorted(x.ends)
            rows = set(range(low, high + 1))
            lane = next((i for i, taken in enumerate(busy) if not taken & rows), len(busy))
            busy[lane:] = [busy[lane] | rows if lane < len(busy) else rows, *busy[lane + 1 :]]
            lanes[x] = lane
        return lanes

    def lines(self) -> Iterator[str]:
        """Yield the waiting rows, then the messages."""
        yield (
            f'<defs><pattern id="{self.scope}h" width="6" height="6" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate(45)"><path class="e" d="M0 0v6"/></pattern>'
            f'<marker id="{self.scope}q" class="q" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="9" '
            'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
        )
        for mark in self._marks:
            yield from self._row(mark)
        if self.shown:
            yield from (self._message(x, lane) for x, lane in self._lanes.items())

    def _row(self, mark: marks.Mark) -> Iterator[str]:
        """Yield the hatched mark in the row of a waiting rank, from the end of its last operation on."""
        frame, start = self.frame, self.chart.schedule.start
        until = int(self.chart.times.end[int(start[mark.rank]) : int(start[mark.rank + 1])].max(initial=0))
        if until > frame.end:
            return
        left, y = float(frame.x(max(until, frame.begin))), frame.y(mark.rank)
        box = f'x="{number(left)}" y="{y}" width="{number(self._edge - left)}" height="{frame.row}"'
        fill = f' style="fill:url(#{self.scope}h)"' if mark.cycle else ""
        title = safe(mark.sentence, "xml")
        yield f'<rect class="{"x" if mark.cycle else "w"}"{fill} {box}><title>{title}</title></rect>'
        if self.shown:
            yield from self._words(left, y + frame.row / 2, mark.words, cycle=mark.cycle)

    def _words(self, x: float, y: float, text: str, *, cycle: bool) -> Iterator[str]:
        """Yield words on the background of the page, so that the hatching does not cross them."""
        wide = _LETTER * len(text) + (22 if cycle else 6)
        yield f'<rect class="z" x="{number(x + 3)}" y="{number(y - 8)}" width="{wide}" height="16"/>'
        if cycle:
            yield f'<path class="u" d="M{number(x + 7)} {number(y - 4)}l8 8m0 -8l-8 8"/>'
        at = number(x + (22 if cycle else 6))
        yield f'<text class="{"v" if cycle else "t"}" x="{at}" y="{number(y + 4)}">{safe(text, "xml")}</text>'

    def _message(self, x: Link, lane: int) -> str:
        """Return the arrow from the sender's row to the receiver's, or a line if neither rank sends."""
        source, target = x.ends
        edge, lean = self._edge, self._edge + 10 + _LANE * lane
        leaves, arrives = (self.frame.y(rank) + self.frame.row * part for rank, part in ((source, 0.7), (target, 0.3)))
        head = f' marker-end="url(#{self.scope}q)"' if x.direction else ""
        path = f"M{number(edge)} {number(leaves)}H{number(lean)}V{number(arrives)}H{number(edge + 1)}"
        return f'<path class="r"{head} d="{path}"><title>{safe(caption.link(x), "xml")}</title></path>'
