"""Extension of a schedule of m0 microbatches to every number m0 + jK of microbatches.

Let n_q(t) be the number of operations of line q that have started by t, and let A be at least the longest duration plus
message. If

    n_q(t + P) = n_q(t) + K      for every q and all t in seam - A - 1 .. seam - 1

then let n'(t) = n(t) up to seam - 1 + P, and n(t - P) + K from seam - A - 1 + P on: the two agree where both apply.
Every constraint compares counters at most A apart, so it lies within one of these two parts, where the schedule
satisfies it; held memory stays the same, since all counters grow by K. n' repeats at seam + P again. So there is a
schedule for each m0 + jK, it ends jP later, and its order on a rank is u s^j v: u starts before seam + P, s is the part
of u that starts at the seam or later, and uv is the order of m0.

The file has this order for every j if it has it for 0, 1 and 2: its program is x b^j y from some j on, so x b y = u s
v. With x = u z, or vice versa, bz = zs, and so b^j z = z s^j.

These schedules are optimal if the schedule of m0 is, and if its bound grows by P too. A bound by `work` grows by P if K
more microbatches add P to it; any other bound does if microbatches K apart start at least P apart. Proof of the latter:
from a schedule of m0 + jK microbatches, remove the jK that start first on the first stage. The rest is a schedule of m0
microbatches: it never waits for removed operations, and no rank holds more. It starts no sooner than F(0, jK), and the
longest path from F(0, 0) to F(0, jK) takes at least j times as long as the longest one from F(0, i) to F(0, i + K).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeAlias

from pipesched.optimizer.proof.problem import Line, Problem, Times, between
from pipesched.optimizer.proof.work import Work

Word: TypeAlias = list[Line]
"""The lines that a rank runs, in order; the i-th occurrence of a line is its operation for microbatch i."""


Run: TypeAlias = list[tuple[Line, int]]
"""The line and the start of each operation of a rank, in order."""


@dataclass(frozen=True)
class Repeated:
    """A repeating schedule: m0, K, a limit on the objective at m0, the seam, P, and each rank's starts, in ticks."""

    microbatches: int
    step: int
    value: int
    seam: int
    period: int
    starts: Sequence[Sequence[int]]

    def fault(self, problem: Problem, words: Sequence[Sequence[Word]]) -> str:
        """Return the reason why the schedule does not extend to every m, or an empty string. words: each rank's `Word`
        at m0, m0 + K and m0 + 2K.
        """
        if [len(times) for times in self.starts] != [len(word) for word in words[0]]:
            return "its starts do not match its operations"
        runs = [list(zip(word, times, strict=True)) for word, times in zip(words[0], self.starts, strict=True)]
        if any(b < a + problem.work[line] for run in runs for (line, a), (_, b) in pairwise(run)):
            return "two of its operations run at the same time"
        at: Times = defaultdict(list)
        for line, start in chain(*runs):
            at[line].append(start)
        return (
            _unfed(problem, at) or self._longer(problem, runs) or self._unrepeated(problem, at) or self._uncopied(words)
        )

    def _longer(self, problem: Problem, runs: Sequence[Run]) -> str:
        """Return a message if a start is before 0 or the objective exceeds `value`; otherwise an empty string."""
        taken = (run[-1][1] + problem.work[run[-1][0]] - (run[0][1] if problem.span else 0) for run in runs if run)
        early = min(start for _, start in chain(*runs)) < 0
        return "its starts result in a larger objective" if early or self.value < max(taken) else ""

    def _unrepeated(self, problem: Problem, at: Times) -> str:
        """Return a message unless n(t + P) = n(t) + K, checked at the first t and at each later start."""
        reach = max(problem.work.values()) + max(message for _, _, _, message in problem.arcs)
        first, last = self.seam - reach - 1, self.seam - 1
        for times in at.values():
            earlier, later = ([x - by for x in times if first < x - by <= last] for by in (0, self.period))
            passed = sum(x - self.period <= first for x in times) - sum(x <= first for x in times)
            if passed != self.step or earlier != later:
                return "none of its parts repeats at the seam"
        return ""

    def _uncopied(self, words: Sequence[Sequence[Word]]) -> str:
        """Return a message if the order of a rank is not u s^j v; otherwise an empty string."""
        for rank, times in enumerate(self.starts):
            low, high = (sum(x < end for x in times) for end in (self.seam, self.seam + self.period))
            word = words[0][rank]
            for copies, longer in enumerate(words):
                if longer[rank] != word[:high] + word[low:high] * copies + word[high:]:
                    m = self.microbatches + copies * self.step
                    return f"at m={m} the order of rank {rank} has no copy of the repeating part"
        return ""

    def grows(self, problem: Problem, bound: Work | None) -> bool:
        """Return True if the bound at m0 grows by P with K more microbatches. bound: the bound by `work`, or None."""
        if bound is not None and bound.each * self.step >= self.period:
            return True
        return not problem.span and apart(problem, self.step) >= self.period


def _unfed(problem: Problem, at: Times) -> str:
    """Return a message if an operation starts before its input arrives; otherwise an empty string."""
    for before, after, offset, message in problem.arcs:
        late = problem.work[before] + message
        if not offset and any(b < a + late for a, b in zip(at[before], at[after], strict=True)):
            return "an operation starts before its input arrives"
    return ""


def apart(problem: Problem, step: int) -> int:
    """Return the least time between F(0, i) and F(0, i + step), in ticks, by longest paths; 0 if there are too few.

    The result is also 0 if a microbatch can hold a negative amount on some stage, since removing it would then increase
    memory.
    """
    held = Counter[int]()
    for line in problem.rank:  # F, then I or B, then W of each stage
        held[line.stage] += problem.gains[line]
        if held[line.stage] < 0:
            return 0
    first = next(iter(problem.rank))
    return between(problem, first, 0, step) if problem.length[first] > step else 0
