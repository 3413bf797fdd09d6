"""Recognizes placements from the literature: linear (one stage per rank) or vee (two stages per rank, down and up).

Ranks can be in any order: only their positions along the stages count.
"""

from __future__ import annotations

from pipesched.optimizer.solve.problem import Problem


def way(problem: Problem, kind: str) -> tuple[int, ...]:
    """Return the ranks by position if the placement is of this kind with one route; otherwise an empty result."""
    placement = problem.placement
    stages = placement.rank_of[0].tolist()
    ranks = stages[: placement.ranks]
    alone = placement.routes == 1 and placement.microbatches > 0 and len(set(ranks)) == placement.ranks
    return tuple(ranks) if alone and stages == ranks + ranks[::-1] * (kind == "vee") else ()
