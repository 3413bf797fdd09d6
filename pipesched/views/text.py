"""A chart in characters: ranks down, time across.

             0    5    10   15                           the time
    rank 0   F0F1F2F3· · · B0  F4B1  ...                 a slot, its idle time as dots
    rank 1     ...

             0 to 4 activations, | between phases   peak
    rank 0   ▂▄▆█████|█████▆|▄▂                        4  what it holds

Where all fits, every slot has the columns of its time. Else a column holds several slots and shows the kind that
takes most of it: in upper case if that is nearly all, a dot if that is no kind at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from textwrap import wrap

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Column
from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.views import cells, palette, verdict
from pipesched.views.axis import WHOLE, Axis, Window, axis, ruler, shortest
from pipesched.views.chart import Chart
from pipesched.views.levels import highest
from pipesched.views.phases import Phases, phases

_LEAST = 24  # columns without which no picture is of use
_NEARLY = Fraction(9, 10)  # of a column: all of it
_SPARKS = ("▁▂▃▄▅▆▇█", "_.-:=+*#")
_SHOWN = 8  # ranks that stop, named one by one


@dataclass(frozen=True)
class Text:
    """How to write a chart: columns in all, the part of time, colour, ASCII alone."""

    width: int = 80
    window: Window = WHOLE
    color: bool = False
    ascii: bool = False


def render(chart: Chart, how: Text | None = None) -> str:
    """The chart as lines of at most `width` characters, each ended.

    Raises:
        PipeschedError: PS225, a width below 24 columns, or a window without time.
    """
    how = how or Text()
    if how.width < _LEAST:
        raise fail(Code.USAGE, f"{how.width} columns are too few to draw in", help=f"give at least {_LEAST}")
    lines = _Drawing(chart, how).lines()
    return "".join(line.rstrip() + "\n" for line in lines)


@dataclass(frozen=True, eq=False)
class _Drawing:
    chart: Chart
    how: Text

    def lines(self) -> Iterator[str]:
        yield from self._title()
        yield ""
        yield " " * self._left + ruler(self._axis, self.chart)
        for rank in range(self.chart.schedule.ranks):
            yield self._name(rank) + self._slots(rank)
        yield from self._stopped()
        yield ""
        yield from self._memory()
        yield ""
        yield from self._legend()

    @cached_property
    def _left(self) -> int:
        return len(self._name(self.chart.schedule.ranks - 1))

    def _name(self, rank: int) -> str:
        digits = len(str(self.chart.schedule.ranks - 1))
        return f"rank {rank:<{digits}} "

    @cached_property
    def _peaks(self) -> list[str]:
        return [shown(peak) for peak in self.chart.held.peak]

    @cached_property
    def _axis(self) -> Axis:
        """The columns between the names and the peaks."""
        room = max(1, self.how.width - self._left - 1 - max(map(len, ["peak", *self._peaks])))
        return axis(self.chart, room, self.how.window, cells.widest(self.chart, self._many))

    @cached_property
    def _many(self) -> bool:
        return cells.chunks(self.chart) > 2

    @cached_property
    def _labels(self) -> cells.Labels:
        fits = cells.widest(self.chart, True) * self._axis.step <= shortest(self.chart)
        return cells.Labels(self.chart, self._chunk, self._many and fits, self.how.color)

    @cached_property
    def _chunk(self) -> Column:
        return cells.chunk_column(self.chart)

    @cached_property
    def _kinds(self) -> Column:
        return cells.kinds(self.chart)

    @cached_property
    def _phases(self) -> Phases:
        return phases(self.chart.schedule, self.chart.times)

    @property
    def _mixed(self) -> bool:
        """Whether columns hold more than one slot."""
        return shortest(self.chart) < self._axis.step

    @property
    def _dot(self) -> str:
        return "." if self.how.ascii else "·"

    def _title(self) -> Iterator[str]:
        chart = self.chart
        sizes = " ".join(f"{name}={value}" for name, value in chart.sizes.items())
        yield from self._wrapped("  ".join(part for part in (chart.title, sizes, f" {verdict.cost(chart)}") if part))
        at = self._axis
        scale = (
            f"1 column = {_units(at.step / chart.scale)}"
            if at.unit <= 1
            else f"{at.unit} columns = {_units(at.unit * at.step / chart.scale)}"
        )
        part = (at.begin, at.end) != (0, max(chart.times.makespan, 1))
        window = f"time {shown(chart.time(at.begin))} to {shown(chart.time(at.end))} of {shown(chart.makespan)}; "
        yield from self._wrapped((window if part else "") + scale)

    def _slots(self, rank: int) -> str:
        return self._mixture(rank) if self._mixed else self._row(rank)

    def _row(self, rank: int) -> str:
        """Slot by slot: there are no more of them than columns."""
        at, times, start = self._axis, self.chart.times, self.chart.schedule.start
        low, high = int(start[rank]), int(start[rank + 1])
        inside = (times.end[low:high] > at.begin) & (times.start[low:high] < at.end) & (times.start[low:high] >= 0)
        index = low + np.flatnonzero(inside & ~self.chart.schedule.joined[low:high])
        edges = zip(
            index.tolist(), at.edge(times.start[index]).tolist(), at.edge(times.end[index]).tolist(), strict=True
        )
        row, column = "", 0
        for i, begin, end in edges:
            row += self._idle(column, begin) + self._paint(i, self._labels.fill(i, end - begin))
            column = max(column, end)
        return row + self._idle(column, at.columns)

    def _idle(self, begin: int, end: int) -> str:
        """A dot for each unit of time, in every column if that is scaled."""
        every = self._axis.unit or 1
        return "".join(" " if column % every else self._dot for column in range(begin, end))

    def _paint(self, index: int, text: str) -> str:
        if not self.how.color:
            return text
        schedule = self.chart.schedule
        if self._kinds[index] < len(Op.__members__) and self._kinds[index] != cells.KINDS.index("+"):
            return palette.paint(text, palette.TERMINAL[Op(int(schedule.op[index]))][self._chunk[index] % 2])
        half = len(text) // 3 or len(text) - 1  # the F of a pair, then its backward
        first, second = (palette.TERMINAL[Op(int(schedule.op[i]))][self._chunk[i] % 2] for i in (index, index + 1))
        plus = text.find("+")
        half = plus if plus > 0 else half
        return palette.paint(text[:half], first) + palette.paint(text[half:], second)

    def _mixture(self, rank: int) -> str:
        """The kind that takes most of each column."""
        at = self._axis
        share = cells.shares(self.chart, self._kinds, rank, at)
        whole = np.diff(at.bounds)
        most, best = share.argmax(axis=0), share.max(axis=0)
        pure = best * _NEARLY.denominator >= whole * _NEARLY.numerator
        busy = share.sum(axis=0)
        text = ""
        for kind, full, used, length in zip(most.tolist(), pure.tolist(), busy.tolist(), whole.tolist(), strict=True):
            text += self._mark(kind, full) if 2 * used > length else self._dot
        return text

    def _mark(self, kind: int, full: bool) -> str:
        letter = cells.KINDS[kind]
        text = letter if full else letter.lower()
        if not self.how.color:
            return text
        colour = palette.MIXED if letter == "+" else palette.TERMINAL[Op[letter]][0 if full else 1]
        return palette.paint(text, colour)

    def _stopped(self) -> Iterator[str]:
        """What never runs."""
        stuck = [(rank, i) for rank, i in enumerate(self.chart.times.stuck) if i >= 0]
        for rank, i in stuck[:_SHOWN]:
            step = self.chart.schedule.step(i)
            yield from self._wrapped(f"rank {rank} stops before {self.chart.schedule[i]} (step {step})")
        if len(stuck) > _SHOWN:
            yield f"and {len(stuck) - _SHOWN} more ranks stop"

    def _memory(self) -> Iterator[str]:
        """A spark line for each rank over the same columns, and its peak."""
        top = max(self.chart.held.peak, default=Fraction(0))
        head = f"memory: 0 to {shown(top)} activations, {self._bar} between phases"
        right = max(map(len, ["peak", *self._peaks]))
        wide = self._left + self._axis.columns
        fits = len(head) <= wide
        if not fits:
            yield from self._wrapped(head)
        yield f"{head if fits else '':<{wide}} {'peak':>{right}}"
        for rank in range(self.chart.schedule.ranks):
            yield f"{self._name(rank)}{self._spark(rank, top)} {self._peaks[rank]:>{right}}"

    @property
    def _bar(self) -> str:
        return "|" if self.how.ascii else "│"

    def _spark(self, rank: int, top: Fraction) -> str:
        sparks = _SPARKS[self.how.ascii]
        most = max(int(top / self.chart.held.part), 1)
        held = np.maximum(highest(self.chart, rank, self._axis.bounds), 0)
        level = -(-held * (len(sparks) - 1) // most)
        line = [sparks[min(x, len(sparks) - 1)] for x in level.tolist()]
        for instant in {int(self._phases.steady[rank]), int(self._phases.cooling[rank])}:
            if self._axis.begin < instant < self._axis.end:
                line[int(self._axis.column(np.array(instant)))] = self._bar
        return "".join(line)

    def _legend(self) -> Iterator[str]:
        """The letters that occur, and what else cannot be guessed."""
        seen = set(np.unique(self._kinds).tolist())
        words = {"F": "forward", "I": "backward, input", "W": "backward, weights", "B": "full backward"}
        words["+"] = "overlap, one slot"
        texts = [f"{letter} {words[letter]}" for i, letter in enumerate(cells.KINDS) if i in seen]
        for line in self._filled([*texts, f"{self._dot} idle"]):
            yield "   ".join(map(self._key, line))
        if self._mixed:
            percent = f"{_NEARLY * 100} %"
            yield from self._wrapped(f"a column shows what takes most of it; in lower case less than {percent}")
        elif self._labels.stages:
            yield from self._wrapped("F9.5 is stage 9, microbatch 5; odd chunks of a rank in lower case")
        elif cells.chunks(self.chart) > 1:
            yield from self._wrapped("the number is the microbatch; odd chunks of a rank in lower case")
        else:
            yield from self._wrapped("the number is the microbatch")
        unseen = verdict.timeless(self.chart)
        if unseen:
            yield from self._wrapped(f"{unseen} operation{'s' * (unseen > 1)} of no duration cannot be seen")
        meaning = "warm-up until the first backward of a rank, cool-down after its last forward, steady between"
        yield from self._wrapped(meaning)

    def _wrapped(self, text: str) -> list[str]:
        """As many lines as that takes."""
        return wrap(text, self.how.width, drop_whitespace=True, break_on_hyphens=False) or [""]

    def _filled(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Texts by line, three blanks apart."""
        line: list[str] = []
        for text in texts:
            if line and len("   ".join([*line, text])) > self.how.width:
                yield line
                line = []
            line.append(text)
        yield line

    def _key(self, text: str) -> str:
        letter = text[0]
        if not self.how.color or letter not in Op.__members__:
            return text
        return palette.paint(letter, palette.TERMINAL[Op[letter]][0]) + text[1:]


def _units(time: Fraction) -> str:
    return f"{shown(time)} unit{'' if time == 1 else 's'} of time"
