"""A problem in integers, and the earliest start of every operation by longest paths.

    F(s) -> F(s+1), last F -> last I, I(s+1) -> I(s), I(s) -> W(s)    a message later where the rank differs
    the i-th microbatch of a route -> the next one, on the same stage  alike, so some best schedule keeps their order
    w(i - k) -> F(s, i)                                               memory: otherwise more than the cap is held

A stage without a backward, or without W, still has these operations: they take no time, and nothing waits for them. On
a frozen stage with a backward, I frees the memory that W would free.

In the last line, w is an operation that frees memory: if w(i - k) has not ended when F(s, i) starts, then each of the k
microbatches before i holds at least `each` on the rank, and i itself holds `own`; k is the least number with
own + k * each > cap.

The makespan is counted from 0 to the last end on any rank. The span is counted on each rank from its own first start to
its last end. So in the frame of a rank, its operations start at 0 or later, and operations of other ranks are bounded
only by paths. The optimizer shares no code with this file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import NamedTuple, TypeAlias

import numpy as np

from pipesched.model.ops import Op, Result
from pipesched.optimizer.verdict import Terms

UNKNOWN = -(2**62)
"""A time in ticks so early that it precedes every other time, even after durations are added."""


class Line(NamedTuple):
    """A line: all operations of one kind, route and stage; the i-th is for the i-th microbatch of the route."""

    op: Op
    route: int
    stage: int


Times: TypeAlias = dict[Line, list[int]]
Arc: TypeAlias = tuple[Line, Line, int, int]
"""(before, after, offset, time from end to start): operation i of after waits for operation i - offset of before."""


@dataclass
class Problem:
    """A problem. Times are in ticks, memory in integers; cap: None for ranks without a cap. span: whether the span is
    the objective.

    For each line, rank; length: the number of operations; work: the duration of one operation; gains: the memory that
    one operation adds to the rank. known: cache of heads and tails.
    """

    span: bool
    rank: dict[Line, int] = field(default_factory=dict)
    length: dict[Line, int] = field(default_factory=dict)
    work: dict[Line, int] = field(default_factory=dict)
    gains: dict[Line, int] = field(default_factory=dict)
    cap: list[int | None] = field(default_factory=list)
    arcs: list[Arc] = field(default_factory=list)
    known: dict[tuple[bool, int | None], Times] = field(default_factory=dict, repr=False)

    def on(self, rank: int) -> list[Line]:
        return [line for line in self.rank if self.rank[line] == rank]

    @property
    def tick(self) -> int:
        """A common divisor, in ticks, of all times in schedules that start operations as early as possible."""
        return gcd(*self.work.values(), *(message for _, _, _, message in self.arcs)) or 1

    def heads(self, frame: int | None) -> Times:
        """Return the earliest start of every operation, counted from 0 or from the first start on the rank `frame`."""
        if (True, frame) not in self.known:
            self.known[True, frame] = longest(self.arcs, self.work, self._least(frame))
        return self.known[True, frame]

    def tails(self, frame: int | None) -> Times:
        """Return the least time from the end of every operation to the last end, on all ranks or on the rank `frame`.

        These tails are the heads of the problem's mirror image.
        """
        if (False, frame) not in self.known:
            late = longest(mirror(self.arcs), self.work, mirrored(self._least(frame)))
            self.known[False, frame] = mirrored(late)
        return self.known[False, frame]

    def _least(self, frame: int | None) -> Times:
        return {line: [0 if frame in (None, rank) else UNKNOWN] * self.length[line] for line, rank in self.rank.items()}


def _runs(line: Line, shares: Mapping[Op, Fraction], trained: bool, kept: bool) -> tuple[bool, Fraction]:
    """Return whether the operations of a line run, and the memory that each takes, as a share of an F's memory.

    A stage that is not trained has no W, and frees all of its memory at its I.
    """
    if line.op == Op.F:
        return True, shares[line.op]
    if line.op == Op.W:
        return trained, shares[line.op] if trained else Fraction(0)
    return kept, shares[line.op] if trained else Fraction(-1)


def problem(terms: Terms) -> Problem:
    """Build the problem for these terms: the lines, each after its inputs, and the arcs."""
    placement, release = terms.placement, terms.release
    made, ticks = Problem(terms.objective == "span"), terms.costs.ticks(placement.stages)
    sizes = [size * placement.ranks / placement.stages for size in terms.costs.sizes(placement.stages)]
    shares = {Op.F: Fraction(1), Op.I: -release.at_input, Op.W: -release.at_weight, Op.B: Fraction(-1)}
    kept, trained = placement.wants[Result.GRADIENT].tolist(), placement.wants[Result.WEIGHTS].tolist()
    fine = lcm(*((x * y).denominator for x in sizes for y in shares.values()))
    made.cap = terms.whole_caps(fine)
    back, counts = Op.B if terms.fused else Op.I, np.bincount(placement.route_of, minlength=placement.routes).tolist()
    for route in filter(lambda route: counts[route], range(placement.routes)):
        forward, chain, weights = _lines(route, placement.stages, back)
        for line in chain + weights:
            made.rank[line] = int(placement.rank_of[route, line.stage])
            made.length[line] = counts[route]
            runs, share = _runs(line, shares, trained[line.stage], kept[line.stage])
            made.work[line] = int(ticks.compute[line.op, line.stage]) * runs
            made.gains[line] = int(share * sizes[line.stage] * fine) * kept[line.stage]
            made.arcs.append((line, line, 1, 0))
        for one, two in pairwise(chain):
            sent = made.rank[one] != made.rank[two] and (two.op == Op.F or kept[two.stage])
            made.arcs.append((one, two, 0, int(ticks.message[one.stage]) if sent else 0))
        made.arcs += [(Line(Op.I, route, line.stage), line, 0, 0) for line in weights]
        made.arcs += [arc for line in forward for arc in _memory(made, line, back)]
    return made


def _lines(route: int, stages: int, back: Op) -> tuple[list[Line], list[Line], list[Line]]:
    """Return three lists of a route's lines: for F; for F and the backwards, in chain order; for W."""
    forward = [Line(Op.F, route, stage) for stage in range(stages)]
    backward = [Line(back, route, stage) for stage in reversed(range(stages))]
    return forward, forward + backward, [Line(Op.W, route, stage) for stage in range(stages) if back is Op.I]


def _memory(made: Problem, line: Line, back: Op) -> Iterator[Arc]:
    """Yield the arcs by which an F waits for memory: a microbatch holds `own` until I or B, then the rest until W."""
    cap, own = made.cap[made.rank[line]], made.gains[line]
    each = own
    for w in [x for x in (line._replace(op=back), line._replace(op=Op.W)) if x in made.rank and cap is not None]:
        if each > 0 and cap is not None and own <= cap:
            yield w, line, (cap - own) // each + 1, 0
        each += min(0, made.gains[w])


def between(made: Problem, line: Line, i: int, offset: int) -> int:
    """Return the length of the longest path between the starts of operations i and i + offset of a line."""
    least = {one: [UNKNOWN] * n for one, n in made.length.items()}
    least[line][i] = 0
    return longest(made.arcs, made.work, least)[line][i + offset]


def floored(problem: Problem, grid: int) -> Problem:
    """Round durations and message times down to multiples of `grid` ticks, which become the unit.

    The starts of every schedule also form a schedule of the rounded problem, with an objective that is no larger: no
    operation ends later, so no memory is freed later. So its bounds, in ticks, bound the original too.

    Raises:
        ValueError: the end of an operation takes memory, or `grid` is below 1.
    """
    if grid < 1 or any(gain > 0 for line, gain in problem.gains.items() if line.op != Op.F):
        raise ValueError("the end of an operation takes memory, or the grid is below one tick")
    work = {line: x // grid for line, x in problem.work.items()}
    arcs = [(before, after, offset, message // grid) for before, after, offset, message in problem.arcs]
    return replace(problem, work=work, arcs=arcs, known={})


def mirror(arcs: Sequence[Arc]) -> list[Arc]:
    """Return the arcs with time reversed."""
    return [(after, before, offset, message) for before, after, offset, message in arcs]


def mirrored(times: Mapping[Line, Sequence[int]]) -> Times:
    """Return the lines in reverse order, each with its microbatches reversed."""
    return {line: list(times[line][::-1]) for line in reversed(list(times))}


def longest(arcs: Sequence[Arc], work: Mapping[Line, int], least: Mapping[Line, Sequence[int]]) -> Times:
    """Return the earliest starts that satisfy the arcs and are at least `least`, whose lines are in topological order.

    Starts are computed in blocks of microbatches. A block is as long as the least offset above 0 between two lines, so
    an arc with an offset comes from an earlier block. Along a line x[i] = max(ready[i], x[i-1] + work), a running
    maximum of ready[i] - i * work.
    """
    into: dict[Line, list[tuple[Line, int, int]]] = defaultdict(list)
    for before, after, offset, message in arcs:
        if before != after:
            into[after].append((before, offset, work[before] + message))
    value = {line: np.array(times, dtype=np.int64) for line, times in least.items()}
    size = max(map(len, value.values()), default=0)
    block = min((offset for before, after, offset, _ in arcs if before != after and offset), default=size)
    for low in range(0, size, max(block, 1)):
        for line, times in value.items():
            ready = times[low : low + block]
            for before, offset, delay in into[line]:
                arrived = value[before][max(0, low - offset) : max(0, low + len(ready) - offset)] + delay
                late = ready[len(ready) - len(arrived) :]
                np.maximum(late, arrived, out=late)
            if low and len(ready):
                ready[0] = max(ready[0], times[low - 1] + work[line])
            slope = np.arange(len(ready)) * work[line]
            ready[:] = np.maximum.accumulate(ready - slope) + slope
    return {line: times.tolist() for line, times in value.items()}
