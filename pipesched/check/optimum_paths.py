"""How early an operation can start, and how soon after it everything can end: the longest paths.

    F(s) -> F(s+1), last F -> last I, I(s+1) -> I(s), I(s) -> W(s)    a message later where the rank differs
    the i-th microbatch of a route -> the next one, on the same stage  they are alike, so some best schedule keeps order
    w(i - k) -> F(s, i)                                               memory: else more than the cap is held

For the last line: if w has not ended when F(s, i) starts, then the k microbatches before i hold at least `each` on the
rank, and i itself `own`. So k is the first number with own + k * each > cap. Where I takes memory, so when I of i - k
ends, `late` is held by i and by what this I took.

A makespan is counted from 0 to the last end of all. A span is a rank's own: from its first start, whenever that is, to
its last end. So in the frame of a rank nothing of it starts before 0, and of the others nothing is known but by paths.
Nothing here is shared with what makes certificates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import NamedTuple, TypeAlias

import numpy as np

from pipesched.model.ops import Op
from pipesched.model.verdict import Terms

UNKNOWN = -(2**62)
"""Ticks before which nothing has been, whatever is added."""


class Line(NamedTuple):
    """The operations of one kind, route and stage; the i-th is that of the i-th microbatch of the route."""

    op: Op
    route: int
    stage: int


Starts: TypeAlias = dict[Line, list[int]]

Arc: TypeAlias = tuple[Line, Line, int, int]
"""(before, after, offset, time from end to start): operation i of after waits for i - offset of before."""


@dataclass
class Facts:
    """What a bound is about. Times in ticks; memory as integers, cap None where there is none.

    length, work, gains: of each line. gains: what one operation adds to what its rank holds. known: heads and tails
    that were asked for.
    """

    rank: dict[Line, int] = field(default_factory=dict)
    length: dict[Line, int] = field(default_factory=dict)
    work: dict[Line, int] = field(default_factory=dict)
    gains: dict[Line, int] = field(default_factory=dict)
    cap: list[int | None] = field(default_factory=list)
    arcs: list[Arc] = field(default_factory=list)
    known: dict[tuple[str, int | None], Starts] = field(default_factory=dict, repr=False)

    def on(self, rank: int) -> list[Line]:
        return [line for line in self.rank if self.rank[line] == rank]


def facts(terms: Terms) -> Facts:
    """The lines of a placement, inputs before what needs them, and what waits for what."""
    placement, release = terms.placement, terms.release
    made, ticks = Facts(), terms.costs.ticks(placement.stages)
    sizes = [size * placement.ranks / placement.stages for size in terms.costs.sizes(placement.stages)]
    shares = {Op.F: Fraction(1), Op.I: -release.at_input, Op.W: -release.at_weight, Op.B: Fraction(-1)}
    fine = lcm(*((x * y).denominator for x in sizes for y in shares.values()))
    made.cap = [None] * placement.ranks if terms.caps is None else [int(cap * fine // 1) for cap in terms.caps]
    back, counts = Op.B if terms.fused else Op.I, np.bincount(placement.route_of, minlength=placement.routes).tolist()
    for route in filter(lambda route: counts[route], range(placement.routes)):
        forward = [Line(Op.F, route, s) for s in range(placement.stages)]
        chain = forward + [Line(back, route, line.stage) for line in reversed(forward)]
        weights = [] if terms.fused else [Line(Op.W, route, line.stage) for line in forward]
        for line in chain + weights:
            made.rank[line] = int(placement.rank_of[route, line.stage])
            made.length[line] = counts[route]
            made.work[line] = int(ticks.compute[line.op, line.stage])
            made.gains[line] = int(shares[line.op] * sizes[line.stage] * fine)
            made.arcs.append((line, line, 1, 0))
        for one, two in pairwise(chain):
            made.arcs.append((one, two, 0, int(ticks.message[one.stage]) if made.rank[one] != made.rank[two] else 0))
        made.arcs += [(Line(Op.I, route, line.stage), line, 0, 0) for line in weights]
    for line in [line for line in made.rank if line.op == Op.F]:
        made.arcs += _memory(made, line)
    return made


def _memory(made: Facts, line: Line) -> list[Arc]:
    """What an F waits for because of memory."""
    cap, arcs = made.cap[made.rank[line]], []
    same = [x for x in made.on(made.rank[line]) if x.route == line.route]
    before = [x for x in same if x.op == Op.F and x.stage <= line.stage]
    own = sum(made.gains[x] for x in before)
    for w in [] if cap is None or own > cap else [x for x in same if x.op != Op.F]:
        both = [x for x in before if x.stage <= w.stage]
        each = sum(made.gains[x] for x in both)
        if w.op == Op.W:
            each = sum(min(made.gains[x], -made.gains[w]) for x in both if x.stage == w.stage)
        more = sum(max(0, made.gains[x]) for x in same if x.op == Op.I and x.stage == w.stage <= line.stage)
        late = sum(made.gains[x] for x in both) + more if more else 0
        if each > 0 and cap is not None and late <= cap:
            arcs.append((w, line, (cap - max(own, late)) // each + 1, 0))
    return arcs


def heads(made: Facts, frame: int | None = None) -> Starts:
    """The least start of every operation: in all, or after the first start of the rank `frame`."""
    if ("heads", frame) not in made.known:
        made.known["heads", frame] = longest(made.arcs, made.work, _least(made, frame))
    return made.known["heads", frame]


def tails(made: Facts, frame: int | None = None) -> Starts:
    """The least time from the end of every operation to the end of all, or of the rank `frame`. These are the heads of
    the mirror image.
    """
    if ("tails", frame) not in made.known:
        made.known["tails", frame] = mirrored(longest(mirror(made.arcs), made.work, mirrored(_least(made, frame))))
    return made.known["tails", frame]


def between(made: Facts, line: Line, i: int, offset: int) -> int:
    """The longest path from the start of an operation to that of a later one of its line."""
    least = {one: [UNKNOWN] * n for one, n in made.length.items()}
    least[line][i] = 0
    return longest(made.arcs, made.work, least)[line][i + offset]


def mirror(arcs: Sequence[Arc]) -> list[Arc]:
    """Backward in time."""
    return [(after, before, offset, message) for before, after, offset, message in arcs]


def mirrored(times: Mapping[Line, Sequence[int]]) -> Starts:
    """The last line first, and of each the last microbatch."""
    return {line: list(times[line][::-1]) for line in reversed(list(times))}


def longest(arcs: Sequence[Arc], work: Mapping[Line, int], least: Mapping[Line, Sequence[int]]) -> Starts:
    """The least starts that keep the arcs and are not below `least`, where inputs stand before what needs them.

    By blocks of as many microbatches as no arc but those of a line itself leads within, save from line to line. Along a
    line x[i] = max(ready[i], x[i-1] + work), which is a running maximum of ready[i] - i * work.
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


def _least(made: Facts, frame: int | None) -> Starts:
    return {line: [0 if frame in (None, rank) else UNKNOWN] * made.length[line] for line, rank in made.rank.items()}
