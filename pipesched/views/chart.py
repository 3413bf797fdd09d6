"""What every picture draws: operations on ranks over time, who feeds whom, and what is held.

    time   0  1  2  3  4          start, end       in ticks of 1 / scale
    rank 0 F0 F1 .. I0 W0         dependencies    the producer of each operation, and whether a message brings it
    rank 1 .. F0 I0 F1 I1         held             activations after each operation

An order in which ranks wait for each other is drawn as far as it runs, and a program under the model that stops it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from pipesched.analysis.against import Against
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.memory import Memory, memory
from pipesched.analysis.standstill import Standstill, cut, of_orders
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.model.columns import Ints
from pipesched.model.costs import Costs
from pipesched.model.release import AT_W, Release
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Chart:
    """A schedule with its times. sizes: the parameters to show in a title. message: latency in ticks, by stage.

    wrong: the code of what is wrong with the file, which a picture of it must not hide. stop: why it never ends.
    """

    schedule: Schedule
    costs: Costs
    dependencies: Dependencies
    times: Timeline
    scale: int
    message: Ints
    held: Memory
    title: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    wrong: str = ""
    stop: Standstill | None = None

    def time(self, ticks: int) -> Fraction:
        """Ticks in the user's unit."""
        return Fraction(int(ticks), self.scale)

    @property
    def makespan(self) -> Fraction:
        return self.time(self.times.makespan)


def chart(
    schedule: Schedule,
    costs: Costs | None = None,
    release: Release = AT_W,
    *,
    title: str = "",
    sizes: Mapping[str, int] | None = None,
    stop: Standstill | None = None,
) -> Chart:
    """The chart of a schedule; stop: where its program does, under a model.

    Raises:
        PipeschedError: PS222, costs that do not fit it.
    """
    costs = costs or Costs()
    ticks = costs.ticks(schedule.stages)
    dependencies = Dependencies.of(schedule)
    times = timeline(schedule, dependencies, ticks)
    if not times.finished:
        orders = of_orders(schedule, dependencies, times)
        stop = orders if stop is None else replace(orders, ran=stop.ran & orders.ran)
    if stop is not None:
        times = timeline(schedule, cut(dependencies, stop.ran), ticks)
    return Chart(
        schedule,
        costs,
        dependencies,
        times,
        ticks.scale,
        ticks.message,
        memory(schedule, release, costs.sizes(schedule.stages)),
        title or schedule.name,
        named(schedule, schedule.parameters if sizes is None else sizes),
        stop=stop,
    )


def named(schedule: Schedule, parameters: Mapping[str, int]) -> dict[str, int]:
    """The sizes for a title: the parameters, after ranks, chunks and microbatches where they are not among these."""
    ranks, stages = schedule.ranks, schedule.stages
    known = {"p": ranks, "v": stages // max(ranks, 1), "m": schedule.microbatches}
    looped = stages > ranks and stages % ranks == 0
    return {name: value for name, value in known.items() if name != "v" or looped} | dict(parameters)


def measured(plan: Chart, run: Against) -> tuple[Chart, Chart]:
    """A plan and a step of a run of it on one clock: a tick is a nanosecond, a unit the time that a cost of 1 took."""
    schedule, scale = plan.schedule, run.unit
    never = (-1,) * schedule.ranks
    planned = Timeline(
        _rescaled(plan, plan.times.start, scale), _rescaled(plan, plan.times.end, scale), plan.times.turn, never
    )
    ran = Timeline(run.start, run.end, plan.times.turn, never)
    timed = replace(plan, times=planned, scale=scale, message=np.zeros_like(plan.message))
    return timed, replace(timed, times=ran)


def _rescaled(plan: Chart, ticks: Ints, scale: int) -> Ints:
    """Ticks of the plan as nanoseconds, rounded down."""
    return np.array([int(x) * scale // plan.scale for x in ticks.tolist()], dtype=np.int64)
