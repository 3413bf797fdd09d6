"""The letters of a chart: what stands in the columns of a slot, and in columns that several slots share.

F5       forward of microbatch 5         f5    the same of an odd chunk (or of the second route)
F9.5     of stage 9, where a rank has more than two chunks and there is room
F5+b2    an overlap pair, one slot; then F5b2, F+b, + as there is room
FFF      no room for a number            12    in colour, no room for the letter
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Column, Ints
from pipesched.model.ops import Op
from pipesched.views.axis import Axis
from pipesched.views.chart import Chart

KINDS = "FIWB+"  # + is an overlap pair


def chunk_column(chart: Chart) -> Column:
    """The chunk of every operation on its rank; 0 for a stage that the placement does not put there."""
    placement, schedule = chart.schedule.placement, chart.schedule
    table = np.zeros((placement.routes, max(schedule.stages, 1)), dtype=np.int16)
    for rank in range(schedule.ranks):
        for number, key in enumerate(placement.chunks(rank)):
            table[key] = number
    if not schedule.microbatches:
        return np.zeros(len(schedule), dtype=np.int16)
    stage = np.clip(schedule.stage, 0, max(schedule.stages - 1, 0))
    route = placement.route_of[np.clip(schedule.microbatch, 0, schedule.microbatches - 1)]
    return np.asarray(table[route, stage])


def chunks(chart: Chart) -> int:
    """The most chunks of a rank."""
    return max((len(chart.schedule.placement.chunks(rank)) for rank in range(chart.schedule.ranks)), default=1)


@dataclass(frozen=True)
class Labels:
    """How slots are named. stages: ``F9.5`` instead of ``F5``. color: a number alone will do."""

    chart: Chart
    chunk: Column
    stages: bool
    color: bool

    def part(self, index: int) -> str:
        """An operation: letter and number."""
        schedule = self.chart.schedule
        number = f"{schedule.stage[index]}.{schedule.microbatch[index]}" if self.stages else schedule.microbatch[index]
        return f"{self.letter(index)}{number}"

    def letter(self, index: int) -> str:
        """The kind; of an odd chunk in lower case."""
        letter = Op(int(self.chart.schedule.op[index])).name
        return letter.lower() if self.chunk[index] % 2 else letter

    def fill(self, index: int, width: int) -> str:
        """The slot that begins with an operation, as exactly `width` characters."""
        schedule = self.chart.schedule
        if index + 1 < len(schedule) and schedule.joined[index + 1]:
            first, second = self.part(index), self.part(index + 1)
            choices = [f"{first}+{second}", first + second, f"{self.letter(index)}+{self.letter(index + 1)}"]
            filler = "+"
        else:
            choices, filler = [self.part(index)], self.letter(index)
            choices += [choices[0][1:]] if self.color else []
        text = next((choice for choice in choices if len(choice) <= width), filler * width)
        return text.ljust(width)


def widest(chart: Chart, stages: bool) -> int:
    """The characters of the longest single label."""
    schedule = chart.schedule
    digits = len(str(int(schedule.microbatch.max(initial=0))))
    return 1 + digits + (1 + len(str(int(schedule.stage.max(initial=0)))) if stages else 0)


def kinds(chart: Chart) -> Column:
    """The kind of every operation as an index of `KINDS`: both parts of a pair are +."""
    joined = chart.schedule.joined
    paired = joined | np.concatenate([joined[1:], np.zeros(min(len(joined), 1), dtype=np.bool_)])
    return np.where(paired, KINDS.index("+"), chart.schedule.op)


def shares(chart: Chart, kind: Column, rank: int, axis: Axis) -> Ints:
    """How long each kind runs in each column, in ticks; shape (5, columns). Slots of one kind never overlap."""
    part = slice(int(chart.schedule.start[rank]), int(chart.schedule.start[rank + 1]))
    seen = (chart.times.start[part] >= 0) & ~chart.schedule.joined[part]
    start, end, kind = chart.times.start[part][seen], chart.times.end[part][seen], kind[part][seen]
    bounds = axis.bounds
    found = np.zeros((len(KINDS), len(bounds) - 1), dtype=np.int64)
    for number in np.unique(kind):
        begins, ends = start[kind == number], end[kind == number]
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(ends - begins)])
        at = np.searchsorted(begins, bounds, side="right")
        last = np.where(at > 0, ends[np.maximum(at, 1) - 1], bounds)
        found[number] = np.diff(before[at] - np.maximum(last - bounds, 0))
    return found
