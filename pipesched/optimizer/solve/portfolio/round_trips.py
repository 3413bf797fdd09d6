"""Long batches under small caps, where F, I and W take one tick and messages none: microbatches run in round trips.

    k at a time, 3k <= 2p + 2; microbatch i = nk + j starts on rank 0 at A = n (2p + 2) + 6 (j // 2) + 2 (j % 2)

    rank s      F at A + s      I at A + 2p - 1 - s      W of the oldest I in the first free tick

Nothing waits: all F of a rank have one parity and all I the other, and W has what they leave of three ticks. A trip
of k microbatches takes 2p + 2, which is the least (`check.optimum.meetings`). Where the last trip has an odd number of
microbatches the last one starts a tick earlier, and the I that are behind it a tick later.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve.portfolio.shape import way
from pipesched.optimizer.solve.problem import Orders, Problem


def round_trips(problem: Problem) -> Orders | None:
    """The order, which is one for other times too; None where a rank has no room for a microbatch."""
    takes, cap, ranks = problem.takes, problem.cap[problem.rank], way(problem, "linear")
    if problem.fused or not ranks or not (takes > 0).any():
        return None
    size, i = len(ranks), np.arange(problem.placement.microbatches)
    room = min(int((cap[takes > 0] // takes[takes > 0]).min()), (2 * size + 2) // 3)
    if not room:
        return None
    begin = i // room * (2 * size + 2) + i % room // 2 * 6 + i % room % 2 * 2
    earlier = len(i) > room and (len(i) - 1) % room % 2 == 0
    begin[-1] -= earlier
    orders: list[list[int]] = [[] for _ in range(problem.ranks)]
    for stage, rank in enumerate(ranks):
        forward, inner = begin + stage, begin + 2 * size - 1 - stage
        inner[:-1] += earlier & (inner[:-1] >= forward[-1])
        weight = _gaps(set(forward.tolist()) | set(inner.tolist()), inner)
        first = {int(problem.op[q]): int(problem.first[q]) for q in problem.on[rank]}
        numbers = np.concatenate([first[op] + i for op in (Op.F, Op.I, Op.W)])
        orders[rank] = numbers[np.argsort(np.concatenate([forward, inner, weight]), kind="stable")].tolist()
    return orders


def _gaps(busy: set[int], inner: Ints) -> Ints:
    """The first free tick after each I."""
    made, t = [], 0
    for ready in inner.tolist():
        t = next(at for at in count(max(t, ready + 1)) if at not in busy)
        made.append(t)
        t += 1
    return np.array(made, dtype=np.int64)
