"""Computes the period of a batch: the time that each additional batch adds in the long run.

With STEPs inside an order, this is the kernel's period (`period`) times the number of microbatches in a batch. Any
other order is repeated as a whole, batch after batch, without a barrier between batches: a rank begins the next batch
when it has finished its own list. Let M[a, b] be the longest path from the start of rank a's list to the end of rank
b's list. The period is the largest mean of M over all cycles of ranks a -> b -> … -> a, because rank b begins batch n +
1 no earlier than M[a, b] after rank a begins batch n (Cuninghame-Green, Minimax Algebra, 1979). The cycle of rank r
alone has the mean M[r, r], which is at least span(r).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from pipesched.analysis.timeline import slot_costs
from pipesched.insight.period import Period, period
from pipesched.model.columns import Ints
from pipesched.model.numbers import exact, share
from pipesched.model.units import NO_UNIT, Unit
from pipesched.report.parts import Part
from pipesched.schedule_analysis import Analysis

if TYPE_CHECKING:
    from pipesched.examine import Examination

_FAR = -(2**60)
_MOST = 4_000_000  # operations x ranks


@dataclass(frozen=True)
class Batches(Part):
    """The period of a batch and its bubble, in an order with STEPs inside. microbatches: the number of microbatches in
    a batch. length: the period.
    """

    key = "period"

    microbatches: int
    length: Fraction
    bubble: Fraction
    unit: Unit

    def lines(self) -> list[str]:
        """Return the period, with its assumptions."""
        of = f"a batch of {self.microbatches} microbatch{'es'[: 2 * (self.microbatches > 1)]}"
        said = f"{self.unit.text(self.length)} for {of}, bubble {share(self.bubble)}"
        return [f"period {said}: in an endless run, if a STEP takes no time and no rank waits in a STEP"]

    def to_json(self) -> dict[str, object]:
        """Return the period, the bubble and the size of a batch."""
        return {"microbatches": self.microbatches, **exact(length=self.length, bubble=self.bubble)}


def part(made: Examination) -> Batches | None:
    """Return the period of an order with STEPs inside; None for other orders, or if the period cannot be determined."""
    analysis: Analysis = made.analysis
    length = claimed(analysis) if analysis.schedule.steps is not None else None
    bubble = claimed_bubble(analysis) if length is not None else None
    if length is None or bubble is None:
        return None
    return Batches(batch_of(analysis) or 0, length, bubble, analysis.costs.unit or NO_UNIT)


def claimed(made: Analysis) -> Fraction | None:
    """Return the value of `period` in claims: the time that one more batch adds; None if it cannot be determined."""
    if made.schedule.steps is None:
        return made.fact(repeated)
    found, size = made.fact(_kernel), batch_of(made)
    return None if found is None or size is None else found.each * size


def claimed_bubble(made: Analysis) -> Fraction | None:
    """Return the value of `period_bubble` in claims: the idle fraction of all ranks in an endless run."""
    if made.schedule.steps is not None:
        found = made.fact(_kernel)
        return None if found is None else found.bubble
    length, spent = claimed(made), made.idle
    if not length or spent is None:
        return None
    return 1 - sum(spent.work, Fraction(0)) / (made.schedule.ranks * length)


def _kernel(made: Analysis) -> Period | None:
    return period(made)


def batch_of(made: Analysis) -> int | None:
    """Return the number of microbatches in a batch; None if batches differ."""
    steps, m = made.schedule.steps, made.schedule.microbatches
    if steps is None:
        return m
    counts = {x for x in np.bincount(steps.stage).tolist() if x}
    return m // counts.pop() if len(counts) == 1 and m % max(counts) == 0 else None


def repeated(made: Analysis) -> Fraction | None:
    """Return the time that one more repetition of an order adds; None if the order has copies to host memory,
    deadlocks, or is too large.
    """
    schedule, times = made.schedule, made.timeline
    size, ranks = len(schedule), schedule.ranks
    if not made.finished or times.copies is not None or not size or size * ranks > _MOST:
        return None
    if not np.diff(schedule.start).all():
        return None
    paths = _paths(made)
    power, best = paths, Fraction(int(paths.diagonal().max()))
    for length in range(2, ranks + 1):
        power = (power[:, :, None] + paths[None, :, :]).max(axis=1)
        best = max(best, Fraction(int(power.diagonal().max()), length))
    return best / made.ticks.scale


def _paths(made: Analysis) -> Ints:
    """Return M in ticks: the longest path from the start of each rank's list to the end of each rank's list."""
    schedule, ticks, ranks = made.schedule, made.ticks, made.schedule.ranks
    cost, found, times = slot_costs(schedule, ticks), made.dependencies.messages(), made.timeline
    head = np.arange(len(schedule)) - schedule.joined
    lag = ticks.delays(schedule.stage[found.producer], schedule.microbatch[found.producer])
    into: list[list[tuple[int, int]]] = [[] for _ in range(len(schedule))]
    for producer, consumer, late in zip(head[found.producer], head[found.consumer], lag.tolist(), strict=True):
        into[consumer].append((int(producer), int(late)))
    end = np.full((len(schedule), ranks), _FAR, dtype=np.int64)  # by operation and the rank where the path begins
    first = {int(at): rank for rank, at in enumerate(schedule.start[:-1])}
    for at in np.argsort(times.turn, kind="stable").tolist():
        if schedule.joined[at]:
            continue
        begin = np.full(ranks, _FAR, dtype=np.int64)
        if at in first:
            begin[first[at]] = 0
        else:
            begin = np.maximum(begin, end[head[at - 1]])
        for producer, late in into[at]:
            begin = np.maximum(begin, end[producer] + late)
        end[at] = begin + cost[at]
    return np.asarray(end[head[schedule.start[1:] - 1]].T)
