"""Where things stand in a chart of characters: the names of the ranks, the columns of time, the peaks at the right."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil

import numpy as np

from pipesched.model.columns import Column
from pipesched.model.numbers import shown
from pipesched.views import cells
from pipesched.views.axis import WHOLE, Axis, Window, axis, shortest
from pipesched.views.chart import Chart
from pipesched.views.phases import Phases, phases


@dataclass(frozen=True)
class Text:
    """How to write a chart: columns in all, the part of time, colour, ASCII alone."""

    width: int = 80
    window: Window = WHOLE
    color: bool = False
    ascii: bool = False


@dataclass(frozen=True, eq=False)
class Layout:
    """A chart, how to write it, and what follows from both."""

    chart: Chart
    how: Text

    def name(self, rank: int) -> str:
        """What stands before a row."""
        digits = len(str(self.chart.schedule.ranks - 1))
        return f"rank {rank:<{digits}} "

    @property
    def left(self) -> int:
        """The width of a name."""
        return len(self.name(0))

    @cached_property
    def peaks(self) -> list[str]:
        """What stands behind a row of memory."""
        return [shown(peak) for peak in self.chart.held.peak]

    @cached_property
    def right(self) -> int:
        """The width of a peak, and of its heading."""
        return max(map(len, ["peak", *self.peaks]))

    @cached_property
    def axis(self) -> Axis:
        """The columns between names and peaks."""
        room = max(1, self.how.width - self.left - 1 - max(self.right, self._mark))
        return axis(self.chart, room, self.how.window, cells.widest(self.chart, self._many))

    @cached_property
    def stops(self) -> dict[int, tuple[str, bool]]:
        """What stands where a rank stops for good within the picture, and whether it is of the cycle."""
        stop = self.chart.stop
        if stop is None:
            return {}
        times, start = self.chart.times, self.chart.schedule.start
        parts = (slice(int(start[x.rank]), int(start[x.rank + 1])) for x in stop.waiting)
        when = (int(times.end[part].max(initial=0)) for part in parts)
        return {
            x.rank: (
                (self.cross if x.rank in stop.ranks else self.wait) + x.at * (self._mark > 1),
                x.rank in stop.ranks,
            )
            for x, instant in zip(stop.waiting, when, strict=True)
            if instant <= self.axis.end
        }

    @cached_property
    def _mark(self) -> int:
        """The columns of the longest mark: of its sign alone, where its name would take more than a third of them."""
        if self.chart.stop is None:
            return 0
        longest = 1 + max(len(x.at) for x in self.chart.stop.waiting)
        return longest if 3 * longest <= self.how.width - self.left else 1

    @property
    def mixed(self) -> bool:
        """Whether columns hold more than one slot."""
        return shortest(self.chart) < self.axis.step

    @cached_property
    def labels(self) -> cells.Labels:
        """Stages are named where a rank has more than two chunks, and the shortest slot has room."""
        fits = cells.widest(self.chart, stages=True) * self.axis.step <= shortest(self.chart)
        return cells.Labels(self.chart, self.chunk, self._many and fits, self.how.color, self.axis.step)

    @property
    def naming(self) -> int:
        """The width from which on stages are named: the shortest slot has room for the longest name."""
        slots = Fraction(self.axis.end - self.axis.begin, shortest(self.chart))
        return self.left + ceil(slots * cells.widest(self.chart, stages=True)) + 1 + self.right

    @cached_property
    def phases(self) -> Phases:
        """The phases of every rank."""
        return phases(self.chart.schedule, self.chart.times)

    @property
    def phased(self) -> bool:
        """Whether any rank has a backward, and so leaves its warm-up."""
        return bool((self.phases.steady >= 0).any())

    @cached_property
    def _many(self) -> bool:
        return self.chunks > 2

    @cached_property
    def chunks(self) -> int:
        """The most chunks of a rank, 1 if none has any."""
        return max(cells.chunks(self.chart), 1)

    @cached_property
    def chunk(self) -> Column:
        """The chunk of every operation."""
        return cells.chunk_column(self.chart)

    @cached_property
    def kinds(self) -> Column:
        """The kind of every operation, as an index of `cells.KINDS`."""
        return cells.kinds(self.chart)

    @property
    def chunked(self) -> bool:
        """Whether columns of several slots tell their chunks; of more than two slots nobody could make them out."""
        return self.chunks > 1 and self.axis.step <= 2 * shortest(self.chart)

    @cached_property
    def grains(self) -> Column:
        """Kind and chunk of every operation as one number, kind * chunks + chunk; an overlap pair has no chunk."""
        told = self.chunk * (self.kinds != cells.KINDS.index("+")) * self.chunked
        return np.asarray(self.kinds.astype(np.int64) * self.chunks + told)

    @property
    def dot(self) -> str:
        """Idle time."""
        return "." if self.how.ascii else "·"

    @property
    def cross(self) -> str:
        """A rank of the cycle."""
        return "X" if self.how.ascii else "✗"

    @property
    def wait(self) -> str:
        """A rank that waits for those."""
        return "~" if self.how.ascii else "…"

    @property
    def bar(self) -> str:
        """The end of a phase."""
        return "|" if self.how.ascii else "│"
