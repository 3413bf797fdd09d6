"""What every picture draws: operations on ranks over time, who feeds whom, and what is held.

    time   0  1  2  3  4          start, end       in ticks of 1 / scale
    rank 0 F0 F1 .. I0 W0         needs, crosses   the producer of each operation, and whether a message brings it
    rank 1 .. F0 I0 F1 I1         held             activations after each operation

An order in which ranks wait for each other is drawn as far as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from pipesched.analysis.memory import Memory, memory
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.analysis.waits import Waits, waits
from pipesched.model.columns import Ints
from pipesched.model.costs import Costs
from pipesched.model.release import AT_W, Release
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Chart:
    """A schedule with its times. sizes: the parameters to show in a title. message: latency in ticks, by stage."""

    schedule: Schedule
    costs: Costs
    needs: Waits
    times: Timeline
    scale: int
    message: Ints
    held: Memory
    title: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)

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
) -> Chart:
    """The chart of a schedule.

    Raises:
        PipeschedError: PS222, costs that do not fit it.
    """
    costs = costs or Costs()
    ticks = costs.ticks(schedule.stages)
    needs = waits(schedule)
    return Chart(
        schedule,
        costs,
        needs,
        timeline(schedule, needs, ticks),
        ticks.scale,
        ticks.message,
        memory(schedule, release, costs.sizes(schedule.stages)),
        title or schedule.name,
        dict(sizes if sizes is not None else schedule.parameters),
    )
