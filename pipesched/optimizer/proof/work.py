"""Lower bounds by the work of a rank. A rank runs one operation at a time, so no schedule has an objective below

    head + work + tail      work: of all its operations that cannot start before `head`,
                            and that are followed by at least `tail`

A longest path is such a bound with a single operation. For the span, heads count from the first start of a rank, the
frame, and tails to its last end. (Carlier, EJOR 11, 1982: "the one-machine sequencing problem".)

The heads of a line, and its tails counted from the last microbatch, are the same for every m. So each additional
microbatch adds the work of every line that has an operation in the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipesched.optimizer.proof.problem import Problem


@dataclass(frozen=True)
class Work:
    """A bound, in ticks: head + work + tail of a rank. frame: the rank whose span is bounded, None for the makespan.

    count: the number of operations in the sum. each: the amount by which each additional microbatch raises the bound.
    """

    rank: int
    frame: int | None
    head: int
    tail: int
    count: int
    work: int
    each: int

    @property
    def value(self) -> int:
        return self.head + self.work + self.tail if self.count else 0


def work(problem: Problem, rank: int, frame: int | None, head: int, tail: int) -> Work:
    """Return the bound from the operations of a rank between a head and a tail."""
    heads, tails = problem.heads(frame), problem.tails(frame)
    counts = {
        line: sum(h >= head and t >= tail for h, t in zip(heads[line], tails[line], strict=True))
        for line in problem.on(rank)
    }
    total = sum(n * problem.work[line] for line, n in counts.items())
    each = sum(problem.work[line] for line, n in counts.items() if n)
    return Work(rank, frame, head, tail, sum(counts.values()), work=total, each=each)


def everything(problem: Problem, rank: int) -> Work:
    """Return the bound from all operations of a rank that has at least one operation."""
    frame = rank if problem.span else None
    head, tail = (
        min(min(times[line]) for line in problem.on(rank)) for times in (problem.heads(frame), problem.tails(frame))
    )
    return work(problem, rank, frame, head, tail)


def explained(bound: Work, said: Callable[[int], str]) -> str:
    """Explain a bound by numbers that add up; said: function that formats ticks in the user's unit."""
    head, doing, tail, total = map(said, (bound.head, bound.work, bound.tail, bound.value))
    if bound.count == 1:
        return f"the longest path, through rank {bound.rank}: {total}"
    apart = bound.frame not in (None, bound.rank)
    begins, end = (f"{head} after rank {bound.frame}", f"rank {bound.frame}") if apart else (f"after {head}", "the end")
    where = [f"begins {begins}"] * (bound.head > 0) + [f"ends {tail} before {end}"] * (bound.tail > 0)
    why = f"rank {bound.rank} has {doing} of work" + f" that {' and '.join(where)}" * bool(where)
    parts = [text for text, ticks in ((head, bound.head), (doing, bound.work), (tail, bound.tail)) if ticks]
    return why + f": {' + '.join(parts)} = {total}" * bool(where)
