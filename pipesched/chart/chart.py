"""An analysis as pictures draw it: under a title, on a clock, with what is wrong with it.

    time   0  1  2  3  4          start, end       in ticks of 1 / scale
    rank 0 F0 F1 .. I0 W0         dependencies    the producer of each operation, and whether a message brings it
    rank 1 .. F0 I0 F1 I1         held             activations after each operation

An order in which ranks wait for each other is drawn as far as it runs, and a program under the model that stops it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from pipesched.analysis.causes import Causes, causes
from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import Ints, makes
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value
from pipesched.model.ops import Result
from pipesched.model.schedule import Schedule
from pipesched.model.units import NO_UNIT, Unit
from pipesched.schedule_analysis import Analysis


@dataclass(frozen=True, eq=False)
class Clock:
    """Other times than those of the plan: ticks of 1 / scale. Its messages take no time. unit: of its times."""

    times: Timeline
    scale: int
    unit: Unit = NO_UNIT


@dataclass(frozen=True, eq=False)
class Chart:
    """wrong: the code of what is wrong with the file, which a picture of it must not hide. name: in the place of the
    schedule's. clock: of a measured run.
    """

    analysis: Analysis
    wrong: str = ""
    name: str = ""
    clock: Clock | None = None

    @property
    def identifier(self) -> str:
        """The name in data."""
        return self.name or self.schedule.name

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name or self.schedule.display_name

    @cached_property
    def sizes(self) -> Mapping[str, Value]:
        """For a title: the parameters, after ranks, chunks and microbatches where they are not among these."""
        schedule, ranks, stages = self.schedule, self.schedule.ranks, self.schedule.stages
        known = {"p": ranks, "v": stages // max(ranks, 1), "m": schedule.microbatches}
        looped = stages > ranks and stages % ranks == 0
        return {name: x for name, x in known.items() if name != "v" or looped} | dict(schedule.parameters)

    @property
    def schedule(self) -> Schedule:
        return self.analysis.schedule

    @property
    def times(self) -> Timeline:
        return self.analysis.as_run if self.clock is None else self.clock.times

    @property
    def scale(self) -> int:
        return self.analysis.ticks.scale if self.clock is None else self.clock.scale

    def delays(self, sent: Ints) -> Ints:
        """How long the messages of these operations take, in ticks."""
        if self.clock is not None:
            return np.zeros(len(sent), dtype=np.int64)
        return self.analysis.ticks.delays(self.schedule.stage[sent], self.schedule.microbatch[sent])

    @property
    def causes(self) -> Causes:
        """The cause of every wait."""
        return causes(self.schedule, self.analysis.dependencies, self.times, self.analysis.ticks)

    def time(self, ticks: int) -> Fraction:
        """Ticks in the user's unit."""
        return Fraction(int(ticks), self.scale)

    @property
    def unit(self) -> Unit:
        """The unit of its times."""
        return self.analysis.costs.unit if self.clock is None else self.clock.unit

    def said(self, ticks: int) -> str:
        """Ticks as people read them."""
        return self.unit.text(self.time(ticks))

    @property
    def makespan(self) -> Fraction:
        return self.time(self.times.makespan)


def engines(chart: Chart) -> Chart | None:
    """The copies of a chart, as one with two rows a rank, out and in, at the same times; None where there is none."""
    copies, schedule = chart.times.copies, chart.schedule
    if copies is None:
        return None
    at, ran = copies.op, copies.start >= 0
    engine = 2 * schedule.rank[at].astype(np.int64) + ~makes(schedule.op[at], Result.OFFLOADED)
    order = at[ran]
    cut = np.searchsorted(engine[ran], np.arange(2 * schedule.ranks + 1))
    none = np.zeros(len(order), dtype=np.bool_)
    lanes = replace(schedule, start=cut, second=none, **{x: getattr(schedule, x)[order] for x in _COLUMNS})
    times = Timeline(copies.start[ran], copies.end[ran], np.arange(len(order)), ())
    return replace(chart, analysis=replace(chart.analysis, schedule=lanes), clock=Clock(times, chart.scale, chart.unit))


_COLUMNS = ("op", "stage", "microbatch")


def chart(schedule: Schedule, costs: Costs | None = None, *, title: str = "") -> Chart:
    """The chart of a schedule.

    Raises:
        PipeschedError: PS222, costs that do not fit it.
    """
    return Chart(Analysis(schedule, costs or Costs()), name=title)
