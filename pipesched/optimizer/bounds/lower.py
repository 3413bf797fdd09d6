"""No schedule is better than this.

    path          the longest path through chains, orders and memory
    one-machine   a set of operations of a rank: least head + work + least tail                        `machine`
    ends          a rank's work, less what fits before a time and what fits after another one          `warmup`

The best over all ranks is the lower bound. Each is two times and some sums, so that a person can follow it and
`check.optimum` can derive it anew. Every kind holds for the span with the heads and tails of the rank's own span
(`windows.about`), which count from its first start and to its last end; nothing is assumed of when it begins. The work
of a rank may also count for the span of another one, the frame: what lies on paths from its start to its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.bounds.machine import Busy, busiest
from pipesched.optimizer.bounds.memory_links import told
from pipesched.optimizer.bounds.warmup import Ends, ends
from pipesched.optimizer.bounds.windows import about, entry
from pipesched.optimizer.problem import Problem


@dataclass(frozen=True)
class Bound:
    """In ticks of the problem. name: for people; kind: path, one-machine or ends; terms: what adds up to value."""

    value: int
    name: str
    kind: str
    rank: int
    terms: Busy | Ends
    frame: int


def lower_bound(problem: Problem) -> Bound:
    """The best bound of all ranks and kinds; the plainest one where several are equal, and of these the one that
    counts most work.
    """
    best = Bound(0, "nothing to do", "path", 0, Busy(0, 0, 0), 0)
    for rank in range(problem.ranks):
        for bound in rank_bounds(problem, rank):
            more = bound.kind == best.kind and bound.terms.work > best.terms.work
            if bound.value > best.value or (bound.value == best.value and more):
                best = bound
    return best


def rank_bounds(problem: Problem, rank: int) -> list[Bound]:
    """The bounds of one rank, plainest first."""
    own = np.concatenate(
        [np.arange(problem.first[q], problem.first[q + 1]) for q in problem.on[rank]] or [np.zeros(0, dtype=np.int64)]
    )
    if not len(own):
        return []
    if problem.objective == "span" and rank != entry(problem):
        return _in_frame(problem, rank, own, rank) + _in_frame(problem, rank, own, entry(problem))[:2]
    return _in_frame(problem, rank, own, rank)


def _in_frame(problem: Problem, rank: int, own: Ints, frame: int) -> list[Bound]:
    found = about(problem, frame)
    head, tail, work = found.head[own], found.tail[own], problem.duration[problem.sequence[own]]
    at = int(np.argmax(head + work + tail))
    path = Busy(int(head[at]), int(work[at]), int(tail[at]))
    busy = busiest(head, work, tail)
    made = [
        Bound(path.value, f"longest path, through rank {rank}", "path", rank, path, frame),
        Bound(busy.value, f"work of rank {rank} from the first of it to the last", "one-machine", rank, busy, frame),
    ]
    if frame == rank and rank not in told(problem):  # where links tell all of memory, heads and tails know it
        both = ends(problem, rank, found.head, found.tail)
        made.append(Bound(both.value, f"warm-up and cool-down of rank {rank} under its cap", "ends", rank, both, frame))
    return made
