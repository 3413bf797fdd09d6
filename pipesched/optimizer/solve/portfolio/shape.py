"""Which of the placements of the literature a problem has: linear, one stage a rank, or vee, there and back.

Ranks may stand in any order: what counts is where a rank comes on the way, its position.
"""

from __future__ import annotations

from pipesched.optimizer.solve.problem import Problem


def way(problem: Problem, kind: str) -> tuple[int, ...]:
    """The ranks by position, where the placement is of this kind, and all microbatches go one way; else none."""
    placement = problem.placement
    stages = placement.rank_of[0].tolist()
    ranks = stages[: placement.ranks]
    alone = placement.routes == 1 and placement.microbatches > 0 and len(set(ranks)) == placement.ranks
    return tuple(ranks) if alone and stages == ranks + ranks[::-1] * (kind == "vee") else ()
