"""Which of the placements of the literature a problem has, and orders written in the letters of one rank.

    linear   one stage a rank                      1F1B, ZB-H1, ZB-H2
    loop     stages go round, v times              interleaved 1F1B
    vee      there and back                        ZB-V, V-Half, V-Min

Ranks may stand in any order: what counts is where a rank comes on the way, its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pipesched.model.ops import Op
from pipesched.optimizer.problem import Orders, Problem

Token: TypeAlias = tuple[Op, int]  # what, and the chunk: 0 is the rank's first stage on the way


@dataclass(frozen=True)
class Shape:
    """kind: linear, loop, vee or none of these. way: the ranks by position; chunks: stages a rank."""

    kind: str
    way: tuple[int, ...] = ()
    chunks: int = 1


def shape(problem: Problem) -> Shape:
    """The placement's name."""
    placement = problem.placement
    if placement.routes != 1 or not placement.microbatches:
        return Shape("none")
    ranks = placement.rank_of[0].tolist()
    size = placement.ranks
    way = tuple(ranks[:size])
    if len(set(way)) != size or len(ranks) % size:
        return Shape("none")
    chunks = len(ranks) // size
    if ranks == list(way) * chunks:
        return Shape("linear" if chunks == 1 else "loop", way, chunks)
    if ranks == [*way, *reversed(way)]:
        return Shape("vee", way, chunks)
    return Shape("none")


def written(problem: Problem, form: Shape, tokens: Callable[[int], Iterable[Token]]) -> Orders:
    """The orders of what each position does; a B is I, then W, where the problem splits it.

    tokens: by position. The i-th token of a kind and chunk is microbatch i; what is left of W comes at the end.
    """
    table = {(int(op), int(stage)): q for q, (op, stage) in enumerate(zip(problem.op, problem.stage, strict=True))}
    first = problem.first.tolist()
    orders: list[list[int]] = [[] for _ in range(problem.ranks)]
    for position, rank in enumerate(form.way):
        stages = np.flatnonzero(problem.placement.rank_of[0] == rank).tolist()
        used: dict[int, int] = {}
        order = orders[rank]
        for op, chunk in tokens(position):
            for part in (Op.I, Op.W) if op == Op.B and not problem.fused else (op,):
                q = table[int(part), stages[chunk]]
                i = used.get(q, 0)
                used[q] = i + 1
                order.append(first[q] + i)
        if not problem.fused:
            for stage in stages:
                q = table[int(Op.W), stage]
                order += range(first[q] + used.get(q, 0), first[q + 1])
    return orders
