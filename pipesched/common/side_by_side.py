"""Analyses many small schedules at once: they are joined into one schedule with the ranks and stages of all of them.

    a    rank 0 1       stage 0 1        side by side    rank  0 1 2 3 4
    b    rank 0 1 2     stage 0 1 2                            a a b b b

No dependency leads from one schedule to another, so each runs and pairs its messages as it does alone, and a check
without findings on the joined schedule has no findings on any of them. If there is a finding, each schedule is examined
separately. The schedules may differ in sizes, costs and order; one with fewer microbatches has no operations for the
later microbatches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from fractions import Fraction
from itertools import chain, pairwise
from time import monotonic
from typing import TypeVar

import numpy as np

from pipesched.analysis.holdings import Memory
from pipesched.analysis.idle import Idle, busy
from pipesched.analysis.lists import run_rounds
from pipesched.analysis.timeline import timeline
from pipesched.check.channels import check_channels
from pipesched.check.checks import Subject
from pipesched.check.complete import check_placement, whole
from pipesched.check.dataflow import check_dataflow
from pipesched.common.joined_claims import Facts, fractions, judge
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination, Options
from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.cost_values import Cost, listed
from pipesched.model.costs import Costs
from pipesched.model.grid import Grid
from pipesched.model.numbers import over
from pipesched.model.ops import BEHIND, FOR_BACKWARDS, MAKERS, SAME
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.report.report import Report
from pipesched.schedule_analysis import Analysis
from pipesched.support.record import Record
from pipesched.support.source import Source
from pipesched.verbs.verify import Asked, examined, judged

Kept = TypeVar("Kept")

SMALL = 1 << 12  # operations of a schedule; side by side a larger one is no faster than alone
AT_ONCE = 1 << 16  # operations that lie side by side, about
WAIT = 0.5  # seconds until what is loaded is reported
LONGER = 1.5  # times the microbatches of the one with the fewest
_AWAY = [op for result in FOR_BACKWARDS for op in MAKERS[result]]


def reports(asked: Iterable[Asked]) -> Iterator[Report]:
    """Yield the report on each source at its size."""
    for few in _few(asked):
        settle(found for found, _, _ in few if isinstance(found, Examination))
        yield from (judged(*one) for one in few)


def _few(asked: Iterable[Asked]) -> Iterator[list[tuple[Report | Examination, Source | Report, Options]]]:
    """Yield lists of (examination, source, options), with a report if no examination is possible."""
    few, operations, begin = list[tuple[Report | Examination, Source | Report, Options]](), 0, monotonic()
    for source, options in asked:
        few.append((found := examined(source, options), source, options))
        operations += len(found.loaded.schedule) if isinstance(found, Examination) else 0
        if operations > AT_ONCE or monotonic() > begin + WAIT:
            yield few
            few, operations, begin = [], 0, monotonic()
    yield few


def settle(made: Iterable[Examination]) -> None:
    """Derive the facts that reports need, for all similar schedules at once; other schedules derive them on demand."""
    alike = dict[tuple[object, ...], list[Examination]]()
    for one in made:
        if _small(one):
            alike.setdefault(_kind(one.analysis), []).append(one)
    for found in alike.values():
        for parts in _apart(found):
            if len(parts) > 1:
                Together.of(parts).settle()


def settled(asked: Iterable[Kept], of: Callable[[Kept], Examination | None]) -> Iterator[Kept]:
    """Yield the items after deriving the facts of their examinations together. of: its examination or None."""
    few, operations = list[Kept](), 0
    for one in chain(asked, [None]):
        if one is None or operations > AT_ONCE:
            settle(made for x in few if (made := of(x)) is not None)
            yield from few
            few, operations = [], 0
        if one is not None:
            made = of(one)
            few.append(one)
            operations += 0 if made is None else len(made.loaded.schedule)


def _small(one: Examination) -> bool:
    """Return True if the schedule may be joined with others, and its costs are valid."""
    schedule = one.loaded.schedule
    if schedule.program is not None or not 0 < len(schedule) <= SMALL or schedule.placement.routes > 2:
        return False
    if schedule.placement.frozen or not schedule.placement.chain or schedule.has(_AWAY):
        return False
    try:
        costs = one.analysis.costs
    except PipeschedError:
        return False
    even = not any(isinstance(cost, Grid) for cost in costs.given.values())
    return even and schedule.parameters.get("p", schedule.ranks) == schedule.ranks


def _kind(made: Analysis) -> tuple[object, ...]:
    """Return the properties that all joined schedules share."""
    placement = made.schedule.placement
    routes = placement.route_of.tobytes() if placement.routes > 1 else b""
    rule = made.release.name, str(made.model), ",".join(made.costs.given)
    return (*rule, placement.routes, routes, placement.slices, made.schedule.forward_only)


def _apart(alike: list[Examination]) -> Iterator[list[Examination]]:
    """Yield groups of schedules to join, sorted by their number of microbatches."""
    parts, size, most = list[Examination](), 0, 0.0
    for microbatches, _, made in sorted((x.loaded.schedule.microbatches, i, x) for i, x in enumerate(alike)):
        size += (count := len(made.loaded.schedule))
        if parts and (size > AT_ONCE or microbatches > most):
            yield parts
            parts, size = [], count
        most = most if parts else LONGER * microbatches
        parts.append(made)
    yield parts


class Beside(Placement):
    """Stages of several joined schedules. first: the first stage of each schedule, then the number of stages."""

    first: Ints = field(kw_only=True)

    def neighbours(self, of: int) -> tuple[Ints, Ints, Ints]:
        """Return the stages that each stage reads, or that read it, within its own schedule."""
        nearest, *others = super().neighbours(of)
        if of != SAME:
            nearest[self.first[1:] - 1 if of == BEHIND else self.first[:-1]] = -1
        return nearest, others[0], others[1]


class Together(Record):
    """Joined schedules. ops, ranks, stages: the index of the first one in each schedule, then the total number."""

    made: Sequence[Examination]
    parts: Sequence[Analysis]
    each: Sequence[Schedule]
    ops: Ints
    ranks: Ints
    stages: Ints

    @classmethod
    def of(cls, made: Sequence[Examination]) -> Together:
        """Join schedules side by side."""
        parts = [one.analysis for one in made]
        each = [one.schedule for one in parts]
        ends = (_ends(map(len, each)), _ends(x.ranks for x in each), _ends(x.stages for x in each))
        return cls(made, parts, each, *ends)

    def column(self, name: str) -> Column:
        """Return a column of all schedules, one schedule after another."""
        return np.concatenate([getattr(one, name) for one in self.each])

    def sizes(self, name: str, ends: Ints) -> Ints:
        """Return the size `name` of each entry's schedule. ends: each schedule's first entry, then the number of
        entries.
        """
        return np.repeat([getattr(one, name) for one in self.each], np.diff(ends))

    @property
    def schedule(self) -> Schedule:
        """The joined schedule."""
        places = [one.placement for one in self.each]
        widest = max(places, key=lambda placement: placement.microbatches)
        homes = np.concatenate([x.rank_of for x in places], axis=1)
        homes = np.where(homes < 0, -1, homes + np.repeat(self.ranks[:-1], np.diff(self.stages)))
        placement = Beside(homes, widest.route_of, int(self.ranks[-1]), slices=widest.slices, first=self.stages)
        start = np.concatenate([self.ops[:1], *(one.start[1:] for one in self.each)])
        start[1:] += np.repeat(self.ops[:-1], np.diff(self.ranks))
        return Schedule(
            "side by side",
            {},
            placement,
            self.column("op"),
            self.column("stage") + np.repeat(self.stages[:-1], np.diff(self.ops)),
            microbatch=self.column("microbatch"),
            second=self.column("second"),
            start=start,
        )

    @property
    def costs(self) -> Costs:
        """The costs of the joined schedule, by stage if they differ."""
        first, stages = self.parts[0].costs, np.diff(self.stages).tolist()
        different = {id(made.costs): made.costs for made in self.parts}
        alike = all(x.given == first.given for x in different.values())
        if alike and not any(isinstance(x, tuple) for x in first.given.values()):
            return first
        given = [made.costs.given for made in self.parts]
        return Costs({key: _by_stage([x[key] for x in given], stages) for key in first.given})

    def settle(self) -> None:
        """Store each schedule's facts in its analysis, unless one has errors or the joined times exceed 64 bits."""
        columns = [(self.column("stage"), "stages"), (self.column("microbatch"), "microbatches")]
        if not all(bool(((x >= 0) & (x < self.sizes(most, self.ops))).all()) for x, most in columns):
            return
        made = Analysis(self.schedule, self.costs, self.parts[0].release, self.parts[0].model)
        there = np.arange(made.schedule.microbatches) < self.sizes("microbatches", self.stages)[:, None]
        try:
            made.__dict__["timeline"] = timeline(made.schedule, made.dependencies, made.ticks, run_rounds)
            if _right(made, there.ravel()):
                self._part(made)
        except PipeschedError:
            return

    def _part(self, made: Analysis) -> None:
        """Split the joined facts among the schedules."""
        memory, scale = made.memory, made.ticks.scale
        spans, work = busy(made.schedule, made.timeline)
        at = np.array(memory.peak_at)
        makespans = np.maximum.reduceat(made.timeline.end, self.ops[:-1])
        peaks = np.where(at < 0, 0, memory.held[at]).clip(0).tolist()
        messages = np.diff(np.searchsorted(made.dependencies.messages().consumer, self.ops)).tolist()
        unit = memory.part / Fraction(made.schedule.ranks, made.schedule.stages)
        lengths = makespans.tolist()
        spent = [tuple(over(x, scale) for x in row.tolist()) for row in (spans, work)]
        joined, verdicts = made.schedule.joined, made.verdicts
        cuts = zip(*(pairwise(ends.tolist()) for ends in (self.ops, self.ranks, self.stages)), strict=True)
        parts = list[Fraction]()
        for number, ((low, high), (first, last), (begin, end)) in enumerate(cuts):
            one, schedule, here = self.parts[number], self.each[number], slice(first, last)
            part = over(unit.numerator * (last - first), unit.denominator * (end - begin))
            parts.append(part)
            own = Memory(
                schedule,
                one.release,
                memory.held[low:high],
                memory.kept[low:high],
                part,
                peak_at=tuple(i if i < 0 else i - low for i in memory.peak_at[here]),
                sizes=Grid(memory.sizes.whole[begin:end], memory.sizes.scale),
            )
            top, bottom = part.numerator, part.denominator
            own.__dict__["peak"] = tuple(over(x * top, bottom) for x in peaks[here])
            schedule.__dict__["joined"] = joined[low:high]
            idle = Idle(over(lengths[number], scale), spent[0][here], spent[1][here])
            one.__dict__.update(
                memory=own, idle=idle, verdicts=verdicts, messages=messages[number], finished=True, passed=_JUDGED
            )
        self._judge(Facts(self.ranks, scale, makespans, spans, work, peaks=np.array(peaks), units=fractions(parts)))

    def _judge(self, facts: Facts) -> None:
        """Judge the claims of each file at all its sizes."""
        files = dict[int, list[int]]()
        for number, one in enumerate(self.made):
            if one.loaded.unit is not None:
                files.setdefault(id(one.loaded.unit.checked), []).append(number)
        for numbers in files.values():
            judge([self.made[x] for x in numbers], facts if len(numbers) == len(self.made) else facts.of(numbers))


def _by_stage(costs: Sequence[Cost], stages: Sequence[int]) -> tuple[Fraction, ...]:
    """Return the costs of all stages; each schedule has one number, or one per stage."""
    rows = (x if isinstance(x, tuple) else listed(x) * count for x, count in zip(costs, stages, strict=True))
    return tuple(x for row in rows for x in row)


_JUDGED = frozenset(f"PS{x}" for x in (301, 302, 303, 304, 305, 306, 307, 310, 311, 401, 402, 403, 404, 405, 902))
"""The codes that `_right` rules out for every schedule; checks with other codes run on each schedule separately."""


def _right(made: Analysis, there: Bools) -> bool:
    """Return True if no finding with a code in `_JUDGED` applies to the joined schedule. there: as in `whole`."""
    if not whole(made.schedule, made.dependencies, there) or not made.finished or made.program is None:
        return False
    wrong = [x for check in (check_dataflow, check_placement, check_channels) for x in check(Subject(made))]
    return not wrong and made.verdicts is not None and not made.verdicts.fails


def _ends(lengths: Iterable[int]) -> Ints:
    """Return the running sums of the lengths, from 0 on."""
    return np.cumsum([0, *lengths], dtype=np.int64)
