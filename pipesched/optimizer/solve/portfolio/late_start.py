"""Shortens spans by making ranks begin later: such a rank runs a later microbatch first.

    FIFO        rank 1   F0 .. F1 ..       F1 has not arrived yet: its rank waits within its span
    late        rank 1      F1 F0 ..       it begins when microbatch 1 has arrived, and does not wait

An order is run as early as possible, so a rank begins late only if its first F belongs to a later microbatch. Otherwise
microbatches keep the order in which they arrive: every stage runs them in the order of the stage before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.problem import Orders, Problem

MOST = 8  # most microbatches that are tried as the first of a rank
WORK = 2_000_000  # most operations that are run


def late(problem: Problem, orders: Orders, start: Ints | None = None) -> tuple[Orders, int]:
    """Return (orders with the same sequences in the same positions and no larger span, number of orders that were run).

    start: starts with which ranks begin late; they determine the first microbatch of each rank; None to begin with
    microbatch 0 everywhere. This choice is then improved rank by rank.
    """
    entries = [r for r, order in enumerate(orders) if len(order) and problem.stage[problem.sequence[order[0]]] > 0]
    if problem.objective != "span" or problem.placement.routes > 1 or not entries:
        return orders, 0
    words = [problem.sequence[np.asarray(order, dtype=np.int64)] for order in orders]
    chosen = dict.fromkeys(entries, 0) if start is None else _wanted(problem, entries, start)
    best, tried = (_spans(problem, made := labelled(problem, words, chosen)), made), 1
    improved, most = True, WORK // problem.operations
    firsts = range(min(MOST, problem.placement.microbatches))
    while improved:
        improved = False
        for rank, first in product(entries, firsts):
            if first != chosen[rank] and tried < most:
                made = labelled(problem, words, {**chosen, rank: first})
                spans, tried = _spans(problem, made), tried + 1
                if spans < best[0]:
                    best, improved, chosen = (spans, made), True, {**chosen, rank: first}
    return _shorter(problem, best[1], orders), tried + 2


def _shorter(problem: Problem, made: Orders, orders: Orders) -> Orders:
    """Return `made` if its objective is smaller than that of `orders`, else `orders`."""
    own, found = convert.value(problem, orders), convert.value(problem, made)
    return orders if own is not None and (found is None or own <= found) else made


def _spans(problem: Problem, orders: Orders) -> list[int]:
    """Return the spans of the ranks, the largest first."""
    start = convert.run(problem, orders)
    return [2**62] if start is None else sorted(problem.spans(start).tolist(), reverse=True)


def _wanted(problem: Problem, entries: Sequence[int], start: Ints) -> dict[int, int]:
    """Return, by rank, the last microbatch that has arrived when the rank's first operation starts."""
    chosen, arrival = {}, dict(zip(problem.after.tolist(), range(len(problem.after)), strict=True))
    for rank in entries:
        own = [q for q in problem.on[rank] if problem.op[q] == Op.F]
        q = min(own, key=lambda q: int(problem.stage[q]))
        edge = arrival[q]
        before, lag = int(problem.before[edge]), int(problem.lag[edge])
        there = start[problem.first[before] : problem.first[before + 1]] + problem.duration[before] + lag
        chosen[rank] = max(0, int(np.searchsorted(there, start[problem.first[q]], side="right")) - 1)
    return chosen


def labelled(problem: Problem, words: Sequence[Ints], first: dict[int, int]) -> Orders:
    """Return orders with these sequences; rank r first runs the microbatch that arrives there at index first[r]."""
    labels = _labels(problem, first)
    orders = []
    for word in words:
        order = np.empty(len(word), dtype=np.int64)
        for q in np.unique(word).tolist():
            order[word == q] = problem.first[q] + labels[q]
        orders.append(order.tolist())
    return orders


def _labels(problem: Problem, first: dict[int, int]) -> dict[int, Ints]:
    """Return the microbatches in the order in which they run, by sequence."""
    by_name = {(int(o), int(s)): q for q, (o, s) in enumerate(zip(problem.op, problem.stage, strict=True))}
    ranks = problem.placement.rank_of[0].tolist()
    labels: dict[int, Ints] = {}
    now, seen = np.arange(problem.placement.microbatches), set()
    for stage, rank in enumerate(ranks):
        place = 0 if rank in seen else first.get(rank, 0)
        seen.add(rank)
        now = np.concatenate([now[place : place + 1], np.delete(now, place)])
        labels[by_name[Op.F, stage]] = now
    for q in range(problem.sequences):
        labels.setdefault(q, now)
    return labels
