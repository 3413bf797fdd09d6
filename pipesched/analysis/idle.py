"""Work, idle time and span, by rank.

    work(r)        the sum of the rank's slots
    span(r)        its last end - its first start        zero-bubble papers report the largest of these
    idle(r)        makespan - work(r)                    everybody else's bubble
    span_idle(r)   span(r) - work(r)

A rank without a name means the largest over ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipesched.analysis.timeline import Timeline, slot_costs
from pipesched.model.costs import Ticks
from pipesched.model.schedule import Schedule


@dataclass(frozen=True)
class Idle:
    """All in the user's unit of time; tuples have one entry a rank."""

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


def idle(schedule: Schedule, times: Timeline, ticks: Ticks) -> Idle:
    """The times of a schedule that finishes."""
    total = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(slot_costs(schedule, ticks))])
    work = total[schedule.start[1:]] - total[schedule.start[:-1]]
    low, high = schedule.start[:-1], schedule.start[1:]
    some = high > low
    spans = np.zeros(schedule.ranks, dtype=np.int64)
    spans[some] = times.end[high[some] - 1] - times.start[low[some]]
    scale = ticks.scale
    return Idle(
        Fraction(times.makespan, scale),
        tuple(Fraction(int(x), scale) for x in spans),
        tuple(Fraction(int(x), scale) for x in work),
    )
