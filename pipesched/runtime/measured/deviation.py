"""Compares a measured run with its plan: the time for a cost of 1, and the deviations from the plan.

    plan   F0 F1 ·  B0 B1          late(op)  = start in the run - start in the plan
    run    F0 F1 ·· B0- B1         ratio     = work in the run / cost, for a kind, or for a kind on one stage

The unit is chosen so that the work of the whole run, in medians over its steps, equals the cost of the whole plan: an
operation is then late because of the order and of waiting, not because the machine is slow. One step is compared with
the plan: the one with the median length; the first step is ignored unless it is the only one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest

import numpy as np

from pipesched.analysis.timeline import Timeline, slot_costs
from pipesched.diagnostics import PipeschedError, fail
from pipesched.model.columns import Ints
from pipesched.model.costs import Ticks
from pipesched.model.ops import LETTERS, Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.runtime.codes import RuntimeCode
from pipesched.runtime.measured.measured_run import Measured, running
from pipesched.support.record import Record


@dataclass(frozen=True, slots=True)
class Ratio:
    """Mean cost and mean measured time of a kind's operations, in units of cost. stage: their stage, or -1 for all."""

    kind: str
    stage: int
    planned: Fraction
    ran: Fraction

    @property
    def ratio(self) -> Fraction | None:
        return self.ran / self.planned if self.planned else None


@dataclass(frozen=True, slots=True)
class Late:
    """A rank's first operation that starts late by more than the allowance. planned, ran: its start, in units."""

    rank: int
    operation: Compute
    planned: Fraction
    ran: Fraction


class Against(Record):
    """A run compared with its plan. start, end: when the work of each operation of the plan starts and ends, in
    nanoseconds from the start of the step.

    unit: nanoseconds for a cost of 1. step: the number of the compared step, from 1. lengths: the length of every step,
    in nanoseconds. allowance: the largest delay, in units, that does not count as late: half the mean cost of a slot.
    """

    start: Ints
    end: Ints
    unit: int
    step: int
    lengths: tuple[int, ...]
    skew: int
    kinds: tuple[Ratio, ...]
    stages: tuple[Ratio, ...]
    late: tuple[Late, ...]
    allowance: Fraction

    @property
    def makespan(self) -> Fraction:
        """The makespan of the step, in units."""
        return Fraction(int(self.end.max(initial=0)), self.unit)


def against(schedule: Schedule, times: Timeline, ticks: Ticks, measured: Measured) -> Against:
    """Compare a run with the plan of its schedule.

    Raises:
        PipeschedError: PS817 if the run belongs to another schedule; the caller has ruled out a deadlock (PS306).
    """
    at = _matched(schedule, measured.schedule)
    seen = running(measured)
    lengths = measured.end.max(axis=1) - measured.begin.min(axis=1)
    step = _typical(lengths)
    work = np.median(seen.work[1:] if measured.steps > 1 else seen.work, axis=0)[at]
    cost = slot_costs(schedule, ticks)
    heads = ~schedule.joined
    whole = Fraction(int(cost.sum()), ticks.scale)
    unit = max(round(Fraction(float(work[heads].sum())) / whole), 1) if whole else 1
    zero = int(measured.begin[step].min())
    start, end = seen.start[step][at] - zero, seen.end[step][at] - zero
    planned = [Fraction(int(x), ticks.scale) for x in times.start.tolist()]
    allowance = Fraction(int(cost.sum()), 2 * max(int(heads.sum()), 1) * ticks.scale)
    by_kind, by_stage = _ratios(schedule, cost, work, ticks.scale, unit)
    late = _late(schedule, planned, [Fraction(int(x), unit) for x in start.tolist()], allowance)
    all_lengths = tuple(int(x) for x in lengths.tolist())
    return Against(
        start,
        end,
        unit,
        step + 1,
        all_lengths,
        skew=seen.skew,
        kinds=by_kind,
        stages=by_stage,
        late=late,
        allowance=allowance,
    )


def _typical(lengths: Ints) -> int:
    """Return the index of the step with the median length (the lower of two), ignoring the first of several steps."""
    later = np.arange(len(lengths))[1:] if len(lengths) > 1 else np.arange(len(lengths))
    order = later[np.argsort(lengths[later], kind="stable")]
    return int(order[(len(order) - 1) // 2])


def _matched(plan: Schedule, ran: Schedule) -> Ints:
    """Return, for each operation of the plan, its index in the run.

    Raises:
        PipeschedError: PS817.
    """
    busy = np.count_nonzero(np.diff(plan.start))
    for words, asked, did in (
        ("ranks", busy, ran.ranks),
        ("stages", plan.stages, ran.stages),
        ("microbatches", plan.microbatches, ran.microbatches),
    ):
        if asked != did:
            raise _differ(f"{did} {words} ran; the schedule has {asked}")
    begun = {order[0]: order for order in (ran.order(rank) for rank in range(ran.ranks)) if order}
    for rank in range(plan.ranks):
        if order := plan.order(rank):
            _require_same(rank, order, begun.get(order[0]))
    where = {compute: i for i, compute in enumerate(ran[i] for i in range(len(ran)))}
    return np.array([where[compute] for compute in (plan[i] for i in range(len(plan)))], dtype=np.int64)


def _require_same(rank: int, planned: list[Compute], did: list[Compute] | None) -> None:
    """Require that a rank ran the plan. did: the compute operations of the rank that ran the same first operation."""
    if did is None:
        raise _differ(f"no rank began with {planned[0]}, as rank {rank} of the schedule does")
    if did != planned:
        i, ours, theirs = next((i, a, b) for i, (a, b) in enumerate(zip_longest(planned, did)) if a != b)
        has, ran = f"has {ours}" if ours else "ends", f"ran {theirs or 'nothing'}"
        raise _differ(f"operation {i + 1} of rank {rank}: the schedule {has}, and the rank {ran}")


def _differ(message: str) -> PipeschedError:
    return fail(
        RuntimeCode.TRACE_DIFFERS,
        f"the run belongs to another schedule: {message}",
        help="give the schedule that was run, and its sizes",
    )


def _ratios(
    schedule: Schedule, cost: Ints, work: Ints, scale: int, unit: int
) -> tuple[tuple[Ratio, ...], tuple[Ratio, ...]]:
    """Return the ratios by kind, and by kind and stage; an overlap pair belongs to the stage of its first operation."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for i in np.flatnonzero(~schedule.joined).tolist():
        kind = Op(int(schedule.op[i])).name
        kind += Op(int(schedule.op[i + 1])).name if schedule.paired[i] else ""
        groups[kind, -1].append(i)
        groups[kind, int(schedule.stage[i])].append(i)

    def ratio(key: tuple[str, int], members: list[int]) -> Ratio:
        planned = Fraction(int(cost[members].sum()), scale * len(members))
        return Ratio(*key, planned, Fraction(float(work[members].sum())) / (unit * len(members)))

    made = [ratio(key, groups[key]) for key in sorted(groups, key=_by_kind)]
    return tuple(x for x in made if x.stage < 0), tuple(x for x in made if x.stage >= 0)


def _by_kind(key: tuple[str, int]) -> tuple[int, str, int]:
    kind, stage = key
    return len(kind), str(LETTERS.index(kind[0])) + kind, stage


def _late(schedule: Schedule, planned: list[Fraction], ran: list[Fraction], allowance: Fraction) -> tuple[Late, ...]:
    """Return the first late operation of each rank."""
    found = []
    for rank in range(schedule.ranks):
        for i in range(int(schedule.start[rank]), int(schedule.start[rank + 1])):
            if ran[i] - planned[i] > allowance:
                found.append(Late(rank, schedule[i], planned[i], ran[i]))
                break
    return tuple(found)
