"""Features of schedules, and consumers, each of which names the features that it supports and refuses all others.

    feature       found in a schedule as              optimizer      bound    torch-csv  torch-comms  DeepSpeed
    kinds         it runs R and W                     F I W B R O L  F I W B  F I W B    F I W B      F B
    overlap       it has 4 overlap slots              known          known    known      known        known
    W overlaps    it has 4 overlap slots with a W     known          -        -          -            -
    copies        stage 0 is on ranks 0 and 3         known          known    -          -            -
    skips         stage 3 reads stage 2 and stage 0   known          -        -          -            -
    slices        every 4 microbatches are one        known          -        -          -            -
                  sequence
    frozen        it has frozen stages: 0             known          -        known      -            -
    forward-only  it has no backward                  known          -        -          -            -
    empty ranks   no stage is on rank 2               known          known    -          -            known
    STEP inside   it has 8 STEPs inside its order     -              -        -          -            -
    uneven costs  cost F differs from microbatch to   known          -        known      known        known
                  microbatch

A new row of `FEATURES`, or a new kind of operation, is refused by every consumer until the consumer names it. The rows
of the consumers are in their own modules; `tests/shell/test_features.py` compares this table with these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from pipesched.diagnostics import AnyCode, Diagnostic, Label, PipeschedError
from pipesched.model.columns import Bools, among, computes
from pipesched.model.costs import Costs
from pipesched.model.numbers import ranges
from pipesched.model.ops import Op
from pipesched.model.schedule import Program, Schedule

_LISTED = 8  # most ranks that a message names


@dataclass(frozen=True)
class Found:
    """A feature found in a schedule. why: the text of a refusal. at: the first operation with the feature, or -1."""

    why: str
    at: int = -1


@dataclass(frozen=True)
class Feature:
    """A row of the table of features. find: returns the `Found` of a schedule at given costs, or None."""

    name: str
    find: Callable[[Schedule, Costs], Found | None]

    def __repr__(self) -> str:
        return self.name


def _pairs(schedule: Schedule, which: Bools, more: str = "") -> Found | None:
    at = np.flatnonzero(schedule.joined & which)
    return Found(f"it has {len(at)} overlap slot{'s'[: len(at) > 1]}{more}", int(at[0]) - 1) if len(at) else None


def _skips(schedule: Schedule, costs: Costs) -> Found | None:
    return None if schedule.placement.chain else Found(schedule.placement.skip)


def _slices(schedule: Schedule, costs: Costs) -> Found | None:
    return Found(f"every {schedule.slices} microbatches form one sequence") if schedule.slices > 1 else None


def _frozen(schedule: Schedule, costs: Costs) -> Found | None:
    frozen = schedule.placement.frozen
    return Found(f"it has frozen stages: {ranges(frozen)}") if frozen else None


def _forward_only(schedule: Schedule, costs: Costs) -> Found | None:
    return Found("it has no backward") if len(schedule) and schedule.forward_only else None


def _uneven_costs(schedule: Schedule, costs: Costs) -> Found | None:
    differs = costs.by_microbatch
    return Found(f"cost {differs[0]} differs from microbatch to microbatch") if differs else None


def _copies(schedule: Schedule, costs: Costs) -> Found | None:
    for stage, at in stages_on_several_ranks(schedule).items():
        homes = " and ".join(str(int(schedule.rank[i])) for i in at)
        return Found(f"stage {stage} is on ranks {homes}", at[0])
    return None


def _empty_ranks(schedule: Schedule, costs: Costs) -> Found | None:
    idle = np.flatnonzero(np.diff(schedule.start) == 0).tolist()
    more = ", …" if len(idle) > _LISTED else ""
    return Found(f"no stage is on rank {', '.join(map(str, idle[:_LISTED]))}{more}") if idle else None


def _steps(schedule: Schedule, costs: Costs) -> Found | None:
    steps = schedule.steps
    return Found(f"it has {len(steps)} STEP{'s'[: len(steps) > 1]} inside its order") if steps else None


OVERLAP = Feature("overlap", lambda schedule, _: _pairs(schedule, schedule.op != Op.W))
WEIGHTS = Feature("W overlaps", lambda schedule, _: _pairs(schedule, schedule.op == Op.W, " with a W"))
COPIES = Feature("copies", _copies)
SKIPS = Feature("skips", _skips)
SLICES = Feature("slices", _slices)
FROZEN = Feature("frozen", _frozen)
FORWARD_ONLY = Feature("forward-only", _forward_only)
EMPTY_RANKS = Feature("empty ranks", _empty_ranks)
STEPS = Feature("STEP inside", _steps)
UNEVEN_COSTS = Feature("uneven costs", _uneven_costs)
FEATURES = (OVERLAP, WEIGHTS, COPIES, SKIPS, SLICES, FROZEN, FORWARD_ONLY, EMPTY_RANKS, STEPS, UNEVEN_COSTS)


@dataclass(frozen=True)
class Consumer:
    """A reader of schedules that supports some features and refuses the rest.

    title, verb: in "`title` cannot `verb` 1f1b: it has frozen stages: 0". code: the code of the refusal. kinds: the
    supported kinds of operations. knows: the supported features. because: for some features, why the consumer does not
    support them. helps: for some features, the remedy to show instead of `help`.
    """

    title: str
    verb: str
    code: AnyCode
    kinds: Collection[Op]
    knows: Collection[Feature]
    help: str
    because: Mapping[Feature, str] = field(default_factory=dict)
    helps: Mapping[Feature, str] = field(default_factory=dict)

    def refusals(self, schedule: Schedule, costs: Costs | None = None) -> Iterator[Diagnostic]:
        """Yield a finding for every feature and kind of operation that the consumer does not support."""
        given = costs or Costs()
        for feature in FEATURES:
            if feature not in self.knows and (found := feature.find(schedule, given)) is not None:
                labels = (_label(schedule, found.at),) if found.at >= 0 else ()
                yield self.refusal(schedule, found.why, self.because.get(feature, ""), self.helps.get(feature), labels)
        unknown = np.flatnonzero(~among(schedule.op, self.kinds))
        if len(unknown):
            names = _and(Op(op) for op in np.unique(schedule.op[unknown]).tolist())
            labels = (_label(schedule, int(unknown[0])),)
            note = f"it supports only the operations {_and(self.kinds)}"
            yield self.refusal(schedule, f"it runs {names}", note, labels=labels)

    def refusal(
        self, schedule: Schedule, why: str, note: str = "", help: str | None = None, labels: tuple[Label, ...] = ()
    ) -> Diagnostic:
        """Return a refusal for a reason specific to this consumer."""
        message = f"{self.title} cannot {self.verb} {schedule.name}: {why}"
        return Diagnostic(self.code, message, labels, (note,) if note else (), help or self.help)

    def require(self, schedule: Schedule, costs: Costs | None = None) -> None:
        """Raise PipeschedError with all refusals, if there are any."""
        if found := [*self.refusals(schedule, costs)]:
            raise PipeschedError(found)

    def takes(self, schedule: Schedule, costs: Costs | None = None) -> bool:
        """Return True if the consumer refuses nothing in the schedule."""
        return next(self.refusals(schedule, costs), None) is None


def _label(schedule: Schedule, index: int) -> Label:
    place = f"rank {int(schedule.rank[index])}, step {schedule.step(index)}"
    return Label(schedule.origin.place(index).span, f"{place}: the first such operation")


def _and(kinds: Collection[Op] | Iterator[Op]) -> str:
    return " and ".join(op.name for op in kinds)


def stages_on_several_ranks(order: Program | Schedule) -> dict[int, list[int]]:
    """Map each stage that computes on several ranks to its first operation on each rank, in list order."""
    compute = np.flatnonzero(computes(order.op))
    homes, first = np.unique(
        order.stage[compute].astype(np.int64) * order.ranks + order.rank[compute], return_index=True
    )
    stage, at = homes // order.ranks, compute[first]
    stages, count = np.unique(stage, return_counts=True)
    return {int(s): np.sort(at[stage == s]).tolist() for s in stages[count > 1]}
