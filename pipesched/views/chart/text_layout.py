"""Lays out a chart in characters: names of ranks, columns of time, peaks, and the label of each slot.

F5       forward of microbatch 5         f5    the same on an odd chunk (or on the second route)
F9.5     with stage 9, if a rank has more than two chunks and it fits
F5+b2    an overlap pair, one slot; or F5b2, F+b, + if that is too wide
FFF      too narrow for numbers          12    in colour, too narrow for letters
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil

import numpy as np

from pipesched.model.columns import Column, Ints, among
from pipesched.model.numbers import shown
from pipesched.model.ops import COPIED, Op
from pipesched.support.record import Record
from pipesched.views.chart.axis import WHOLE, Axis, Viewport, axis
from pipesched.views.chart.chart import Chart, shortest
from pipesched.views.chart.slots import KINDS, phases, widest
from pipesched.views.rows import Shares

SIGNS = {"idle": "·.", "cycle": "✗X", "wait": "…~", "phase": "│|", "strip": "--"}
"""The characters for each meaning: the usual one, and its ASCII substitute."""


@dataclass(frozen=True)
class Text:
    """The form of a chart: its width in columns, the time interval, and whether to use colour, or ASCII only."""

    width: int = 80
    viewport: Viewport = WHOLE
    color: bool = False
    ascii: bool = False

    def sign(self, meaning: str) -> str:
        """Return the character for idle time, a rank in the cycle or waiting for it, the end of a phase, or a strip."""
        return SIGNS[meaning][self.ascii]


class Bars(Record):
    """The bars of all rows, row by row. op: the operation, or the first part of a pair. start, end: times in ticks.
    cut: the index at which each row begins, then the number of bars; shape (rows + 1,).
    """

    op: Ints
    start: Ints
    end: Ints
    cut: Ints


class Layout(Record):
    """A chart, its form, and the layout derived from both."""

    chart: Chart
    how: Text

    def name(self, rank: int) -> str:
        """Return the name that is shown before a row."""
        digits = len(str(self.chart.schedule.ranks - 1))
        return f"rank {rank:<{digits}} "

    @property
    def left(self) -> int:
        """The width of a name."""
        return len(self.name(0))

    @cached_property
    def peaks(self) -> list[str]:
        """The peak of each rank, as shown after its row of memory."""
        return [shown(peak) for peak in self.chart.analysis.memory.peak]

    @cached_property
    def right(self) -> int:
        """The width of a peak, and of its heading."""
        return max(map(len, ["peak", *self.peaks]))

    @cached_property
    def axis(self) -> Axis:
        """The columns between names and peaks."""
        columns = max(1, self.how.width - self.left - 1 - max(self.right, self._mark))
        return axis(self.chart, columns, self.how.viewport, widest(self.chart, self.chart.chunks > 2))

    @cached_property
    def slots(self) -> Bars:
        """The slots of each rank, without operations that did not run."""
        schedule, times = self.chart.schedule, self.chart.times
        op = np.flatnonzero((times.start >= 0) & ~schedule.joined)
        cut = np.searchsorted(schedule.rank[op], np.arange(schedule.ranks + 1))
        return Bars(op, times.start[op], times.end[op], cut)

    @cached_property
    def copies(self) -> Bars | None:
        """The copies, if activations are offloaded: two rows per rank, out and in."""
        schedule, found = self.chart.schedule, self.chart.times.copies
        if found is None:
            return None
        ran = found.start >= 0
        op = found.op[ran]
        row = 2 * schedule.rank[op].astype(np.int64) + ~among(schedule.op[op], COPIED)
        return Bars(op, found.start[ran], found.end[ran], np.searchsorted(row, np.arange(2 * schedule.ranks + 1)))

    @cached_property
    def stops(self) -> dict[int, tuple[str, bool]]:
        """For each rank that stops for good within the picture, its mark, and whether it is in the cycle."""
        stop = self.chart.analysis.standstill
        if stop is None:
            return {}
        reached = [x for x in stop.waiting if self.chart.last(x.rank) <= self.axis.end]
        cycle = {x.rank: x.rank in stop.ranks for x in reached}
        signs = {rank: self.how.sign("cycle" if of_it else "wait") for rank, of_it in cycle.items()}
        return {x.rank: (signs[x.rank] + x.at * (self._mark > 1), cycle[x.rank]) for x in reached}

    @cached_property
    def _mark(self) -> int:
        """The columns of the longest mark; 1 (only the sign) if it would take more than a third of the columns."""
        stop = self.chart.analysis.standstill
        longest = max((1 + len(x.at) for x in stop.waiting), default=0) if stop else 0
        return longest if 3 * longest <= self.how.width - self.left else 1

    @property
    def mixed(self) -> bool:
        """True if columns contain more than one slot."""
        return self.finer(self.slots)

    def finer(self, bars: Bars) -> bool:
        """Return True if the shortest bar is shorter than a column."""
        return shortest(bars.end - bars.start) < self.axis.step

    @cached_property
    def stages(self) -> bool:
        """True if stages are shown, ``F9.5`` instead of ``F5``: with more than two chunks, if all slots fit."""
        return self.chart.chunks > 2 and widest(self.chart, True) * self.axis.step <= self.chart.shortest

    @cached_property
    def numbered(self) -> bool:
        """True if a letter and a digit fit in the longest slot."""
        return int((self.chart.times.end - self.chart.times.start).max(initial=0)) >= 2 * self.axis.step

    def naming(self, *, stages: bool) -> int:
        """Return the smallest total width at which all labels fit, with or without stages."""
        slots = Fraction(self.axis.end - self.axis.begin, self.chart.shortest)
        return self.left + ceil(slots * widest(self.chart, stages)) + 1 + self.right

    @cached_property
    def phases(self) -> list[tuple[int, ...]]:
        """The ends of every rank's warm-up and steady phase, in ticks."""
        return [phases(self.chart, rank) for rank in range(self.chart.schedule.ranks)]

    @cached_property
    def kinds(self) -> Column:
        """The kind of every operation as an index into `KINDS`: both parts of a pair are +."""
        return np.where(self.chart.schedule.paired, KINDS.index("+"), self.chart.schedule.op)

    @property
    def chunked(self) -> bool:
        """True if mixed columns show chunks, which is readable while a column spans at most two slots."""
        return self.chart.chunks > 1 and self.axis.step <= 2 * self.chart.shortest

    def letter(self, index: int) -> str:
        """Return the letter of an operation, in lower case for odd chunks."""
        letter = Op(int(self.chart.schedule.op[index])).name
        return letter.lower() if self.chart.chunk[index] % 2 else letter

    def label(self, index: int) -> str:
        """Return the label of an operation: letter and microbatch, with the stage between them if stages are shown."""
        schedule = self.chart.schedule
        stage = f"{schedule.stage[index]}." if self.stages else ""
        return f"{self.letter(index)}{stage}{schedule.microbatch[index]}"

    def fill(self, index: int, width: int) -> str:
        """Return the text of a slot, exactly `width` characters: a label that fits, or letters."""
        first, letter = self.label(index), self.letter(index)
        if self.chart.schedule.paired[index]:
            second = self.label(index + 1)
            choices, filler = [f"{first}+{second}", first + second, f"{letter}+{self.letter(index + 1)}"], "+"
        else:
            choices, filler = ([first, first[1:]][self._form :][:1] if self.how.color else [first]), letter
        text = next((choice for choice in choices if len(choice) <= width), filler * width)
        last = index + int(self.chart.schedule.paired[index])
        return text.ljust(width) if len(text) == width or last not in self.chart.stepped else f"{text:<{width - 1}}!"

    def stripped(self, index: int, first: int, text: str) -> str:
        """Mark the strips of a slot in its text, outside of the label; the text begins in the column `first`."""
        begin, end = (int(column[index]) for column in (self.chart.times.start, self.chart.times.end))
        parts = [(begin + low * (end - begin), begin + high * (end - begin)) for low, high in self.strips(index)]
        middles = [self.axis.begin + (first + k + Fraction(1, 2)) * self.axis.step for k in range(len(text))]
        inside = [any(low <= at < high for low, high in parts) for at in middles]
        mark = self.how.sign("strip")
        return "".join(mark if here and x == " " else x for x, here in zip(text, inside, strict=True))

    def strips(self, index: int) -> Shares:
        """Return the marked parts of a slot, as fractions of its time."""
        return [each for parts in self.chart.strips.values() for each in parts[index]]

    @cached_property
    def _form(self) -> int:
        """The common form of all labels in colour, since a row with both 3 and B4 would be misread: 0 if letter and
        number fit in all slots, 1 if only the number fits, 2 if neither fits.
        """
        longest = widest(self.chart, self.stages)
        return next((form for form in (0, 1) if (longest - form) * self.axis.step <= self.chart.shortest), 2)
