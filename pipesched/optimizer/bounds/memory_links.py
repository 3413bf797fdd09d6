"""Where memory is a precedence.

Suppose F of stage s, microbatch i, starts, and some w of microbatch i - k has not ended. On their rank

    held by i itself              every stage of the rank up to s                              base
    held by each of i-k .. i-1    w = W of stage t: what W frees of t                          slope
                                  w = I or B of stage t: all stages of the rank up to s, t     (no I after it has ended)

so if base + k * slope exceeds the cap, this F waits for that w: operation i of one sequence for operation i - k of
the other. With one stage on a rank, released at W, that is all that memory says; else memory says more. Where I takes,
the same is asked for the end of I of microbatch i - k: what it takes is held then, too, and of i all stages up to s, t.
"""

from __future__ import annotations

from typing import NamedTuple

from pipesched.model.ops import Op
from pipesched.optimizer.problem import Problem


class Link(NamedTuple):
    """Operation i of `later` starts at least delay after the start of operation i - offset of `earlier`."""

    later: int
    earlier: int
    offset: int
    delay: int


def told(problem: Problem) -> tuple[int, ...]:
    """The ranks whose memory the links tell in full: one sequence takes, one frees."""
    sequences = [[q for q in held if problem.takes[q] or problem.frees[q]] for held in problem.on]
    return tuple(
        rank
        for rank, held in enumerate(sequences)
        if len(held) == 2 and (problem.takes[held] > 0).sum() == 1 and (problem.frees[held] > 0).sum() == 1
    )


def memory_links(problem: Problem) -> list[Link]:
    """The links of all ranks, without those that others imply. None where no schedule is within the cap."""
    made: list[Link] = []
    for rank, held in enumerate(problem.on):
        for f in held:
            if problem.op[f] == Op.F:
                waits = [q for q in held if problem.op[q] != Op.F and problem.route[q] == problem.route[f]]
                made += _needed(problem, f, waits, int(problem.cap[rank]))
    return made


def _needed(problem: Problem, f: int, waits: list[int], cap: int) -> list[Link]:
    """The links of one F, latest waits first: what comes before a wait at no greater distance is implied."""
    stage, takes, frees = problem.stage, problem.takes, problem.frees
    below = [q for q in problem.on[problem.rank[f]] if problem.route[q] == problem.route[f] and problem.op[q] == Op.F]
    base = sum(int(takes[q]) for q in below if stage[q] <= stage[f])
    made: list[Link] = []
    for w in sorted(waits, key=lambda q: (problem.op[q] != Op.W, stage[q])):
        own = next(q for q in below if stage[q] == stage[w])
        if problem.op[w] == Op.W:
            slope = min(int(frees[w]), int(takes[own])) if stage[w] <= stage[f] else 0
        else:
            slope = sum(int(takes[q]) for q in below if stage[q] <= min(stage[f], stage[w]))
        least = max(base, _when_it_takes(problem, [q for q in below if stage[q] <= min(stage[f], stage[w])], w))
        if slope <= 0 or cap < least:
            continue
        offset = (cap - least) // slope + 1
        if not any(_precedes(problem, w, x.earlier) and x.offset <= offset for x in made):
            made.append(Link(f, w, offset, int(problem.duration[w])))
    return made


def _when_it_takes(problem: Problem, below: list[int], w: int) -> int:
    """Held by one microbatch when I of the stage of w has ended and taken; 0 if it takes nothing or has no F here."""
    same = [q for q in problem.on[problem.rank[w]] if problem.route[q] == problem.route[w] and problem.op[q] == Op.I]
    more = sum(max(0, -int(problem.frees[q])) for q in same if problem.stage[q] == problem.stage[w])
    here = any(problem.stage[q] == problem.stage[w] for q in below)
    return sum(int(problem.takes[q]) for q in below) + more if more and here else 0


def _precedes(problem: Problem, one: int, two: int) -> bool:
    """Whether a backward of a microbatch comes before another one: I of later stages, and of its own, before W."""
    return problem.op[one] != Op.W and bool(problem.stage[one] >= problem.stage[two])
