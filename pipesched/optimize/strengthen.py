"""Later heads and longer tails: a rank has to do what comes before an operation, one thing at a time.

    head of x >= H + work + L     for any set of operations of the rank of x that all come before x: H is the least of
                                  their heads, L the least of the paths from their ends to x
    head of x >= t + (work - before(t)) + L      for all of them, where before(t) is what fits before t (`warmup`)

Operations are taken in topological order, so what is before has its final head. Tails are the heads of the mirror
image, in which time runs from the end. Up to half of the clauses of a question go this way, and refutations are
several times faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimize.memory_links import Link
from pipesched.optimize.problem import Problem
from pipesched.optimize.warmup import limits
from pipesched.optimize.windows import Paths, links, paths

_NEVER = 2**61
_OFFSET = 2**40  # an offset of one, in a number that orders paths by offset, then by length
_MOST = 20_000  # operations


def strengthen(problem: Problem, found: Paths | None = None) -> Paths:
    """`paths` with later heads and longer tails, at least as good everywhere; the same where there are too many
    operations for that to pay.
    """
    found = found or paths(problem)
    if problem.operations > _MOST:
        return found
    made, d = links(problem), problem.duration.tolist()
    last = len(d) - 1
    mirrored = [Link(last - x.earlier, last - x.later, x.offset, x.delay + d[x.later] - d[x.earlier]) for x in made]
    ahead = [_limits(problem, r, found.head, back=False) for r in range(problem.ranks)]
    behind = [_limits(problem, r, found.tail, back=True) for r in range(problem.ranks)]
    one = Side(problem.length, problem.duration, problem.rank, made, found.head, ahead)
    two = Side(problem.length[::-1], problem.duration[::-1], problem.rank[::-1], mirrored, found.tail[::-1], behind)
    return Paths(problem, one.heads(), two.heads()[::-1].copy())


def _limits(problem: Problem, rank: int, time: Ints, *, back: bool) -> tuple[Ints, Ints]:
    """(idle time that is sure once more than so much work is done, so much work), ascending."""
    times, fits = limits(problem, rank, time, back=back)
    return np.maximum.accumulate(times - fits), np.maximum.accumulate(fits)


@dataclass(frozen=True, eq=False)
class Side:
    """A problem from the beginning, or its mirror image; everything by sequence, operations one sequence after another.

    least: heads that are known. limits: by rank, times and the work that fits before each.
    """

    length: Ints
    duration: Ints
    rank: Ints
    links: list[Link]
    least: Ints
    limits: list[tuple[Ints, Ints]]

    def heads(self) -> Ints:
        """Heads by the rules above."""
        first = np.cumsum(self.length) - self.length
        offset, lag = _closure(len(self.length), self.links)
        inputs: dict[int, list[Link]] = {q: [] for q in range(len(self.length))}
        for link in self.links:
            inputs[link.later].append(link)
        order = TopologicalSorter({q: [x.earlier for x in given if not x.offset] for q, given in inputs.items()})
        rows = [(q, inputs[q], self.before(q, offset, lag)) for q in order.static_order()]
        value = self.least.copy()
        for i in range(int(self.length.max(initial=0))):
            for q, given, before in rows:
                if i < self.length[q]:
                    ready = [value[first[x.earlier] + i - x.offset] + x.delay for x in given if x.offset <= i]
                    sets = [(a, path, value[first[a] : first[a] + i - far + 1]) for a, far, path in before if far <= i]
                    here = first[q] + i
                    value[here] = max(value[here], *ready, self.after(int(self.rank[q]), sets))
        return value

    def before(self, q: int, offset: Ints, lag: Ints) -> list[tuple[int, int, int]]:
        """(sequence, offset, path from its end) of what comes before q on its rank, the longest path first."""
        same = np.flatnonzero((self.rank == self.rank[q]) & (offset[:, q] < _NEVER // _OFFSET))
        made = [(a, int(offset[a, q]), int(lag[a, q] - self.duration[a])) for a in same.tolist()]
        return sorted(made, key=lambda row: -row[2])

    def after(self, rank: int, sets: list[tuple[int, int, Ints]]) -> int:
        """When all of these operations can be over, and the path from them is; the sets of the longest paths first."""
        times, fits = self.limits[rank]
        best = -_NEVER
        for k, (_, path, _) in enumerate(sets, 1):
            if k == len(sets) or sets[k][1] < path:
                head = np.concatenate([heads for _, _, heads in sets[:k]])
                work = np.repeat(self.duration[[a for a, _, _ in sets[:k]]], [len(heads) for _, _, heads in sets[:k]])
                order = np.argsort(-head, kind="stable")
                total = np.cumsum(work[order])
                late = int((head[order] + total).max())
                n = int(np.searchsorted(fits, total[-1]))
                best = max(best, path + late, path + int(times[n - 1] + total[-1]) if n else 0)
        return best


def _closure(count: int, links: list[Link]) -> tuple[Ints, Ints]:
    """Between sequences: the least offset of a path, and the longest delay of those; shape (earlier, later)."""
    far = np.full((count, count), _NEVER, dtype=np.int64)
    for link in links:
        far[link.earlier, link.later] = min(far[link.earlier, link.later], link.offset * _OFFSET - link.delay)
    for k in range(count):
        far = np.minimum(far, np.minimum(far[:, k, None] + far[None, k, :], _NEVER))
    offset = -(-far // _OFFSET)
    return offset, offset * _OFFSET - far
