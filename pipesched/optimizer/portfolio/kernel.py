"""A pattern that repeats, for any placement: modulo scheduling of one microbatch.

One microbatch of every route goes through its chain; each operation takes the first time from which on its rank is free
of it, *counted modulo a period T*. Repeated every T the pattern never meets itself:

    T = the work of the busiest rank for one microbatch of each route     no bubble in the steady state
    T larger                                                              operations end sooner, and less is held

Now and then an operation lets a free time pass (drawn by chance, from a seed), which makes room for another; many
patterns are tried. Where no free time is long enough, an operation is laid over others: the times only give the order,
and the order is run as early as it goes. The method is Rau's (Iterative modulo scheduling, MICRO 1994) without
eviction.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.portfolio.safe import alone
from pipesched.optimizer.portfolio.vee import in_slots
from pipesched.optimizer.problem import Orders, Problem

TRIES = 60  # patterns of every period
STRETCH = (0, 1, 2, 4, 8, 16, 32)  # periods are longer than the work by so many 48ths
SKIP = (0.0, 0.1, 0.3, 0.5)  # how often a free time is let pass


def patterns(problem: Problem, seed: int = 0) -> Iterator[tuple[str, Orders]]:
    """Named orders; not all keep to the caps, and none at all where a route is empty."""
    draw = random.Random(seed)
    routes = sorted(set(problem.route.tolist()))
    if not routes or not problem.operations:
        return
    chains = [alone(problem, route).chain for route in routes]
    work = max(1, int(np.bincount(problem.rank, problem.duration, problem.ranks).max()))
    for attempt in range(TRIES):
        for more in STRETCH:
            period = work + work * more // 48
            at = _pattern(problem, chains, period, SKIP[attempt % len(SKIP)], draw)
            yield "repeated pattern", in_slots(problem, _repeated(problem, at, period))


def _pattern(
    problem: Problem, chains: list[tuple[int, ...]], period: int, skip: float, draw: random.Random
) -> list[int]:
    """When the first operation of every sequence runs."""
    table = _Table(problem, period)
    at = [0] * problem.sequences
    lag = {(int(b), int(a)): int(x) for b, a, x in zip(problem.before, problem.after, problem.lag, strict=True)}
    weights = {(int(problem.route[q]), int(problem.stage[q])): q for q in np.flatnonzero(problem.op == Op.W).tolist()}
    for chain in chains:
        clock = draw.randrange(period) if len(chains) > 1 and chain is not chains[0] else 0
        for c, q in enumerate(chain):
            at[q] = table.put(q, clock, skip, draw)
            clock = at[q] + int(problem.duration[q])
            if c + 1 < len(chain):
                clock += lag[q, chain[c + 1]]
    for chain in chains:
        for q in chain[len(chain) // 2 :]:
            w = weights.get((int(problem.route[q]), int(problem.stage[q])), -1)
            if w >= 0:
                at[w] = table.put(w, at[q] + int(problem.duration[q]), 0.0, draw)
    return at


class _Table:
    """Which residues of the period are taken on each rank."""

    def __init__(self, problem: Problem, period: int) -> None:
        self.problem, self.period = problem, period
        self.taken: list[list[tuple[int, int]]] = [[] for _ in range(problem.ranks)]

    def put(self, q: int, ready: int, skip: float, draw: random.Random) -> int:
        """Take the first time from `ready` on that is free, or now and then the one after it."""
        rank, length = int(self.problem.rank[q]), int(self.problem.duration[q])
        taken = self.taken[rank]
        times = [ready, *sorted(ready + (end - ready) % self.period for _, end in taken)]
        free = [t for t in times if self._free(taken, t, length)]
        chosen = ready
        if free:
            chosen = free[1] if len(free) > 1 and draw.random() < skip else free[0]
        taken.append((chosen % self.period, (chosen + length) % self.period))
        return chosen

    def _free(self, taken: list[tuple[int, int]], t: int, length: int) -> bool:
        for begin, end in taken:
            size = (end - begin) % self.period
            before = (begin - t) % self.period
            if size and (before < length or before + size > self.period):
                return False
        return length <= self.period


def _repeated(problem: Problem, at: list[int], period: int) -> Ints:
    first = np.array(at, dtype=np.int64)
    return first[problem.sequence] + period * problem.index
