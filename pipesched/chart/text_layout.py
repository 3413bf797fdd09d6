"""Where a chart of characters puts things: names of ranks, columns of time, peaks; and what each slot is called.

F5       forward of microbatch 5         f5    the same of an odd chunk (or of the second route)
F9.5     of stage 9, where a rank has more than two chunks and it fits
F5+b2    an overlap pair, one slot; or F5b2, F+b, + where that is too wide
FFF      too narrow for numbers          12    in colour, too narrow for letters
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil

import numpy as np

from pipesched.chart import slots
from pipesched.chart.axis import WHOLE, Axis, Viewport, axis, shortest
from pipesched.chart.chart import Chart
from pipesched.chart.slots import Phases, phases
from pipesched.model.columns import Column, Ints
from pipesched.model.numbers import shown
from pipesched.model.ops import COMPUTES, Op


@dataclass(frozen=True)
class Text:
    """How to write a chart: columns in all, the part of time, colour, ASCII alone."""

    width: int = 80
    viewport: Viewport = WHOLE
    color: bool = False
    ascii: bool = False


@dataclass(frozen=True, eq=False)
class Layout:
    """A chart, how to write it, and what follows from both."""

    chart: Chart
    how: Text

    def name(self, rank: int) -> str:
        """The name before a row."""
        digits = len(str(self.chart.schedule.ranks - 1))
        return f"rank {rank:<{digits}} "

    @property
    def left(self) -> int:
        """The width of a name."""
        return len(self.name(0))

    @cached_property
    def peaks(self) -> list[str]:
        """The peak after a row of memory."""
        return [shown(peak) for peak in self.chart.analysis.memory.peak]

    @cached_property
    def right(self) -> int:
        """The width of a peak, and of its heading."""
        return max(map(len, ["peak", *self.peaks]))

    @cached_property
    def axis(self) -> Axis:
        """The columns between names and peaks."""
        columns = max(1, self.how.width - self.left - 1 - max(self.right, self._mark))
        return axis(self.chart, columns, self.how.viewport, slots.widest(self.chart, self._many))

    @cached_property
    def stops(self) -> dict[int, tuple[str, bool]]:
        """The mark where a rank stops for good within the picture, and whether it is of the cycle."""
        stop = self.chart.analysis.standstill
        if stop is None:
            return {}
        times, start = self.chart.times, self.chart.schedule.start
        parts = (slice(int(start[x.rank]), int(start[x.rank + 1])) for x in stop.waiting)
        when = (int(times.end[part].max(initial=0)) for part in parts)
        return {
            x.rank: (
                self.sign("cycle" if x.rank in stop.ranks else "wait") + x.at * (self._mark > 1),
                x.rank in stop.ranks,
            )
            for x, instant in zip(stop.waiting, when, strict=True)
            if instant <= self.axis.end
        }

    @cached_property
    def _mark(self) -> int:
        """The columns of the longest mark: of its sign alone, where its name would take more than a third of them."""
        if self.chart.analysis.standstill is None:
            return 0
        longest = 1 + max(len(x.at) for x in self.chart.analysis.standstill.waiting)
        return longest if 3 * longest <= self.how.width - self.left else 1

    @property
    def mixed(self) -> bool:
        """True if columns hold more than one slot."""
        return shortest(self.chart) < self.axis.step

    @cached_property
    def stages(self) -> bool:
        """True if stages are named, ``F9.5`` instead of ``F5``: with more than two chunks, if all slots fit."""
        return self._many and slots.widest(self.chart, stages=True) * self.axis.step <= shortest(self.chart)

    @cached_property
    def numbered(self) -> bool:
        """True if the longest slot holds a letter and a digit."""
        return int((self.chart.times.end - self.chart.times.start).max(initial=0)) >= 2 * self.axis.step

    def naming(self, *, stages: bool) -> int:
        """The width from which on all slots are named, with their stages or without: the longest name fits the
        shortest slot.
        """
        shortest_ones = Fraction(self.axis.end - self.axis.begin, shortest(self.chart))
        return self.left + ceil(shortest_ones * slots.widest(self.chart, stages)) + 1 + self.right

    @cached_property
    def phases(self) -> Phases:
        """The phases of every rank."""
        return phases(self.chart.schedule, self.chart.times)

    @property
    def phased(self) -> bool:
        """True if any rank has a backward, and so leaves its warm-up."""
        return bool((self.phases.steady >= 0).any())

    @cached_property
    def _many(self) -> bool:
        return self.chunks > 2

    @cached_property
    def chunks(self) -> int:
        """The most chunks of a rank."""
        return slots.chunks(self.chart)

    @cached_property
    def chunk(self) -> Column:
        """The chunk of every operation."""
        return slots.chunk_column(self.chart)

    @cached_property
    def kinds(self) -> Column:
        """The kind of every operation, as an index of `slots.KINDS`."""
        return slots.kinds(self.chart)

    @property
    def chunked(self) -> bool:
        """True if columns of two slots show their chunks; with more they would be unreadable."""
        return self.chunks > 1 and self.axis.step <= 2 * shortest(self.chart)

    @cached_property
    def grains(self) -> Column:
        """Kind and chunk of every operation as one number, kind * chunks + chunk; an overlap pair has no chunk."""
        chunk = self.chunk * (self.kinds != slots.KINDS.index("+")) * self.chunked
        return np.asarray(self.kinds.astype(np.int64) * self.chunks + chunk)

    def letter(self, index: int) -> str:
        """The kind of an operation; of an odd chunk in lower case."""
        letter = Op(int(self.chart.schedule.op[index])).name
        return letter.lower() if self.chunk[index] % 2 else letter

    def label(self, index: int) -> str:
        """An operation: letter and microbatch, between them the stage where stages are named."""
        schedule = self.chart.schedule
        stage = f"{schedule.stage[index]}." if self.stages else ""
        return f"{self.letter(index)}{stage}{schedule.microbatch[index]}"

    def fill(self, index: int, width: int) -> str:
        """The slot that begins with an operation, as exactly `width` characters: a name that fits, or letters."""
        schedule = self.chart.schedule
        first, letter = self.label(index), self.letter(index)
        if index + 1 < len(schedule) and schedule.joined[index + 1]:
            second = self.label(index + 1)
            choices, filler = [f"{first}+{second}", first + second, f"{letter}+{self.letter(index + 1)}"], "+"
        else:
            choices, filler = ([first, first[1:]][self._form :][:1] if self.how.color else [first]), letter
        text = next((choice for choice in choices if len(choice) <= width), filler * width)
        return text.ljust(width)

    @cached_property
    def _form(self) -> int:
        """In colour all slots have the same form of name, for a row that has both 3 and B4 is read wrongly: 0 where
        letter and number fit in all kinds, 1 where the number alone does, 2 where neither.
        """
        schedule, times = self.chart.schedule, self.chart.times
        single = (times.end > times.start) & ~schedule.paired
        number = np.char.str_len(schedule.microbatch.astype(np.str_))
        number += (1 + np.char.str_len(schedule.stage.astype(np.str_))) * self.stages
        width = (times.end - times.start) * self.axis.step.denominator // self.axis.step.numerator
        groups = [single & (schedule.op == op) for op in COMPUTES]

        def all_fit(letters: int) -> bool:
            return all(slots.most_fit(width[group], number[group] + letters) for group in groups)

        return next((form for form, letters in enumerate((1, 0)) if all_fit(letters)), 2)

    def sign(self, meaning: str) -> str:
        """The character for idle time, a rank of the cycle, a rank that waits for those, the end of a phase."""
        return SIGNS[meaning][self.how.ascii]


@dataclass(frozen=True, eq=False)
class Lanes(Layout):
    """The engines of a layout that has copies, on its axis. at: of each copy, its place in that layout's schedule."""

    of: Layout
    at: Ints

    @property
    def axis(self) -> Axis:
        return self.of.axis

    @property
    def stops(self) -> dict[int, tuple[str, bool]]:
        return {}

    @property
    def stages(self) -> bool:
        return self.of.stages

    @property
    def chunks(self) -> int:
        return self.of.chunks

    @property
    def chunk(self) -> Column:
        return np.asarray(self.of.chunk[self.at])

    def name(self, rank: int) -> str:
        """``out`` or ``in``, behind the name of a rank."""
        return f"{('out', 'in')[rank % 2]} ".rjust(self.of.left)


SIGNS = {"idle": "·.", "cycle": "✗X", "wait": "…~", "phase": "│|"}
"""By meaning: the character, and the one where there is ASCII alone."""
