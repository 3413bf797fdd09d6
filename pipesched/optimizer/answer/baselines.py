"""What stands beside an answer: the schedule that was given, and those of the library at the same size."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.holdings import memory
from pipesched.analysis.idle import idle
from pipesched.analysis.timeline import timeline
from pipesched.model.schedule import Schedule
from pipesched.optimizer import convert
from pipesched.optimizer.instance import Instance
from pipesched.optimizer.problem import Orders, Problem


@dataclass(frozen=True, eq=False)
class Known:
    """A published schedule at the same size. Times in the user's unit; peak: the largest over the ranks; bubble,
    span_bubble: as everywhere, see `analysis.idle`.

    fits: whether its peaks are within the caps. orders: None if it has another placement, overlap slots, or the other
    kind of backward, which `unlike` then says.
    """

    name: str
    makespan: Fraction
    span: Fraction
    bubble: Fraction
    span_bubble: Fraction
    peak: Fraction
    fits: bool
    orders: Orders | None = field(repr=False)
    unlike: str = ""

    @property
    def remark(self) -> str:
        """Why it is not an answer to the question, if it is not."""
        if self.orders is None:
            return self.unlike
        return "" if self.fits else "over the cap"

    @classmethod
    def of(cls, name: str, schedule: Schedule, instance: Instance, problem: Problem) -> Known:
        """A schedule that finishes, at the costs of the instance."""
        ticks = instance.costs.ticks(schedule.stages)
        spent = idle(schedule, timeline(schedule, Dependencies.of(schedule), ticks), ticks)
        peaks = memory(schedule, instance.release, instance.costs.sizes(schedule.stages)).peak
        same = np.array_equal(schedule.placement.rank_of, instance.placement.rank_of)
        orders = convert.to_orders(problem, schedule) if same else None
        fits = all(peak <= cap for peak, cap in zip(peaks, instance.caps or peaks, strict=True))
        joined = bool(schedule.joined.any())
        unlike = "another placement" if not same else "overlap slots" if joined else "another kind of backward"
        times = (spent.makespan, spent.span, spent.bubble, spent.span_bubble)
        return cls(name, *times, max(peaks), fits, orders, unlike)
