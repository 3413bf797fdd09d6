"""Ranks, one after another: is it certain that no schedule ends by C?

    time window   [low, high] of every start, from the longest paths
    rank          its sequences are chains of like operations, so an order is a path through counts, and memory is a
                  function of them:

                      T[counts] = the least time at which these can be done, over all orders within the cap

                  Every step starts within its time window; what lies on no path that is over by C leaves it.
    round         every rank, then the paths again: what became late on one rank is late on its neighbours

C is refuted if a time window is empty or no order is left. Microbatches of a route are alike, so each sequence keeps
their order. So are the W of a rank, where all take as long and free as much: the n-th of them all waits until n of
their I have ended. Budgeted in steps of the programme, so the answer is the same on every machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from pipesched.check.optimum_paths import UNKNOWN, Facts, Line, heads, tails
from pipesched.model.ops import Op

STEPS = 500_000
"""How many steps from counts to counts are looked at before nothing is said."""

Counts: TypeAlias = tuple[int, ...]
Step: TypeAlias = tuple[Counts, Counts, int, int, int]
"""Counts before and after, the sequence, which operation of it, and its least start."""


class _OutOfStepsError(Exception):
    pass


def refutes(facts: Facts, bound: int, *, span: bool, steps: int = STEPS) -> bool:
    """Whether it is certain that the makespan, or the span, is more than `bound` ticks; False too if steps run out.

    A span of at most `bound` asks it of every rank in its own frame, and then of all ranks in the frame of each: what
    lies on paths from the first start of one rank to its last end has no more time than that.
    """
    ranks, left = sorted(set(facts.rank.values())), [steps]
    frames: list[tuple[int | None, list[int]]] = [(None, ranks)]
    if span:
        frames = [*((rank, [rank]) for rank in ranks), *((rank, ranks) for rank in ranks)]
    try:
        return any(_refuted(_Windows(facts, bound, frame), asked, left) for frame, asked in frames)
    except _OutOfStepsError:
        return False


def _refuted(windows: _Windows, ranks: Sequence[int], left: list[int]) -> bool:
    """Rounds over the ranks, until nothing moves; left: steps, counted down."""
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            left[0] -= windows.spread()
            before = windows.of(rank)
            if not windows.possible() or not _programme(windows, rank, left):
                return True
            moved |= windows.of(rank) != before
    return False


class _Windows:
    """When every operation can start. like: of a rank whose W are alike the line that stands for all of them."""

    def __init__(self, facts: Facts, bound: int, frame: int | None) -> None:
        self.facts, self.length, self.rank = facts, dict(facts.length), dict(facts.rank)
        self.work, self.gains = dict(facts.work), dict(facts.gains)
        self.low, late = {line: values[:] for line, values in heads(facts, frame).items()}, tails(facts, frame)
        self.high = {line: [bound - x - facts.work[line] for x in late[line]] for line in late}
        self.inputs: dict[Line, list[Line]] = {}
        for rank in range(len(facts.cap)):
            weights = [line for line in facts.on(rank) if line.op == Op.W]
            if len(weights) > 1 and len({(facts.work[line], facts.gains[line]) for line in weights}) == 1:
                self._merge(Line(Op.W, -1, rank), weights)
        self.arcs = [arc for arc in facts.arcs if arc[0] in self.rank and arc[1] in self.rank]
        self.arcs += [(line, line, 1, 0) for line in self.inputs]
        self.order = list(self.rank)

    def _merge(self, all_of_them: Line, weights: list[Line]) -> None:
        """The n-th start of all is not before the n-th least of what each can start at, and likewise at the end."""
        for table in (self.low, self.high):
            table[all_of_them] = sorted(x for line in weights for x in table.pop(line))
        self.length[all_of_them] = sum(self.length.pop(line) for line in weights)
        for facts in (self.rank, self.work, self.gains):
            facts[all_of_them] = [facts.pop(line) for line in weights][-1]
        self.inputs[all_of_them] = [Line(Op.I, line.route, line.stage) for line in weights]

    def possible(self) -> bool:
        return all(low <= high for line in self.low for low, high in zip(self.low[line], self.high[line], strict=True))

    def of(self, rank: int) -> list[tuple[list[int], list[int]]]:
        return [(self.low[line][:], self.high[line][:]) for line in self.order if self.rank[line] == rank]

    def spread(self) -> int:
        """Each time window narrows those before and after it; how many there are."""
        into: dict[Line, list[tuple[Line, int, int]]] = defaultdict(list)
        for before, after, offset, message in self.arcs:
            into[after].append((before, offset, self.work[before] + message))
        turns = [(line, i) for i in range(max(self.length.values(), default=0)) for line in self.order]
        turns = [(line, i) for line, i in turns if i < self.length[line]]
        for line, i in turns:
            for before, offset, delay in into[line]:
                if offset <= i:
                    self.low[line][i] = max(self.low[line][i], self.low[before][i - offset] + delay)
        for line, i in reversed(turns):
            for before, offset, delay in into[line]:
                if offset <= i:
                    self.high[before][i - offset] = min(self.high[before][i - offset], self.high[line][i] - delay)
        for line, inputs in self.inputs.items():
            self._spread_merged(line, inputs)
        return len(turns)

    def _spread_merged(self, line: Line, inputs: list[Line]) -> None:
        """When I number i of a line starts, its own W and those of the later ones are to come: as many of all."""
        ends = sorted(x + self.work[one] for one in inputs for x in self.low[one])
        self.low[line] = [max(x, end) for x, end in zip(self.low[line], ends, strict=True)]
        for one in inputs:
            last = self.high[line][-self.length[one] :]
            self.high[one] = [min(x, y - self.work[one]) for x, y in zip(self.high[one], last, strict=True)]


def _programme(windows: _Windows, rank: int, left: list[int]) -> bool:
    """Whether the rank has an order; its windows become what its orders leave."""
    mine = [line for line in windows.order if windows.rank[line] == rank]
    work, gains = [windows.work[line] for line in mine], [windows.gains[line] for line in mine]
    low, high = [windows.low[line] for line in mine], [windows.high[line] for line in mine]
    waits, cap = [_waits(windows, mine, line) for line in mine], windows.facts.cap[rank]
    layer: dict[Counts, tuple[int, int]] = {(0,) * len(mine): (UNKNOWN, 0)}
    steps: list[list[Step]] = []
    for _ in range(sum(map(len, low))):
        following: dict[Counts, tuple[int, int]] = {}
        found: list[Step] = []
        for counts, (time, held) in layer.items():
            for q, i in enumerate(counts):
                if i == len(low[q]) or (cap is not None and held + max(0, gains[q]) > cap):
                    continue
                if waits[q] and sum(counts[x] for x in waits[q]) <= i:
                    continue
                start = max(time, low[q][i])
                if start <= high[q][i]:
                    then = (*counts[:q], i + 1, *counts[q + 1 :])
                    if then not in following or following[then][0] > start + work[q]:
                        following[then] = start + work[q], held + gains[q]
                    found.append((counts, then, q, i, start))
        left[0] -= len(found)
        if left[0] < 0:
            raise _OutOfStepsError
        layer = following
        steps.append(found)
    return _narrowed(low, high, work, layer, steps)


def _waits(windows: _Windows, mine: list[Line], line: Line) -> list[int]:
    """Sequences of the same rank of which more must have begun: the one before in the chain, or the I of a W."""
    if line in windows.inputs:
        return [mine.index(one) for one in windows.inputs[line]]
    if line.op == Op.W:
        return [mine.index(Line(Op.I, line.route, line.stage))]
    earlier = [x for x in mine[: mine.index(line)] if x.route == line.route and x.op != Op.W]
    return [mine.index(earlier[-1])] if earlier else []


def _narrowed(
    low: list[list[int]],
    high: list[list[int]],
    work: list[int],
    final: dict[Counts, tuple[int, int]],
    steps: list[list[Step]],
) -> bool:
    """Backward: the latest time to be at counts, and of every operation the first and the last start on any order."""
    latest = dict.fromkeys(final, -UNKNOWN)
    first, last = [[-UNKNOWN] * len(x) for x in low], [[UNKNOWN] * len(x) for x in low]
    for found in reversed(steps):
        earlier: dict[Counts, int] = {}
        for counts, then, q, i, start in found:
            until = min(latest.get(then, UNKNOWN) - work[q], high[q][i])
            if until >= start:
                earlier[counts] = max(earlier.get(counts, UNKNOWN), until)
                first[q][i], last[q][i] = min(first[q][i], start), max(last[q][i], until)
        latest = earlier
    for q in range(len(low)):
        low[q][:], high[q][:] = first[q], last[q]
    return bool(latest)
