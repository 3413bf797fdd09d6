"""The slots of a chart as SVG: rectangles, numbers, arrows, curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from pipesched.model.columns import Column
from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.safe import safe
from pipesched.views.cells import most_fit
from pipesched.views.chart import Chart
from pipesched.views.levels import outline, steps
from pipesched.views.palette import Style
from pipesched.views.phases import phases
from pipesched.views.places import Places, places

_LETTERS, _HALF = 10.5, 8.5  # pixels of a label in a whole cell, and in half of one
_WIDE = Fraction(62, 100)  # of a letter, in its size
_MARGIN = 3


def _need(letters: int, size: float) -> Fraction:
    """The pixels of a label, with its margin."""
    return _MARGIN + letters * _WIDE * Fraction(size)


def _digits(values: Column) -> Column:
    return np.char.str_len(values.astype(np.str_))


def number(value: Fraction | int | float) -> str:
    """At most three decimals."""
    return f"{float(value):.3f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Frame:
    """Where time and ranks are on the page. pixels: a tick. begin, end: of the window in ticks."""

    pixels: Fraction
    begin: int
    end: int
    left: int
    top: int
    pitch: int
    row: int
    curve: int

    def x(self, ticks: int | Fraction) -> Fraction:
        return self.left + self.length(ticks - self.begin)

    def length(self, ticks: int | Fraction) -> Fraction:
        return self.pixels * ticks

    def y(self, rank: int) -> int:
        return self.top + self.pitch * rank


@dataclass(frozen=True, eq=False)
class Cells:
    """What is inside the frame."""

    chart: Chart
    style: Style
    chunk: Column
    chunks: int
    frame: Frame

    def slots(self) -> Iterator[str]:
        """A rectangle for each operation that takes time in the window, by rank, in order; it tells what it is."""
        schedule, times, frame = self.chart.schedule, self.chart.times, self.frame
        inside = (times.start >= 0) & (times.end > frame.begin) & (times.start < frame.end)
        inside &= times.end > times.start
        for rank in range(schedule.ranks):
            low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
            yield "<g>"
            for i in (low + np.flatnonzero(inside[low:high])).tolist():
                yield self._slot(i, rank)
            yield "</g>"

    def _slot(self, i: int, rank: int) -> str:
        schedule, frame = self.chart.schedule, self.frame
        begin = max(int(self.chart.times.start[i]), frame.begin)
        end = min(int(self.chart.times.end[i]), frame.end)
        second = bool(schedule.joined[i])
        paired = second or (i + 1 < len(schedule) and bool(schedule.joined[i + 1]))
        y = Fraction(frame.y(rank)) + (Fraction(frame.row, 2) if second else 0)
        height = Fraction(frame.row, 2 if paired else 1)
        kind = f"{Op(int(schedule.op[i])).name}{self.chunk[i]}"
        x, width = frame.x(begin), frame.length(end - begin)
        box = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        label = self._label(i, width, _HALF if paired else _LETTERS, (x + width / 2, y + height / 2), kind)
        return f'<g><title>{self._told(i, rank)}</title><rect class="{kind} s" {box}/>{label}</g>'

    def _label(self, i: int, width: Fraction, size: float, middle: tuple[Fraction, Fraction], kind: str) -> str:
        """What every slot bears, if there is room for it here."""
        microbatch = str(int(self.chart.schedule.microbatch[i]) + self.style.first)
        stage = f"{self.chart.schedule.stage[i]}." if self.form == "stage" else ""
        text = kind[0] * (self.form != "number") + stage + microbatch
        if _need(len(text), size) > width:
            return ""
        x, y = number(middle[0]), number(middle[1] + Fraction(size) * Fraction(36, 100))
        return f'<text class="c n{kind}" x="{x}" y="{y}" style="font-size:{size}px">{text}</text>'

    @cached_property
    def form(self) -> str:
        """What all labels say: ``F9.5`` by stage of more than two chunks, else ``F5`` by letter, else ``5``."""
        forms = ["number"] if self.style.numbers else ["stage", "letter", "number"][self.chunks <= 2 :]
        return next((form for form in forms if self._fits(form)), "number")

    def _fits(self, form: str) -> bool:
        """Whether nearly all slots have room for it."""
        schedule, times = self.chart.schedule, self.chart.times
        letters = _digits(schedule.microbatch + self.style.first) + (form != "number")
        if form == "stage":
            letters += 1 + _digits(schedule.stage)
        paired = schedule.joined | np.append(schedule.joined[1:], False)[: len(schedule)]
        need = _MARGIN + letters * float(_WIDE) * np.where(paired, _HALF, _LETTERS)
        lasting = times.end > times.start
        return most_fit((times.end - times.start)[lasting] * float(self.frame.pixels), need[lasting])

    def _told(self, i: int, rank: int) -> str:
        """What a reader sees who points at it."""
        chart, schedule, at = self.chart, self.chart.schedule, self._places
        op = Op(int(schedule.op[i]))
        times = f"{shown(chart.time(chart.times.start[i]))} to {shown(chart.time(chart.times.end[i]))}"
        what = f"{op.name} of stage {schedule.stage[i]}, microbatch {schedule.microbatch[i]}"
        place = f"; {at.name}:{at.line[i]}:{at.column[i]}" if at.line[i] else ""
        return safe(f"{what} on rank {rank}: {times}; held {shown(chart.held.at(i))}{place}", "xml")

    @cached_property
    def _places(self) -> Places:
        return places(self.chart.schedule)

    def marks(self) -> Iterator[str]:
        """Bars between the phases of each rank."""
        found, frame = phases(self.chart.schedule, self.chart.times), self.frame
        for rank in range(self.chart.schedule.ranks):
            for instant in sorted({int(found.steady[rank]), int(found.cooling[rank])}):
                if frame.begin < instant < frame.end:
                    yield f'<path class="k" d="M{number(frame.x(instant))} {frame.y(rank) - 3}v{frame.row + 6}"/>'

    def messages(self, scope: str) -> Iterator[str]:
        """An arrow from the end of each producer to the start of who needs it on another rank."""
        yield (
            f'<defs><marker id="{scope}p" class="p" viewBox="0 0 6 6" refX="6" refY="3" '
            'markerWidth="5" markerHeight="5" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
        )
        schedule, times, dependencies = self.chart.schedule, self.chart.times, self.chart.dependencies
        for i in np.flatnonzero(dependencies.crosses & (times.start >= 0)).tolist():
            sender = int(dependencies.producer[i])
            begin, end = int(times.end[sender]), int(times.start[i])
            if self._visible(begin, end):
                head = f' marker-end="url(#{scope}p)"' if end <= self.frame.end else ""
                line = self._arrow(int(schedule.rank[sender]), begin, int(schedule.rank[i]), end)
                yield f'<path class="{"f" if schedule.op[i] == Op.F else "g"}"{head} d="{line}"/>'

    def _arrow(self, source: int, begin: int, target: int, end: int) -> str:
        """From the lower edge of a row to the upper edge of one below it, or the other way round; cut at the window."""
        frame, down = self.frame, target > source
        top = frame.y(source) + (frame.row if down else 0)
        rise = frame.y(target) + (0 if down else frame.row) - top
        first, last, whole = max(begin, frame.begin), min(end, frame.end), (end - begin) or 1
        y0 = top + Fraction(rise * (first - begin), whole)
        y1 = top + rise - Fraction(rise * (end - last), whole)
        return f"M{number(frame.x(first))} {number(y0)}L{number(frame.x(last))} {number(y1)}"

    def _visible(self, begin: int, end: int) -> bool:
        """Whether some of a message is in the window; one that takes no time may be at its edge."""
        first, last = max(begin, self.frame.begin), min(end, self.frame.end)
        return first < last or first == last == begin == end

    def curves(self) -> Iterator[str]:
        """What each rank holds, on one scale for all, and its peak at the right."""
        held, frame = self.chart.held, self.frame
        most = max(held.peak, default=Fraction(0)) or Fraction(1)
        for rank in range(self.chart.schedule.ranks):
            base = frame.y(rank) + frame.row + frame.curve
            path = self._stairs(rank, base, (frame.curve - 3) / (most / held.part))
            yield f'<path class="m" d="{path}"/>'
            x = number(frame.x(frame.end) + 4)
            yield f'<text class="t" x="{x}" y="{base}">{shown(held.peak[rank])}</text>'

    def _stairs(self, rank: int, base: int, each: Fraction) -> str:
        """A closed path of horizontals and verticals; each: pixels a part."""
        frame = self.frame
        when, held = outline(*steps(self.chart, rank))
        path = f"M{number(frame.x(frame.begin))} {base}"
        for instant, parts in zip(when.tolist(), held.tolist(), strict=True):
            x = frame.x(min(max(instant, frame.begin), frame.end))
            path += f"H{number(x)}V{number(base - each * max(parts, 0))}"
        return path + f"H{number(frame.x(frame.end))}V{base}z"
