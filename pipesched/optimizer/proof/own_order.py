"""The bound and the judgement for orders of a schedule's own operations: offloads, slices, skips, uneven microbatches.

    an arc       the end of one operation to the start of another, which waits for its result, a message later if that
                 comes from another rank; O waits for its copy out, and an I or B for the copy of its L
    head, tail   the longest paths from the start to an operation, and from its end to the last end
    bound        head + work + tail of the operations of a rank with at least that head and that tail, since a rank
                 runs one operation at a time; or the time that activations need under its cap (`own_held`)

Which operations there are, and what they cost, does not depend on their order, so the bound holds for every order of
them. Nothing is assumed of microbatches: they may differ, and may overtake each other. The optimizer is not consulted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipesched.analysis.copies import Copies
from pipesched.analysis.dependencies import Dependencies, between_slices
from pipesched.analysis.timeline import entries
from pipesched.model.columns import Ints, among
from pipesched.model.costs import Ticks
from pipesched.model.ops import COMPUTES, FOR_BACKWARDS, Result
from pipesched.model.schedule import Schedule
from pipesched.optimizer.proof.case import Case, require
from pipesched.optimizer.proof.entries import Entries
from pipesched.optimizer.proof.judge import Judgement, expected, wrong
from pipesched.optimizer.verdict import Terms, Verdict
from pipesched.schedule_analysis import Analysis

OWN = "own"
"""The entry `backward` of a certificate about a schedule's own operations."""

UNKNOWN = -(2**60)
"""A time so early that it stays before any other after adding durations."""

_USES_ACTIVATION = [op for op in COMPUTES if op.kind.own is Result.ACTIVATION]


@dataclass(frozen=True)
class Arcs:
    """The slots of a schedule, then its copies. rank: of each slot; cost: of each slot and copy; slot: of each
    operation; cut: the first slot of each rank, then the number of slots. before, after, delay: the arcs. copies: None
    without any.
    """

    rank: Ints
    cost: Ints
    slot: Ints
    cut: Ints
    before: Ints
    after: Ints
    delay: Ints
    copies: Copies | None

    @classmethod
    def of(cls, schedule: Schedule, ticks: Ticks) -> Arcs:
        """Return the arcs of a valid schedule, which are the same in every order of its operations."""
        found = Dependencies.of(schedule)
        copies = Copies.of(schedule, found)
        slot, cost, _, (waits, awaited, delay) = entries(schedule, found, ticks, copies)
        here = [pair for pair in _on_its_rank(schedule, found) if len(pair[0])]
        before = np.concatenate([awaited, *(slot[one] for one, _ in here)])
        after = np.concatenate([waits, *(slot[two] for _, two in here)])
        delay = np.concatenate([delay, np.zeros(len(before) - len(delay), dtype=np.int64)])
        apart = before != after
        head = np.flatnonzero(~schedule.joined)
        cut = np.searchsorted(head, schedule.start)
        return cls(
            schedule.rank[head].astype(np.int64), cost, slot, cut, before[apart], after[apart], delay[apart], copies
        )

    def heads(self, frame: int | None = None) -> Ints:
        """Return the longest path to the start of each slot and copy, from 0 or from the first start of a rank."""
        return longest(self.cost, (self.before, self.after, self.delay), self._from(frame))

    def tails(self, frame: int | None = None) -> Ints:
        """Return the longest path from the end of each slot and copy, to the last end of all ranks or of one."""
        return longest(self.cost, (self.after, self.before, self.delay), self._from(frame))

    def _from(self, frame: int | None) -> list[int]:
        own = [0 if frame in (None, rank) else UNKNOWN for rank in self.rank.tolist()]
        return own + [0 if frame is None else UNKNOWN] * (len(self.cost) - len(own))


def _on_its_rank(schedule: Schedule, found: Dependencies) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of operations of one rank, the second of which uses a result of the first."""
    at = np.flatnonzero(among(schedule.op, _USES_ACTIVATION))
    edges = found.edges()
    pairs = [(edges.producer, edges.consumer)]
    pairs += [(found.made[result][schedule.key(at)], at) for result in (Result.ACTIVATION, *FOR_BACKWARDS)]
    pairs += [(producer, consumer) for consumer, producer in between_slices(schedule, found)]
    for one, two in pairs:
        there = one >= 0
        one, two = one[there], two[there]
        own = schedule.rank[one] == schedule.rank[two]
        yield one[own], two[own]


def longest(cost: Ints, arcs: tuple[Ints, Ints, Ints], least: list[int]) -> Ints:
    """Return the longest path to each node, without its own cost; arcs: before, after, delay, without a cycle."""
    before, after, delay = arcs
    by = np.argsort(before, kind="stable")
    first = np.searchsorted(before[by], np.arange(len(cost) + 1)).tolist()
    follower, later = after[by].tolist(), (delay + cost[before])[by].tolist()
    missing = np.bincount(after, minlength=len(cost)).tolist()
    ready = [node for node, count in enumerate(missing) if not count]
    while ready:
        node = ready.pop()
        for i in range(first[node], first[node + 1]):
            two = follower[i]
            least[two] = max(least[two], least[node] + later[i])
            missing[two] -= 1
            if not missing[two]:
                ready.append(two)
    return np.array(least, dtype=np.int64)


@dataclass(frozen=True)
class Least:
    """A bound in ticks: a rank's work between a head and a tail, or the longest path if there is no rank.

    held: True if `work` is the time that the activations of the rank need under its cap.
    """

    value: int
    rank: int = -1
    head: int = 0
    work: int = 0
    tail: int = 0
    held: bool = False


def least(made: Analysis, arcs: Arcs, caps: Sequence[Fraction] | None, *, span: bool) -> Least:
    """Return the best bound on the makespan, or on the span, of every order within the caps."""
    from pipesched.optimizer.proof.own_held import held

    by_memory = held(made, arcs, caps, span=span)
    return max([busiest(arcs, span=span), *by_memory], key=lambda one: one.value)


def busiest(arcs: Arcs, *, span: bool) -> Least:
    """Return the best bound by the work of a rank, or by a longest path."""
    best, paths = Least(0), (arcs.heads(), arcs.tails())
    if not span:
        best = Least(int((paths[0] + arcs.cost + paths[1]).max(initial=0)))
    for rank in range(len(arcs.cut) - 1):
        if span:
            paths = arcs.heads(rank), arcs.tails(rank)
        mine = slice(int(arcs.cut[rank]), int(arcs.cut[rank + 1]))
        order = np.argsort(-paths[0][mine], kind="stable")
        head, tail, cost = (of[mine][order] for of in (*paths, arcs.cost))
        for end in np.unique(tail).tolist():
            some = tail >= end
            work = np.cumsum(cost[some])
            at = int((head[some] + work).argmax())
            value = int(head[some][at] + work[at]) + end
            if value > best.value:
                best = Least(value, rank, int(head[some][at]), int(work[at]), end)
    return best


def judged(schedule: Schedule, terms: Terms, certificate: Mapping[str, object]) -> Judgement:
    """Judge a schedule and a certificate about every order of its operations.

    Raises:
        FaultError, PipeschedError, Unreadable: as `proof.judge` turns into findings.
    """
    case = Case(schedule, terms)
    if case.wrong:
        return Judgement(tuple(case.wrong))
    require("its STEPs divide the order" if schedule.steps else "")
    told, span = Entries(certificate, case.scale), case.terms.objective == "span"
    found = least(case.analysis, Arcs.of(schedule, case.analysis.ticks), terms.caps, span=span)
    verdict = _verdict(case, found)
    if verdict.lower > verdict.value:
        require(f"no order is below {case.said(found.value)}, but the schedule is")
    right = expected(case, verdict, OWN)
    told.only(*right)
    for name, value in wrong(told, right):
        require(f"{name} is {value}")
    return Judgement((), verdict, case.spent)


def _verdict(case: Case, found: Least) -> Verdict:
    why, by = f"the longest path of these operations: {case.said(found.value)}", "the longest path"
    if found.rank >= 0:
        work, by = case.said(found.work), f"rank {found.rank}"
        why = f"{by} has {work} of work"
        if found.held:
            why = f"{by} needs {work} under its cap to hold every activation until it is freed"
        first = [f"after a start of {case.said(found.head)}"] * (found.head > 0)
        last = [f"{case.said(found.tail)} before the end"] * (found.tail > 0)
        why += f", {' and '.join(first + last)}: {case.said(found.value)}" * bool(first + last)
    lower, why = Fraction(found.value, case.scale), f"{why}, in any order of these operations"
    return Verdict(case.terms.objective, case.value, lower, why, by, unit=case.unit)
