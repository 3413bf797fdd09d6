"""Work, idle time and span by rank, and the bubble: the share of the machine's time that is not spent computing.

    work(r)        the sum of the rank's slots
    span(r)        its last end - its first start                        span: the largest of these
    idle(r)        makespan - work(r)
    span_idle(r)   span(r) - work(r)
    bubble         idle time of all ranks / (ranks x makespan)           1F1B: (p - 1) / (m + p - 1)
    span_bubble    likewise, with the span instead of the makespan       the bubble rate of the zero-bubble papers
    overhead       idle time of all ranks / work of all ranks            1F1B: (p - 1) / m, which half of the
                                                                         literature calls the bubble fraction

A quantity given without a rank is its maximum over all ranks. If all ranks have the same work, the bubble is idle /
makespan of any rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import Ints
from pipesched.model.costs import Ticks
from pipesched.model.numbers import over, percent, share
from pipesched.model.schedule import Schedule
from pipesched.model.units import Unit
from pipesched.support.record import Value


class Idle(Value):
    """Work, span and idle times of a schedule, in the user's unit; tuples have one entry per rank."""

    makespan: Fraction
    spans: tuple[Fraction, ...]
    work: tuple[Fraction, ...]

    @property
    def span(self) -> Fraction:
        return max(self.spans, default=Fraction(0))

    @property
    def idle(self) -> tuple[Fraction, ...]:
        return tuple(self.makespan - work for work in self.work)

    @property
    def span_idle(self) -> tuple[Fraction, ...]:
        return tuple(span - work for span, work in zip(self.spans, self.work, strict=True))

    @property
    def bubble(self) -> Fraction:
        return bubble(self.makespan, self.work)

    @property
    def span_bubble(self) -> Fraction:
        return bubble(self.span, self.work)


def busy(schedule: Schedule, times: Timeline) -> tuple[Ints, Ints]:
    """Return the span and the work of every rank of a schedule that finishes, in ticks."""
    low, high = schedule.start[:-1], schedule.start[1:]
    some = (high > low).nonzero()[0]
    took = times.end - times.start
    took[schedule.joined] = 0
    work, spans = np.zeros((2, schedule.ranks), dtype=np.int64)
    work[some] = np.add.reduceat(took, low[some])
    spans[some] = times.end[high[some] - 1] - times.start[low[some]]
    return spans, work


def idle(schedule: Schedule, times: Timeline, ticks: Ticks) -> Idle:
    """Return the work, span and idle times of a schedule that finishes."""
    spent = (tuple(over(x, ticks.scale) for x in row.tolist()) for row in busy(schedule, times))
    return Idle(over(times.makespan, ticks.scale), *spent)


def bubble(length: Fraction, work: Sequence[Fraction]) -> Fraction:
    """Return the bubble: idle time of all ranks / (ranks x length); 0 if the length is 0."""
    whole = length * len(work)
    return (whole - sum(work)) / whole if whole else Fraction(0)


def headline(spent: Idle, unit: Unit, *, span_first: bool = False) -> str:
    """Return the makespan and, if different, the span, each with its idle part, as all commands print them.

    ``makespan 27 = 24 work + 3 idle   bubble 11.1 % (1/9);  span 24, bubble by span 0 %``
    """
    parts = [f"makespan {split_length(spent.makespan, spent.work, unit)}"]
    if spent.span != spent.makespan or span_first:
        parts.append(f"span {unit.text(spent.span)}, bubble by span {share(spent.span_bubble)}")
    return ";  ".join(reversed(parts) if span_first else parts)


def split_length(length: Fraction, work: Sequence[Fraction], unit: Unit) -> str:
    """Return ``57 = 48 work + 9 idle   bubble 15.8 % (3/19)``; with uneven work, the ranks that idle least and most."""
    part, work = bubble(length, work), tuple(work) or (Fraction(0),)
    if len(set(work)) == 1:
        whole, busy, rest = map(unit.text, (length, work[0], length - work[0]))
        return f"{whole} = {busy} work + {rest} idle   bubble {share(part)}"
    ends = " to ".join(f"{unit.text(length - x)} on rank {work.index(x)}" for x in (max(work), min(work)))
    return f"{unit.text(length)}   bubble {percent(part)} (idle {ends})"
