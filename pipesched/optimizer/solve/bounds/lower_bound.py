"""Lower bounds on the objective.

    path          the longest path through chains, orders and memory
    one-machine   a set of operations of a rank: least head + work + least tail
    ends          a rank's work, minus the work that fits before one time and after another          `warmup`

The lower bound is the best bound over all ranks. Each bound consists of two times and a few sums. The checker (`proof`)
derives the first two kinds again as work between two times, and the third by its own dynamic programming over counts.
Every kind is valid for the span if heads and tails are in the frame of the rank (`longest_paths.framed`): they count
from its first start and to its last end. The work of a rank also bounds the span of another rank, the frame, if this
work is on paths from the frame's start to its end.

One machine: jobs with heads and tails run one at a time, so no schedule ends before least head + work + least tail of
any set of them. The largest value over all sets is the length of Jackson's preemptive schedule, which always runs the
job with the largest tail among the jobs whose head has passed. (Jackson 1955; Carlier, EJOR 11, 1982: "the one-machine
sequencing problem".) A best set consists of all jobs with at least its head and at least its tail, so two numbers
describe it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.solve.bounds.longest_paths import entry, framed, linked_ranks
from pipesched.optimizer.solve.bounds.warmup import Ends, ends
from pipesched.optimizer.solve.problem import Problem


@dataclass(frozen=True)
class Busy:
    """The set of all jobs with at least this head and at least this tail; work: the total work of the jobs."""

    head: int
    work: int
    tail: int

    @property
    def value(self) -> int:
        return self.head + self.work + self.tail


def busiest(head: Ints, work: Ints, tail: Ints) -> Busy:
    """Return the set with the largest value, or the set of all jobs if its value is as large. O(n log n).

    Jobs without work count too, since a path is a set of one job.
    """
    if not len(head):
        return Busy(0, 0, 0)
    most, everything = _largest(head, work, tail), Busy(int(head.min()), int(work.sum()), int(tail.min()))
    return everything if everything.value == most.value else most


def _largest(head: Ints, work: Ints, tail: Ints) -> Busy:
    least = _critical_tail(head, work, tail)
    within = tail >= least
    order = np.flatnonzero(within)[np.argsort(-head[within], kind="stable")]
    total = np.cumsum(work[order])
    values = head[order] + total
    best = int(np.argmax(values))
    value = int(values[best])
    return Busy(int(head[order[best]]), value - int(head[order[best]]), least)


def _critical_tail(head: Ints, work: Ints, tail: Ints) -> int:
    """Return the tail of the job that decides Jackson's preemptive schedule."""
    order = np.argsort(head, kind="stable")
    heads, left, tails = head[order].tolist(), work[order].tolist(), tail[order].tolist()
    count, at, now = len(heads), 0, 0
    most, least = -(2**62), 0
    waiting: list[tuple[int, int]] = []
    while at < count or waiting:
        if not waiting:
            now = max(now, heads[at])
        while at < count and heads[at] <= now:
            heappush(waiting, (-tails[at], at))
            at += 1
        rest, job = waiting[0]
        until = heads[at] if at < count else now + left[job]
        if now + left[job] <= until:
            now += left[job]
            heappop(waiting)
            if now - rest > most:
                most, least = now - rest, -rest
        else:
            left[job] -= until - now
            now = until
    return least


@dataclass(frozen=True)
class Bound:
    """A lower bound, in ticks. name: for messages; kind: path, one-machine or ends; terms: the times in its sum."""

    value: int
    name: str
    kind: str
    rank: int
    terms: Busy | Ends
    frame: int


_PATHS, _ENDS, _FRAME = 5, 60, 2  # steps per operation: paths; warm-up, if paths lack memory; each frame


def cost(problem: Problem) -> int:
    """Return the number of steps that the first call of `lower_bound` takes."""
    ends = len(linked_ranks(problem)) < problem.ranks
    return problem.operations * (_PATHS + _ENDS * ends + _FRAME * problem.ranks * (problem.objective == "span"))


def lower_bound(problem: Problem) -> Bound:
    """Return the best bound of all ranks and kinds; among equal bounds, the simplest, then that with most work."""
    best = Bound(0, "nothing to do", "path", 0, Busy(0, 0, 0), 0)
    for rank in range(problem.ranks):
        for bound in rank_bounds(problem, rank):
            more = bound.kind == best.kind and bound.terms.work > best.terms.work
            if bound.value > best.value or (bound.value == best.value and more):
                best = bound
    return best


def rank_bounds(problem: Problem, rank: int) -> list[Bound]:
    """Return the bounds from one rank, simplest first."""
    made: dict[int, list[Bound]] = problem.__dict__.setdefault("_bounds", {})
    if rank not in made:
        made[rank] = _rank_bounds(problem, rank)
    return made[rank]


def _rank_bounds(problem: Problem, rank: int) -> list[Bound]:
    own = np.concatenate(
        [np.arange(problem.first[q], problem.first[q + 1]) for q in problem.on[rank]] or [np.zeros(0, dtype=np.int64)]
    )
    if not len(own):
        return []
    if problem.objective == "span" and rank != entry(problem):
        return _in_frame(problem, rank, own, rank) + _in_frame(problem, rank, own, entry(problem))[:2]
    return _in_frame(problem, rank, own, rank)


def _in_frame(problem: Problem, rank: int, own: Ints, frame: int) -> list[Bound]:
    found = framed(problem, frame)
    head, tail, work = found.head[own], found.tail[own], problem.duration[problem.sequence[own]]
    at = int(np.argmax(head + work + tail))
    path = Busy(int(head[at]), int(work[at]), int(tail[at]))
    busy = busiest(head, work, tail)
    made = [
        Bound(path.value, f"longest path, through rank {rank}", "path", rank, path, frame),
        Bound(busy.value, f"work of rank {rank} from first to last operation", "one-machine", rank, busy, frame),
    ]
    if frame == rank and rank not in linked_ranks(problem):  # otherwise heads and tails include all of memory
        both = ends(problem, rank, found.head, found.tail)
        made.append(Bound(both.value, f"warm-up and cool-down of rank {rank} under its cap", "ends", rank, both, frame))
    return made
