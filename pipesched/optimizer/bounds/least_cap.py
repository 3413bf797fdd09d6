"""The least memory with which there is any schedule at all.

A microbatch runs F on all stages of its route before any I. So when a rank has run the last of its F for it

    all its stages of that route are held                                       sum of takes

and when I of stage k has ended, its stages before k are still whole, and of k itself all that I does not free:

    takes of stages up to k - what I of k frees                                 more only where I takes (torch)

Every schedule holds that much at some time, for every microbatch. One microbatch after another, W right after I,
never holds more. So a schedule exists exactly if each rank's cap is at least the largest of these.
"""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.optimizer.problem import Problem


def least_cap(problem: Problem) -> Ints:
    """The least cap of every rank, in parts; int64, shape (ranks,), 0 for a rank without stages."""
    return np.array([_need(problem, rank)[0] for rank in range(problem.ranks)], dtype=np.int64)


def infeasible(problem: Problem) -> str | None:
    """Why no schedule is within the caps, by the rank that misses most; None where there is one.

    ``rank 0 alone needs 2: when F of stage 7 has run, it holds stages 0, 7 of that microbatch``
    """
    missing = least_cap(problem) - problem.cap
    rank = int(np.argmax(missing)) if len(missing) else 0
    if not len(missing) or missing[rank] <= 0:
        return None
    need, why = _need(problem, rank)
    return f"rank {rank} alone needs {shown(need * problem.part)}: {why}"


def _need(problem: Problem, rank: int) -> tuple[int, str]:
    """The parts that one microbatch alone needs on a rank, and why."""
    best = (0, "")
    held = problem.on[rank]
    for route in sorted({int(problem.route[q]) for q in held}):
        forward = sorted((q for q in held if _is(problem, q, route, Op.F)), key=lambda q: int(problem.stage[q]))
        total, stages = 0, []
        for f in forward:
            total += int(problem.takes[f])
            stages.append(int(problem.stage[f]))
            inner = [q for q in held if _is(problem, q, route, Op.I) and problem.stage[q] == problem.stage[f]]
            more = max((-int(problem.frees[q]) for q in inner), default=0)
            if more > 0 and total + more > best[0]:
                best = (
                    total + more,
                    f"when I of stage {stages[-1]} has run, it holds {_listed(stages)}, and its output",
                )
        if total >= best[0]:
            last = f"when F of stage {stages[-1]} has run, it holds {_listed(stages)}" if stages else ""
            best = (total, last)
    return best


def _is(problem: Problem, q: int, route: int, op: Op) -> bool:
    return bool(problem.route[q] == route and problem.op[q] == op)


def _listed(stages: list[int]) -> str:
    first = ", ".join(map(str, stages[:6])) + (", …" if len(stages) > 6 else "")
    return f"stage{'s' if len(stages) > 1 else ''} {first} of that microbatch"
