"""The letters of a chart: what stands in the columns of a slot, and in columns that several slots share.

F5       forward of microbatch 5         f5    the same of an odd chunk (or of the second route)
F9.5     of stage 9, where a rank has more than two chunks and there is room
F5+b2    an overlap pair, one slot; or F5b2, F+b, + as there is room
FFF      no room for numbers             12    in colour, no room for letters
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from pipesched.model.columns import Bools, Column
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


def most_fit(widths: Column, lengths: Column) -> bool:
    """Whether a form of label has room in nine slots of ten: then it is used in all, so that like is named alike."""
    return 10 * int(np.count_nonzero(lengths <= widths)) >= 9 * len(widths)


@dataclass(frozen=True)
class Labels:
    """How slots are named. stages: ``F9.5`` instead of ``F5``. color: a number alone will do. step: ticks a column.

    In colour all slots have the same form of name: a row that has both 3 and B4 is read wrongly.
    """

    chart: Chart
    chunk: Column
    stages: bool
    color: bool
    step: Fraction

    def part(self, index: int) -> str:
        """An operation: letter and number."""
        return f"{self.letter(index)}{self.number(index)}"

    def number(self, index: int) -> str:
        """The microbatch, after the stage where stages are named."""
        schedule = self.chart.schedule
        stage = f"{schedule.stage[index]}." if self.stages else ""
        return f"{stage}{schedule.microbatch[index]}"

    def letter(self, index: int) -> str:
        """The kind; of an odd chunk in lower case."""
        letter = Op(int(self.chart.schedule.op[index])).name
        return letter.lower() if self.chunk[index] % 2 else letter

    def fill(self, index: int, width: int) -> str:
        """The slot that begins with an operation, as exactly `width` characters: a name that has room, or letters."""
        schedule = self.chart.schedule
        first, letter = self.part(index), self.letter(index)
        if index + 1 < len(schedule) and schedule.joined[index + 1]:
            second = self.part(index + 1)
            choices, filler = [f"{first}+{second}", first + second, f"{letter}+{self.letter(index + 1)}"], "+"
        else:
            choices, filler = ([first, first[1:]][self._form :][:1] if self.color else [first]), letter
        text = next((choice for choice in choices if len(choice) <= width), filler * width)
        return text.ljust(width)

    @cached_property
    def _form(self) -> int:
        """In colour: 0 where all kinds have room for letter and number, 1 for the number alone, 2 for neither."""
        schedule, times = self.chart.schedule, self.chart.times
        paired = schedule.joined | np.append(schedule.joined[1:], False)[: len(schedule)]
        single = (times.end > times.start) & ~paired
        number = np.char.str_len(schedule.microbatch.astype(np.str_))
        number += (1 + np.char.str_len(schedule.stage.astype(np.str_))) * self.stages
        width = (times.end - times.start) * self.step.denominator // self.step.numerator
        groups = [single & (schedule.op == op) for op in range(4)]
        forms = (form for form, letters in enumerate((1, 0)) if _all_fit(groups, width, number + letters))
        return next(forms, 2)


def _all_fit(groups: Sequence[Bools], width: Column, length: Column) -> bool:
    return all(most_fit(width[group], length[group]) for group in groups)


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


def shares(chart: Chart, kind: Column, rank: int, axis: Axis) -> dict[int, Column]:
    """How long each kind that occurs runs in each column, of `axis.whole`. Slots of one kind never overlap."""
    part = slice(int(chart.schedule.start[rank]), int(chart.schedule.start[rank + 1]))
    seen = (chart.times.start[part] >= 0) & ~chart.schedule.joined[part]
    start, end, kind = chart.times.start[part][seen], chart.times.end[part][seen], kind[part][seen]
    fine = axis.step.denominator
    wide = (int(chart.times.makespan) + axis.end) * fine >= 2**62  # Python's numbers have no end
    start, end = (np.minimum(x, axis.end).astype(object if wide else np.int64) - axis.begin for x in (start, end))
    start, end = start * fine, end * fine
    bounds = np.arange(axis.columns + 1, dtype=start.dtype) * axis.whole
    found = {}
    for number in np.unique(kind).tolist():
        begins, ends = start[kind == number], end[kind == number]
        before = np.concatenate([np.zeros(1, dtype=start.dtype), np.cumsum(ends - begins)])
        at = np.searchsorted(begins, bounds, side="right")
        last = np.where(at > 0, ends[np.maximum(at, 1) - 1], bounds)
        found[number] = np.diff(before[at] - np.maximum(last - bounds, 0))
    return found
