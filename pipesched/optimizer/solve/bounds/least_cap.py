"""The least cap of every rank under which a schedule exists: the memory of a single microbatch.

    held[c]   memory that a microbatch holds on each rank after c operations of its chain F(0) .. F(S-1), I(S-1) .. I(0)
    most[c]   the most that it holds at once during the c-th of these operations
    need[c]   the most that it will later hold at once, beyond held[c]

Each W runs right after its I. No order holds less memory: F and I must run in chain order, and a W only frees memory.
When a rank has run its last F, it holds all its stages of the route. If I takes memory (release torch), then at the end
of a stage's I the rank holds the stages up to that stage, and the memory that this I took. Every schedule holds that
much at some time, for every microbatch, and running one microbatch after another never holds more: a schedule exists if
and only if each rank's cap is at least its largest `most`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.optimizer.solve.problem import Problem


@dataclass(frozen=True, eq=False)
class Alone:
    """The memory of a single microbatch of a route, by number of operations done.

    chain: the numbers of the route's sequences, in order. held, most, need: int64, shape (len(chain) + 1, ranks).
    """

    chain: tuple[int, ...]
    held: Ints
    most: Ints
    need: Ints


def alone(problem: Problem, route: int) -> Alone:
    """Return the memory of a single microbatch of a nonempty route, from the first F to the last I and W."""
    mine = np.flatnonzero((problem.route == route) & (problem.op != Op.W)).tolist()
    forward = sorted((q for q in mine if problem.op[q] == Op.F), key=lambda q: int(problem.stage[q]))
    back = sorted((q for q in mine if problem.op[q] != Op.F), key=lambda q: -int(problem.stage[q]))
    chain = tuple(forward + back)
    held = np.zeros((len(chain) + 1, problem.ranks), dtype=np.int64)
    most = np.zeros_like(held)
    for c, q in enumerate(chain):
        rank, takes, frees = int(problem.rank[q]), int(problem.takes[q]), int(problem.frees[q])
        held[c + 1] = most[c + 1] = held[c]
        most[c + 1, rank] += max(takes, takes - frees)
        stage = problem.stage[q]
        held[c + 1, rank] += takes if takes else -int(problem.takes[forward[stage]])
    later = np.maximum.accumulate(most[::-1])[::-1]
    need = np.zeros_like(held)
    need[:-1] = np.maximum(later[1:] - held[:-1], 0)
    return Alone(chain, held, most, need)


def least_cap(problem: Problem) -> Ints:
    """Return the least cap of every rank, in parts; int64, shape (ranks,), 0 for ranks without stages."""
    least = np.zeros(problem.ranks, dtype=np.int64)
    for route in set(problem.route.tolist()):
        least = np.maximum(least, alone(problem, route).most.max(axis=0))
    return least


def infeasible(problem: Problem, said: Callable[[Fraction], str] = shown) -> str | None:
    """Return the reason why no schedule is within the caps, for the rank that lacks the most memory; None if there is a
    schedule.

    said: function that formats an amount of memory. An example of a reason:

    ``rank 0 must be able to hold 2: when F of stage 7 has run, it holds stages 0, 7 of a microbatch``
    """
    least = least_cap(problem)
    rank = int(np.argmax(least - problem.cap))
    if least[rank] <= problem.cap[rank]:
        return None
    one = max((alone(problem, route) for route in set(problem.route.tolist())), key=lambda x: x.most[:, rank].max())
    q = one.chain[int(np.argmax(one.most[:, rank])) - 1]
    op, stage, route = int(problem.op[q]), int(problem.stage[q]), int(problem.route[q])
    forward = [f for f in problem.on[rank] if problem.op[f] == Op.F and problem.route[f] == route]
    stages = sorted(int(problem.stage[f]) for f in forward if problem.stage[f] <= stage)
    listed = ", ".join(map(str, stages[:6])) + (", …" if len(stages) > 6 else "")
    held = f"stage{'s' if len(stages) > 1 else ''} {listed} of a microbatch" + ", and its output" * (op == Op.I)
    need = said(int(least[rank]) * problem.part)
    return f"rank {rank} must be able to hold {need}: when {Op(op).name} of stage {stage} has run, it holds {held}"
