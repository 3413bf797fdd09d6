"""Conversions between a `Schedule` and the orders of a `Problem`; runs of an order; checks of a table of starts.

Operation i of a sequence belongs to the i-th microbatch of its route. If the problem splits the backward, a full
backward in a schedule becomes I, then W; otherwise an I counts as a B if its W follows immediately. The operations that
frozen stages lack are last on their rank (`ended`) and appear in no schedule. `fault` checks every rule of `problem`
directly and shares no code with the clauses: it sorts the operations of every rank by start, then checks neighbours and
a running sum of memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.optimizer.solve.problem import Orders, Problem


def to_orders(problem: Problem, schedule: Schedule) -> Orders | None:
    """Convert a schedule with the same placement and sizes to orders, in microbatch order; None if this is impossible.

    The conversion is impossible if operations overlap, are missing, or run on other ranks, or if the backward is split
    in a fused problem.
    """
    if bool(schedule.joined.any()) or schedule.microbatches != problem.placement.microbatches:
        return None
    halves = np.where((schedule.op == Op.B) & (not problem.fused), 2, 1)
    at = np.repeat(np.arange(len(schedule)), halves)
    op = schedule.op[at].copy()
    op[halves[at] == 2] = np.tile(np.array([Op.I, Op.W], dtype=op.dtype), int((halves == 2).sum()))
    known = np.full((len(Op) + 1, problem.placement.routes, problem.placement.stages), -1)
    known[problem.op, problem.route, problem.stage] = np.arange(problem.sequences)
    q = known[op, schedule.placement.route_of[schedule.microbatch[at]], schedule.stage[at]]
    if (q < 0).any() or (problem.rank[q] != schedule.rank[at]).any():
        return None
    rank, q = schedule.rank[at][~problem.absent[q]], q[~problem.absent[q]]
    if not np.array_equal(np.bincount(q, minlength=problem.sequences), np.where(problem.absent, 0, problem.length)):
        return None
    number = np.empty_like(q)
    order = np.argsort(q, kind="stable")
    number[order] = problem.first[q[order]] + np.arange(len(q)) - np.searchsorted(q[order], q[order])
    return ended(problem, [x.tolist() for x in np.split(number, np.searchsorted(rank, range(1, schedule.ranks)))])


def ended(problem: Problem, orders: Orders) -> Orders:
    """Move operations that no schedule runs to the end of their rank, where nothing waits for them."""
    if not problem.absent.any():
        return orders
    left = np.flatnonzero(problem.absent[problem.sequence])
    q = problem.sequence[left]
    left = left[np.lexsort((problem.op[q] == Op.W, -problem.stage[q], problem.route[q], problem.index[left]))]
    rank, absent = problem.rank[problem.sequence[left]], problem.absent[problem.sequence]
    return [[x for x in order if not absent[x]] + left[rank == r].tolist() for r, order in enumerate(orders)]


def to_schedule(problem: Problem, orders: Orders, name: str = "optimum") -> Schedule:
    """Convert orders to a schedule."""
    if problem.absent.any():
        absent = problem.absent[problem.sequence]
        orders = [[x for x in order if not absent[x]] for order in orders]
    flat = np.array([x for order in orders for x in order], dtype=np.int64)
    q, i = problem.sequence[flat], problem.index[flat]
    of_route = [np.flatnonzero(problem.placement.route_of == route) for route in range(problem.placement.routes)]
    microbatch = np.zeros(len(flat), dtype=np.int32)
    for route, those in enumerate(of_route):
        mine = problem.route[q] == route
        microbatch[mine] = those[i[mine]]
    cut = np.cumsum([0] + [len(order) for order in orders], dtype=np.int64)
    return Schedule(
        name,
        {},
        problem.placement,
        problem.op[q].astype(np.int8),
        problem.stage[q].astype(np.int32),
        microbatch=microbatch,
        second=np.zeros(len(flat), dtype=np.bool_),
        start=cut,
    )


def by_start(problem: Problem, start: Ints) -> Orders:
    """Return each rank's operations by start; for equal starts, those without duration first, then in chain order."""
    duration = problem.duration[problem.sequence]
    rank = problem.rank[problem.sequence]
    chain = np.lexsort((_depth(problem)[problem.sequence], duration > 0, start, rank))
    cut = np.searchsorted(rank[chain], np.arange(problem.ranks + 1))
    return [chain[a:b].tolist() for a, b in pairwise(cut.tolist())]


def _depth(problem: Problem) -> Ints:
    """Return each sequence's depth in the chain, which orders operations that start together; 0 if all take time."""
    depth = np.zeros(problem.sequences, dtype=np.int64)
    for _ in range(problem.sequences if bool((problem.duration == 0).any()) else 0):
        deeper = depth.copy()
        np.maximum.at(deeper, problem.after, depth[problem.before] + 1)
        if (deeper == depth).all():
            break
        depth = deeper
    return depth


class Run(NamedTuple):
    """The result of running orders as early as possible.

    start: the start of every operation. cause: the operation that determines each start, -1 for none. last: the last
    operation of each rank, -1 for none.
    """

    start: list[int]
    cause: list[int]
    last: list[int]


def played(problem: Problem, orders: Orders) -> Run | None:
    """Run the operations of these orders as early as possible; None if they deadlock."""
    needs, delay = problem.producers
    duration = problem.durations
    start, cause = [-1] * len(duration), [-1] * len(duration)
    ranks = len(orders)
    at, clock, last = [0] * ranks, [0] * ranks, [-1] * ranks
    waiting: dict[int, int] = {}
    ready = list(range(ranks))
    left = len(duration)
    while ready:
        rank = ready.pop()
        order, now, before = orders[rank], clock[rank], last[rank]
        i, size = at[rank], len(order)
        while i < size:
            x = order[i]
            producer = needs[x]
            if producer >= 0:
                begun = start[producer]
                if begun < 0:
                    waiting[producer] = rank
                    break
                begun += delay[x]
                if begun > now:
                    now, before = begun, producer
            start[x], cause[x] = now, before
            now += duration[x]
            before = x
            left -= 1
            if x in waiting:
                ready.append(waiting.pop(x))
            i += 1
        at[rank], clock[rank], last[rank] = i, now, before
    return None if left else Run(start, cause, last)


def run(problem: Problem, orders: Orders) -> Ints | None:
    """Return the earliest start of every operation, int64, shape (operations,); None if the orders deadlock."""
    found = played(problem, orders)
    return None if found is None else np.array(found.start, dtype=np.int64)


def peak(problem: Problem, orders: Orders) -> Ints:
    """Return the peak memory of every rank, in parts; int64, shape (ranks,)."""
    change = (problem.takes - problem.frees)[problem.sequence]
    most = np.zeros(problem.ranks, dtype=np.int64)
    for rank, order in enumerate(orders):
        if len(order):
            most[rank] = max(0, int(np.cumsum(change[np.asarray(order)]).max()))
    return most


def value(problem: Problem, orders: Orders) -> int | None:
    """Return the objective in ticks, or None if the orders deadlock or exceed a cap."""
    start = run(problem, orders)
    if start is None or bool((peak(problem, orders) > problem.cap).any()):
        return None
    return problem.value(start)


def fault(problem: Problem, start: Ints, bound: int) -> str:
    """Return a description of the first rule that a table of starts violates; empty if it violates none.

    Args:
        problem: the instance.
        start: in ticks, shape (operations,).
        bound: the largest allowed objective, in ticks.
    """
    if start.shape != (problem.operations,) or bool((start < 0).any()):
        return "a start is missing"
    later, earlier, delay = problem.precedence
    if bool((start[later] < start[earlier] + delay).any()):
        return "an operation starts before its input arrives"
    if problem.value(start) > bound:
        return f"the objective is {problem.value(start)} ticks, which exceeds the bound {bound}"
    change = (problem.takes - problem.frees)[problem.sequence]
    end = start + problem.duration[problem.sequence]
    for rank, order in enumerate(by_start(problem, start)):
        x = np.asarray(order, dtype=np.int64)
        if bool((start[x[1:]] < end[x[:-1]]).any()):
            return f"two operations on rank {rank} overlap"
        if int(np.cumsum(change[x]).max(initial=0)) > problem.cap[rank]:
            return f"rank {rank} holds more than its cap"
    return ""
