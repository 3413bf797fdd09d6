"""An analysis prepared for drawing, with a title, a clock, and the fault of the file.

    time   0  1  2  3  4          start, end       in ticks of 1 / scale
    rank 0 F0 F1 .. I0 W0         dependencies    the producer of each input, and whether a message carries it
    rank 1 .. F0 I0 F1 I1         held             activations after each operation

An order in which ranks wait for each other is drawn as far as it runs; a program is drawn under the model in which it
deadlocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from pipesched.analysis.timeline import Timeline
from pipesched.extension import counting
from pipesched.model.columns import Column, Ints
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value
from pipesched.model.schedule import Schedule
from pipesched.model.units import Unit
from pipesched.schedule_analysis import Analysis
from pipesched.support.record import Record
from pipesched.views.rows import Shares, Strip


class Chart(Record):
    """A chart. wrong: the code of the file's fault, or empty; pictures show it. name: replaces the schedule's name."""

    analysis: Analysis
    wrong: str = ""
    name: str = ""

    @property
    def identifier(self) -> str:
        """The name used in data formats."""
        return self.name or self.schedule.name

    @property
    def title(self) -> str:
        """The display name."""
        return self.name or self.schedule.title or self.schedule.name

    @cached_property
    def sizes(self) -> Mapping[str, Value]:
        """The sizes in a title: ranks, chunks and microbatches if they are not parameters, then the parameters."""
        schedule, ranks, stages = self.schedule, self.schedule.ranks, self.schedule.stages
        known = {"p": ranks, "v": stages // max(ranks, 1), "m": schedule.microbatches}
        looped = stages > ranks and stages % ranks == 0
        return {name: x for name, x in known.items() if name != "v" or looped} | dict(schedule.parameters)

    @property
    def schedule(self) -> Schedule:
        return self.analysis.schedule

    @property
    def times(self) -> Timeline:
        return self.analysis.as_run

    @property
    def scale(self) -> int:
        return self.analysis.ticks.scale

    @cached_property
    def stepped(self) -> frozenset[int]:
        """The operations that a STEP inside the order follows."""
        steps = self.schedule.steps
        return frozenset() if steps is None else frozenset((steps.at - 1).tolist())

    @cached_property
    def strips(self) -> Mapping[str, Sequence[Shares]]:
        """The marked parts of every operation's slot, by their name in the legend."""
        made = {row.name: row.parts.load()(self) for row in counting(Strip, self.analysis)}
        return {name: parts for name, parts in made.items() if any(parts)}

    def part(self, rank: int) -> slice:
        """Return the slice that selects a rank's operations."""
        return slice(*self.schedule.start[rank : rank + 2].tolist())

    def last(self, rank: int) -> int:
        """Return the time in ticks at which the last operation that runs on a rank ends."""
        return int(self.times.end[self.part(rank)].max(initial=0))

    @property
    def shortest(self) -> int:
        """The shortest nonzero time of a slot, in ticks."""
        return shortest(self.times.end - self.times.start)

    def time(self, ticks: int) -> Fraction:
        """Convert ticks to the user's unit."""
        return Fraction(int(ticks), self.scale)

    @property
    def unit(self) -> Unit:
        """The unit of the times in the chart."""
        return self.analysis.costs.unit

    def said(self, ticks: int) -> str:
        """Format ticks as a time."""
        return self.unit.text(self.time(ticks))

    @property
    def makespan(self) -> Fraction:
        return self.time(self.times.makespan)

    @cached_property
    def chunk(self) -> Column:
        """The chunk of every operation on its rank; 0 if the placement does not put its stage on this rank."""
        placement, schedule = self.schedule.placement, self.schedule
        table = np.zeros((placement.routes, max(schedule.stages, 1)), dtype=np.int16)
        for rank in range(schedule.ranks):
            for number, key in enumerate(placement.chunks(rank)):
                table[key] = number
        if not schedule.microbatches:
            return np.zeros(len(schedule), dtype=np.int16)
        stage = np.clip(schedule.stage, 0, max(schedule.stages - 1, 0))
        route = placement.route_of[np.clip(schedule.microbatch, 0, schedule.microbatches - 1)]
        return np.asarray(table[route, stage])

    @cached_property
    def chunks(self) -> int:
        """The largest number of chunks on a rank, at least 1."""
        return max([1, *(len(self.schedule.placement.chunks(rank)) for rank in range(self.schedule.ranks))])

    @property
    def later(self) -> str:
        """The name in the legend for the later chunks of a rank: the second route if each route has one chunk."""
        placement = self.schedule.placement
        if placement.routes == 1:
            return "later chunks"
        alone = placement.routes == 2 and placement.stages <= placement.ranks and self.chunks == 2
        return f"route {placement.route_names[1] or 1}" if alone else "later chunks, route by route"


def shortest(lengths: Ints) -> int:
    """Return the smallest nonzero length, or 1 if there is none."""
    return int(lengths[lengths > 0].min(initial=np.iinfo(np.int64).max)) if lengths.any() else 1


def chart(schedule: Schedule, costs: Costs | None = None, *, title: str = "") -> Chart:
    """Return the chart of a schedule.

    Raises:
        PipeschedError: PS222: the costs do not fit the schedule.
    """
    return Chart(Analysis(schedule, costs or Costs()), name=title)
