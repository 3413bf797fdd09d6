"""The time window [low, high] of every operation: its possible starts if the objective is at most C.

    low     the longest path from the first start          high    C minus the longest path to the last end

Microbatches of a route are alike, so each line keeps their order. The W of a rank are alike if all have the same
duration and free the same amount: then they are one line, whose n-th operation waits until n of their I have ended.
Only memory waits for W.
"""

from __future__ import annotations

from pipesched.model.ops import Op
from pipesched.optimizer.proof.problem import Line, Problem, longest, mirror, mirrored


class Windows:
    """The time windows by line. inputs: for the line that represents all W of a rank, the lines of their I."""

    def __init__(self, problem: Problem, bound: int, frame: int | None) -> None:
        self.cap, self.length, self.rank = problem.cap, dict(problem.length), dict(problem.rank)
        self.work, self.gains = dict(problem.work), dict(problem.gains)
        self.low, late = {line: times[:] for line, times in problem.heads(frame).items()}, problem.tails(frame)
        self.high = {line: [bound - x - problem.work[line] for x in late[line]] for line in late}
        self.inputs: dict[Line, list[Line]] = {}
        for rank in range(len(problem.cap)):
            weights = [line for line in problem.on(rank) if line.op == Op.W]
            if len(weights) > 1 and len({(problem.work[line], problem.gains[line]) for line in weights}) == 1:
                self._merge(Line(Op.W, -1, rank), weights)
        self.arcs = [arc for arc in problem.arcs if arc[0] in self.rank and arc[1] in self.rank]
        self.arcs += [(line, line, 1, 0) for line in self.inputs]
        self.order = list(self.rank)

    def _merge(self, all_of_them: Line, weights: list[Line]) -> None:
        """Merge the W of a rank: the n-th window has the n-th smallest earliest and the n-th smallest latest start."""
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
        """Narrow the windows along the arcs; return the number of operations processed."""
        ends = {line: [-x - self.work[line] for x in self.high[line]] for line in self.order}
        ends = mirrored(longest(mirror(self.arcs), self.work, mirrored(ends)))
        self.low = longest(self.arcs, self.work, {line: self.low[line] for line in self.order})
        self.high = {line: [-x - self.work[line] for x in ends[line]] for line in self.order}
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
