"""Decides whether a forward is safe to start, since an unfinished microbatch needs memory on every rank that it has yet
to visit.

    `least_cap.alone` returns the memory that a microbatch holds after each operation of its chain, and how much more it
        needs later

A state is *safe* if the unfinished microbatches can be finished one after another (Dijkstra's banker's algorithm). A
schedule that remains in safe states never deadlocks. Within a route, the oldest microbatch is finished first, since it
needs no more memory than a younger one. If every rank has one stage (on any number of routes) and only F take memory,
all states are safe: operations wait only for memory that deeper stages free, and the deepest stages wait for nothing.

With one route, a forward that starts in a safe state adds memory on its own rank only, and finished microbatches free
memory only for younger ones. So only its own microbatch and older ones are checked again, on that rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve.bounds.least_cap import alone
from pipesched.optimizer.solve.problem import Orders, Problem

Amounts: TypeAlias = tuple[tuple[int, int], ...]  # (rank, parts) with parts > 0


def one_by_one(problem: Problem) -> Orders:
    """Return the orders that run one microbatch after another, with W right after I: least memory, most time."""
    weight = {(int(problem.route[q]), int(problem.stage[q])): q for q in np.flatnonzero(problem.op == Op.W).tolist()}
    orders: list[list[int]] = [[] for _ in range(problem.ranks)]
    first, rank = problem.first.tolist(), problem.rank.tolist()
    for route in sorted(set(problem.route.tolist())):
        chain = alone(problem, route).chain
        whole = [part for q in chain for part in (q, weight.get((route, int(problem.stage[q])), -1))]
        turn = [q for k, q in enumerate(whole) if q >= 0 and (k % 2 == 0 or k > len(chain))]
        for i in range(int(problem.length[chain[0]])):
            for q in turn:
                orders[rank[q]].append(first[q] + i)
    return orders


class Room:
    """The memory of the ranks while operations start; decides which operations fit, and which are safe."""

    def __init__(self, problem: Problem) -> None:
        self.cap: list[int] = problem.cap.tolist()
        self.rank: list[int] = problem.rank.tolist()
        self.peak: list[int] = np.maximum(problem.takes, np.maximum(-problem.frees, 0)).tolist()
        self.change: list[int] = (problem.takes - problem.frees).tolist()
        self.held = [0] * problem.ranks
        self.takes: list[int] = problem.takes.tolist()
        taking = problem.takes > 0
        stages = {*zip(problem.rank[taking].tolist(), problem.stage[taking].tolist(), strict=True)}
        one_each = len(stages) == len({rank for rank, _ in stages}) and bool((problem.op[taking] == Op.F).all())
        self.always = one_each and bool((problem.frees >= 0).all())
        ways = [] if self.always else [alone(problem, r) for r in sorted(set(problem.route.tolist()))]
        self.place = {q: (way, c) for way, one in enumerate(ways) for c, q in enumerate(one.chain)}
        self.held_on = [one.held.T.tolist() for one in ways]
        self.need_on = [one.need.T.tolist() for one in ways]
        self.holds = [[_amounts(row) for row in one.held] for one in ways]
        self.needs = [[_amounts(row) for row in one.need] for one in ways]
        self.counts = [[int(problem.length[one.chain[0]]), *[0] * len(one.chain)] for one in ways]
        self.total = [0] * problem.ranks
        self.steps = 0
        """The work that `safe` has done so far: the number of chain entries read."""

    def fits(self, q: int) -> bool:
        """Return True if the rank of sequence q has room for the sequence's next operation."""
        rank = self.rank[q]
        return self.held[rank] + self.peak[q] <= self.cap[rank]

    def safe(self, q: int) -> bool:
        """Return True if all unfinished microbatches can still be finished after the next operation of sequence q."""
        if self.always or not self.takes[q]:
            return True
        self._step(q, 1)
        answer = self._finishes() if len(self.counts) > 1 else self._older_finish(q)
        self._step(q, -1)
        return answer

    def start(self, q: int) -> None:
        """Record the start of an operation of sequence q."""
        self.held[self.rank[q]] += self.change[q]
        if q in self.place:
            self._step(q, 1)

    def _step(self, q: int, by: int) -> None:
        way, c = self.place[q]
        self.counts[way][c + 1] += by
        for rank, parts in self.holds[way][c + 1]:
            self.total[rank] += by * parts
        for rank, parts in self.holds[way][c]:
            self.total[rank] -= by * parts

    def _older_finish(self, q: int) -> bool:
        """Return True if the microbatch of the last operation of sequence q, and all older ones, can be finished."""
        rank, (way, c) = self.rank[q], self.place[q]
        counts, held, need = self.counts[way], self.held_on[way][rank], self.need_on[way][rank]
        left, room, older = self.total[rank], self.cap[rank], counts[-1]
        self.steps += len(counts) - c
        for done in range(len(counts) - 2, c, -1):
            if (count := counts[done]) > older:
                if left + need[done] > room:
                    return False
                left -= held[done] * (count - older)
                older = count
        return True

    def _finishes(self) -> bool:
        """Return True if all microbatches can be finished: oldest first in each route, routes in any possible order."""
        left = list(self.total)
        self.steps += sum(map(len, self.counts)) * len(left) // 4
        open_ways = [self._groups(way) for way in range(len(self.counts))]
        while any(open_ways):
            moved = False
            for way, groups in enumerate(open_ways):
                while groups and self._can(left, self.needs[way][groups[-1][0]]):
                    c, number = groups.pop()
                    for rank, parts in self.holds[way][c]:
                        left[rank] -= parts * number
                    moved = True
            if not moved:
                return False
        return True

    def _groups(self, way: int) -> list[tuple[int, int]]:
        """Return pairs (operations done, number of microbatches) for the unfinished microbatches, youngest first."""
        counts = self.counts[way]
        return [(c, counts[c] - counts[c + 1]) for c in range(1, len(counts) - 1) if counts[c] > counts[c + 1]]

    def _can(self, left: Sequence[int], need: Amounts) -> bool:
        return all(left[rank] + parts <= self.cap[rank] for rank, parts in need)


def _amounts(row: Ints) -> Amounts:
    return tuple((r, int(x)) for r, x in enumerate(row.tolist()) if x)
