"""Longest paths: the earliest and the latest start of every operation for an objective of at most C.

    head          the longest path to the operation: no schedule starts it sooner
    tail          the longest path from its end: every schedule takes at least as long after it
    time window   from head to C - tail - duration

The span is counted on each rank separately. If times count from the first start on a rank, no path begins on another
rank, since other ranks can begin earlier, and this rank later (`framed`):

    head   the longest path to the operation from any operation of the rank: none of these starts before the first start
    tail   the longest path from the operation to any operation of the rank

A path follows links between sequences, which are the same for every microbatch: operation i of one sequence waits for
operation i - offset of the other.

    chain    offset 0            order    offset 1, of a sequence to itself            memory    offset k, as follows

Suppose F of stage s, microbatch i, starts, and some backward w of microbatch i - k has not ended. Then their rank holds

    held by i itself              every stage of the rank up to s                              base
    held by each of i-k .. i-1    w = W of stage t: what W frees of t                          slope
                                  w = I or B of stage t: all stages of the rank up to s, t     (no I after it has ended)

If base + k * slope exceeds the cap, this F must therefore wait for that w. With one stage on a rank, released at W, the
links express the memory constraint completely; otherwise they express only a part of it. If I takes memory, the rank
must also be within its cap at the end of I of microbatch i - k: then it holds the memory that I takes too, and all
stages of microbatch i up to s, t.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import NamedTuple

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve.problem import Problem
from pipesched.optimizer.solve.reductions import restrict


class Link(NamedTuple):
    """Operation i of `later` starts at least delay after the start of operation i - offset of `earlier`."""

    later: int
    earlier: int
    offset: int
    delay: int


def linked_ranks(problem: Problem) -> tuple[int, ...]:
    """Return the ranks whose memory the links express completely: one sequence takes memory and one frees it."""
    sequences = [[q for q in held if problem.takes[q] or problem.frees[q]] for held in problem.on]
    return tuple(
        rank
        for rank, held in enumerate(sequences)
        if len(held) == 2 and (problem.takes[held] > 0).sum() == 1 and (problem.frees[held] > 0).sum() == 1
    )


class _Columns(NamedTuple):
    """The columns of a problem as lists, by sequence. more: by sequence, the memory that the I of its stage takes."""

    op: list[int]
    stage: list[int]
    takes: list[int]
    frees: list[int]
    duration: list[int]
    more: list[int]


_F, _I, _W = int(Op.F), int(Op.I), int(Op.W)


def memory_links(problem: Problem) -> list[Link]:
    """Return the memory links of all ranks, without implied ones; an F that by itself exceeds the cap has no links."""
    table = (problem.op, problem.stage, problem.takes, problem.frees, problem.duration, _taken_by_input(problem))
    x, route, made = _Columns(*(column.tolist() for column in table)), problem.route.tolist(), list[Link]()
    for held, cap in zip(problem.on, problem.cap.tolist(), strict=True):
        for way in sorted({route[q] for q in held}):
            own = [q for q in held if route[q] == way]
            forward, waits = [q for q in own if x.op[q] == _F], [q for q in own if x.op[q] != _F]
            waits.sort(key=lambda q: (x.op[q] != _W, x.stage[q]))
            for f in forward:
                made += _needed(x, f, forward, waits, cap)
    return made


def _taken_by_input(problem: Problem) -> Ints:
    """Return, by sequence, the memory that the I of its stage and route takes."""
    more = np.zeros_like(problem.takes)
    for q in np.flatnonzero((problem.op == _I) & (problem.frees < 0)).tolist():
        more[(problem.stage == problem.stage[q]) & (problem.route == problem.route[q])] -= problem.frees[q]
    return more


def _needed(x: _Columns, f: int, forward: list[int], waits: list[int], cap: int) -> list[Link]:
    """Return the memory links of one F, without those that a link to a later backward with no larger offset implies.
    forward, waits: the F and the backwards of this route on the rank, the latest backward first.
    """
    stage, takes = x.stage, x.takes
    base = sum(takes[q] for q in forward if stage[q] <= stage[f])
    made: list[Link] = []
    for w in waits:
        held = [q for q in forward if stage[q] <= min(stage[f], stage[w])]
        slope, least = _slope(x, held, w), max(base, _before(x, held, w))
        if slope <= 0 or cap < least:
            continue
        offset = (cap - least) // slope + 1
        precedes = (link for link in made if x.op[w] != _W and stage[w] >= stage[link.earlier])
        if not any(link.offset <= offset for link in precedes):
            made.append(Link(f, w, offset, x.duration[w]))
    return made


def _before(x: _Columns, held: list[int], w: int) -> int:
    """Return what the F in `held` and the I of w's stage take; 0 if this I takes nothing or its F is not in `held`."""
    takes_more = x.more[w] and any(x.stage[q] == x.stage[w] for q in held)
    return sum(x.takes[q] for q in held) + x.more[w] if takes_more else 0


def _slope(x: _Columns, held: list[int], w: int) -> int:
    """Return the memory that each microbatch holds before its w has ended. held: the F whose stages are at most those
    of w and of the waiting F.
    """
    if x.op[w] != _W:
        return sum(x.takes[q] for q in held)
    own = [q for q in held if x.stage[q] == x.stage[w]]
    return min(x.frees[w], x.takes[own[0]]) if own else 0


_NEVER = np.int64(-(2**40))
_ROUNDS = 3
_SMALL = 1_000_000  # most operations times ranks of a small problem


@dataclass(frozen=True, eq=False)
class Paths:
    """The longest paths. head, tail: int64, shape (operations,), in ticks."""

    head: Ints
    tail: Ints

    def least(self, problem: Problem) -> int:
        """Return the length of the longest path, which is a lower bound on the objective."""
        return int((self.head + self.tail + problem.duration[problem.sequence]).max(initial=0))


def links(problem: Problem) -> list[Link]:
    """Return the links between sequences for chains, orders and memory."""
    made = problem.__dict__.get("_links")
    if made is None:
        made = problem.__dict__["_links"] = _links(problem)
    return made


def _links(problem: Problem) -> list[Link]:
    table = zip(problem.before.tolist(), problem.after.tolist(), problem.lag.tolist(), strict=True)
    duration = problem.duration.tolist()
    made = [Link(a, b, 0, duration[b] + lag) for b, a, lag in table]
    made += [Link(q, q, 1, duration[q]) for q in range(problem.sequences)]
    return made + memory_links(problem)


def paths(problem: Problem) -> Paths:
    """Return the heads and tails for the makespan by longest paths; O(edges)."""
    made = problem.__dict__.get("_paths")
    if made is None:
        made = problem.__dict__["_paths"] = _paths(problem, np.zeros(problem.operations, dtype=np.int64))
    return made


def entry(problem: Problem) -> int:
    """Return the rank of stage 0, which begins before all other ranks."""
    return int(problem.rank[np.flatnonzero(problem.stage == 0)[0]]) if problem.sequences else 0


def framed(problem: Problem, frame: int) -> Paths:
    """Return the heads and tails for the objective; for the span, in the frame of one rank.

    An operation on another rank has a head if a path from the frame leads to it, and a tail if a path leads back;
    otherwise its head or tail is far below 0. In a large problem, the order and memory of other ranks are left out,
    unless the frame is `entry`.
    """
    if problem.objective == "makespan":
        return paths(problem)
    made: dict[int, Paths] = problem.__dict__.setdefault("_framed", {})
    if frame not in made:
        made[frame] = _framed(problem, frame)
    return made[frame]


def _framed(problem: Problem, frame: int) -> Paths:
    if problem.operations * problem.ranks <= _SMALL or frame == entry(problem):
        return _paths(problem, np.where((problem.rank != frame)[problem.sequence], _NEVER, 0))
    part, kept = restrict(problem, (frame,))
    found = _paths(part, np.zeros(part.operations, dtype=np.int64))
    head, tail = np.full((2, problem.operations), _NEVER)
    head[kept], tail[kept] = found.head, found.tail
    return Paths(head, tail)


def _paths(problem: Problem, least: Ints) -> Paths:
    """Return the heads and tails by longest paths from and to the operations whose `least` is 0."""
    made = links(problem)
    duration = problem.duration[problem.sequence]
    head = longest(problem.length, made, least)
    return Paths(head, longest_from(problem.length, made, least + duration) - duration)


def within(problem: Problem, bound: int, ranks: tuple[int, ...] | None = None) -> tuple[Ints, Ints]:
    """Return (low, high), the earliest and the latest start of every operation for an objective of at most `bound`.

    ranks: the ranks to which `bound` applies, None for all. For the span of one rank, times count from its first
    start; otherwise, from the first start of all ranks, which is on the rank of stage 0.
    """
    duration = problem.duration[problem.sequence]
    if problem.objective == "makespan" or (ranks is not None and len(ranks) == 1):
        found = framed(problem, ranks[0] if ranks else 0)
        return found.head, bound - found.tail - duration
    low, rank, made = paths(problem).head, problem.rank[problem.sequence], links(problem)
    first = np.full(problem.ranks, -_NEVER)
    first[entry(problem)] = 0
    high = np.full(problem.operations, -_NEVER)
    for _ in range(_ROUNDS):  # the windows are valid after each round; more rounds narrow them
        high = np.minimum(high, first[rank] + bound - duration)
        high = -longest_from(problem.length, made, -high)
        np.minimum.at(first, rank, high)
    for _ in range(_ROUNDS):
        least = np.full(problem.ranks, np.int64(0))
        np.maximum.at(least, rank, low + duration - bound)
        low = longest(problem.length, made, np.maximum(low, least[rank]))
    return low, high


def longest(length: Ints, links: list[Link], least: Ints) -> Ints:
    """Return the longest paths: value[later, i] = max(least, value[earlier, i - offset] + delay) over the links."""
    first = (np.cumsum(length) - length).tolist()
    inputs: dict[int, list[Link]] = {q: [] for q in range(len(length))}
    for link in links:
        inputs[link.later].append(link)
    order = TopologicalSorter({q: [x.earlier for x in given if not x.offset] for q, given in inputs.items()})
    rows = [
        (first[q], n, [(first[x.earlier] - x.offset, x.offset, x.delay) for x in inputs[q]])
        for q in order.static_order()
        if (n := int(length[q]))
    ]
    value = least.tolist()
    for i in range(int(length.max(initial=0))):
        for start, n, given in rows:
            if i < n:
                here = value[start + i]
                for source, offset, delay in given:
                    if i >= offset and (there := value[source + i] + delay) > here:
                        here = there
                value[start + i] = here
    return np.array(value, dtype=np.int64)


def longest_from(length: Ints, links: list[Link], least: Ints) -> Ints:
    """Return the longest paths in the direction opposite to the links, by mirroring the problem in time."""
    last = len(length) - 1
    mirrored = [Link(last - x.earlier, last - x.later, x.offset, x.delay) for x in links]
    return longest(length[::-1], mirrored, least[::-1])[::-1].copy()
