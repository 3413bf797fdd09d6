"""The time window [low, high] of every operation: its possible starts if the objective is at most C.

    low     the longest path from the first start          high    C minus the longest path to the last end

If the objective is the span, times count from the first start of one rank, the frame, and every rank ends within C of
its own first start:

    low     >= the earliest last end on the rank - C         high    <= the latest first start on the rank + C

Microbatches of a route are alike, so each line keeps them in order. The W of a rank are alike if all have the same
duration and free the same amount: then they are one line, whose n-th operation waits until n of their I have ended.
Nothing but memory waits for W. With `coarse`, the F of a rank that are alike are one line too, and so are its I or B:
the n-th F starts no sooner than the n-th of their earliest starts, and the n-th I waits until n F have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipesched.model.ops import Op
from pipesched.optimizer.proof.problem import Arc, Line, Problem, Times, longest, mirror, mirrored

_NEEDS = {Op.F: None, Op.I: Op.F, Op.B: Op.F, Op.W: Op.I}
_ROUNDS = 16  # most rounds over the ranks, before windows are merged


class Windows:
    """The time windows of each line. inputs: for each line that represents several lines of a rank, the lines that it
    waits for.

    bound: the limit on the span of every rank, None for the makespan.
    """

    def __init__(self, problem: Problem, bound: int, frame: int | None, *, coarse: bool = False) -> None:
        """frame: the rank whose first start is 0, None for the first start of all. coarse: whether F, I and B merge."""
        self.cap, self.length, self.rank = problem.cap, dict(problem.length), dict(problem.rank)
        self.work, self.gains = dict(problem.work), dict(problem.gains)
        self.bound = bound if problem.span else None
        self.low, self.high = _within(problem, bound, frame)
        self.inputs: dict[Line, list[Line]] = {}
        for rank in range(len(problem.cap)):
            for kind in _NEEDS if coarse else (Op.W,):
                self._merge(kind, rank)
        self.arcs = [arc for arc in problem.arcs if arc[0] in self.rank and arc[1] in self.rank]
        self.arcs += [(line, line, 1, 0) for line in self.inputs]
        self.order = list(self.rank)

    def _merge(self, kind: Op, rank: int) -> None:
        """Merge the operations of a kind on a rank if they take the same time and memory: the n-th window has the n-th
        smallest earliest and the n-th smallest latest start.
        """
        mine = [line for line in self.rank if self.rank[line] == rank]
        alike = [line for line in mine if line.op == kind]
        if not self._equal(alike):
            return
        all_of_them, needed = Line(kind, -1, rank), {line[1:] for line in alike}
        for table in (self.low, self.high):
            table[all_of_them] = sorted(x for line in alike for x in table.pop(line))
        self.length[all_of_them] = sum(self.length.pop(line) for line in alike)
        for facts in (self.rank, self.work, self.gains):
            facts[all_of_them] = [facts.pop(line) for line in alike][-1]
        needed.add(all_of_them[1:])
        self.inputs[all_of_them] = [line for line in mine if line.op == _NEEDS[kind] and line[1:] in needed]

    def _equal(self, lines: list[Line]) -> bool:
        """Return True if there are several lines, all of which take the same time and memory."""
        return len(lines) > 1 and len({(self.work[line], self.gains[line]) for line in lines}) == 1

    def possible(self) -> bool:
        return all(low <= high for line in self.low for low, high in zip(self.low[line], self.high[line], strict=True))

    def of(self, rank: int) -> list[tuple[list[int], list[int]]]:
        return [(self.low[line][:], self.high[line][:]) for line in self.order if self.rank[line] == rank]

    def shift(self, by: int) -> None:
        """Shift all windows by a number of ticks."""
        for table in (self.low, self.high):
            table.update({line: [x + by for x in times] for line, times in table.items()})

    def spread(self) -> int:
        """Narrow the windows by the span of every rank and along the arcs; return the number of operations."""
        if self.bound is not None:
            _spans(self.rank, self.work, self.low, self.high, self.bound)
        self.low, self.high = _along(self.arcs, self.work, self.low, self.high, self.order)
        for line, inputs in self.inputs.items():
            self._spread_merged(line, inputs)
        return sum(self.length.values())

    def _spread_merged(self, line: Line, inputs: list[Line]) -> None:
        """Narrow the windows of merged W and their I: when the i-th I of a line starts, its W and all later W of the
        line have not started.
        """
        ends = sorted(x + self.work[one] for one in inputs for x in self.low[one])
        self.low[line] = [max(x, end) for x, end in zip(self.low[line], ends, strict=True)]
        for one in inputs:
            last = self.high[line][-self.length[one] :]
            self.high[one] = [min(x, y - self.work[one]) for x, y in zip(self.high[one], last, strict=True)]


def _within(problem: Problem, bound: int, frame: int | None) -> tuple[Times, Times]:
    """Return the time windows by longest paths; for the span, in rounds that use the spans of all ranks.

    Ranks that share no route with the frame stay unbounded.
    """
    low, work, order = problem.heads(frame), problem.work, list(problem.rank)
    high = {line: [bound - x - work[line] for x in times] for line, times in problem.tails(frame).items()}
    low = {line: times[:] for line, times in low.items()}
    for _ in range(_ROUNDS) if problem.span else ():
        before = (dict(low), dict(high))
        _spans(problem.rank, work, low, high, bound)
        low, high = _along(problem.arcs, work, low, high, order)
        if before == (low, high):
            break
    return low, high


def _spans(rank: Mapping[Line, int], work: Mapping[Line, int], low: Times, high: Times, bound: int) -> None:
    """Narrow the windows of every rank: it begins with an F, and its span is at most `bound`."""
    for one in set(rank.values()):
        mine = [line for line in rank if rank[line] == one]
        begun = min(high[line][0] for line in mine if line.op == Op.F)
        ended = max(low[line][-1] + work[line] for line in mine)
        for line in mine:
            low[line] = [max(x, ended - bound) for x in low[line]]
            high[line] = [min(x, begun + bound - work[line]) for x in high[line]]


def _along(
    arcs: Sequence[Arc], work: Mapping[Line, int], low: Times, high: Times, order: Sequence[Line]
) -> tuple[Times, Times]:
    """Narrow the windows along the arcs; order: the lines, each one after its inputs."""
    ends = {line: [-x - work[line] for x in high[line]] for line in order}
    ends = mirrored(longest(mirror(arcs), work, mirrored(ends)))
    soon = longest(arcs, work, {line: low[line] for line in order})
    return soon, {line: [-x - work[line] for x in ends[line]] for line in order}
