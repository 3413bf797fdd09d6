"""Local search: moves one operation on its rank, next to a pair on a longest path.

    a longest path   ... u v ...       u right before v on one rank, no idle time between
    a move           v goes before u, or some operations further; or u goes behind v, or further

Only a move that breaks such a pair on every longest path can shorten the schedule (van Laarhoven, Aarts and Lenstra,
1992). A move keeps the order of each sequence, each operation after its input, and the rank's cap; a move that causes a
deadlock is undone. A worse schedule is accepted with a probability that falls (simulated annealing): the same seed and
number of steps give the same orders.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import exp

import numpy as np

from pipesched.optimizer.solve.candidates import Candidate, Pool
from pipesched.optimizer.solve.convert import played
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.portfolio.justify import PUSHED, Justifier, pushed
from pipesched.optimizer.solve.problem import Orders, Problem

STARTS = 6  # walks in the first round
FIRST = 4_000  # moves of each walk in the first round
LOOK = 64_000  # steps of work between two checks of the clock


class Search:
    """A random walk through the orders of a problem. best, value: the best orders so far, and their objective in
    ticks.
    """

    def __init__(self, problem: Problem, orders: Orders, seed: int = 0, meter: Meter | None = None) -> None:
        self.problem = problem
        self.meter = meter or Meter()
        self.work = problem.operations + 50  # half of the steps charged for a move
        self.random = random.Random(seed)
        self.orders = [list(order) for order in orders]
        self.sequence: list[int] = problem.sequence.tolist()
        self.duration = problem.durations
        self.rank: list[int] = problem.rank[problem.sequence].tolist()
        self.change: list[int] = (problem.takes - problem.frees)[problem.sequence].tolist()
        self.cap: list[int] = problem.cap.tolist()
        self.span = problem.objective == "span"
        self.needs, _ = problem.producers
        now = self._evaluate()
        if now is None:
            raise ValueError("the ranks wait for each other")
        self.value, self.energy = now
        self.best: Orders = [list(order) for order in self.orders]

    def steps(self, count: int, hot: float, cold: float) -> Iterator[int]:
        """Make `count` moves, cooling from temperature `hot` to `cold`, in ticks; yield the best value now and then."""
        now = self.energy
        path = self._path()
        often = max(1, 2 * LOOK // self.work)
        for step in range(count):
            if step % often == 0:
                self.meter.spend(often * self.work // 2)
                yield self.value
            move = self._move(path)
            if move is None:
                continue
            rank, i, j = move
            order = self.orders[rank]
            order.insert(j, order.pop(i))
            made = self._evaluate()
            heat = hot * (cold / hot) ** (step / count)
            if made is None or (made[1] > now and self.random.random() >= exp((now - made[1]) / heat)):
                order.insert(i, order.pop(j))
                continue
            now = made[1]
            path = self._path()
            if made[0] < self.value:
                self.value, self.best = made[0], [list(order) for order in self.orders]
                yield self.value
        self.energy = now

    def restart(self) -> None:
        """Return to the best orders."""
        self.orders = [list(order) for order in self.best]
        now = self._evaluate()
        assert now is not None
        self.energy = now[1]

    def _evaluate(self) -> tuple[int, float] | None:
        """Return (objective, energy to minimize: objective + a tenth of the mean end of the ranks); None for a
        deadlock.
        """
        found = played(self.problem, self.orders)
        if found is None:
            return None
        self.start, self.cause, self.last = found
        self.begun = [self.start[order[0]] if self.span and order else 0 for order in self.orders]
        ends = [
            0 if x < 0 else self.start[x] + self.duration[x] - b for x, b in zip(self.last, self.begun, strict=True)
        ]
        value = max(ends)
        return value, value + 0.1 * sum(ends) / len(ends)

    def _path(self) -> list[tuple[int, int]]:
        """Return the pairs (u, v) of a longest path that are neighbours on a rank."""
        ends = [(self.start[x] + self.duration[x] - self.begun[r], x) for r, x in enumerate(self.last) if x >= 0]
        most = max(ends)[0]
        x = self.random.choice([x for end, x in ends if end == most])
        pairs = []
        while (u := self.cause[x]) >= 0:
            if self.rank[u] == self.rank[x]:
                pairs.append((u, x))
            x = u
        return pairs

    def _move(self, path: Sequence[tuple[int, int]]) -> tuple[int, int, int] | None:
        """Return (rank, from, to) for a random move, or None if the drawn pair has no valid move."""
        if not path:
            return None
        u, v = self.random.choice(path)
        rank = self.rank[u]
        order = self.orders[rank]
        far = min(1 + int(self.random.expovariate(0.7)), len(order))
        if self.random.random() < 0.5:
            i = order.index(v)
            j = max(0, i - far)
            for k in range(i - 1, j - 1, -1):
                if self._tied(order[k], v):
                    j = k + 1
                    break
        else:
            i = order.index(u)
            j = min(len(order) - 1, i + far)
            for k in range(i + 1, j + 1):
                if self._tied(u, order[k]):
                    j = k - 1
                    break
        return (rank, i, j) if i != j and self._room(rank, i, j) else None

    def _tied(self, earlier: int, later: int) -> bool:
        """Return True if `later` must stay after `earlier`: both are in one sequence, or it waits for `earlier`."""
        return self.sequence[earlier] == self.sequence[later] or self.needs[later] == earlier

    def _room(self, rank: int, i: int, j: int) -> bool:
        order, change = self.orders[rank], self.change
        held = 0
        low, high = min(i, j), max(i, j)
        for x in order[:low]:
            held += change[x]
        window = order[low : high + 1]
        window.insert(j - low, window.pop(i - low))
        for x in window:
            held += change[x]
            if held > self.cap[rank]:
                return False
        return True


def temperatures(problem: Problem) -> tuple[float, float]:
    """Return the temperatures (hot, cold): the median duration, and a twentieth of it."""
    typical = float(np.median(problem.duration[problem.duration > 0])) if (problem.duration > 0).any() else 1.0
    return typical, typical / 20


def walks(pool: Pool, justifier: Justifier, seed: int = 0) -> Iterator[Candidate]:
    """Yield better and better orders by walks from the best of the pool in longer and longer rounds, or None."""
    if not pool.problem.operations:
        return
    problem, meter, (hot, cold) = pool.problem, pool.meter, temperatures(pool.problem)
    chosen = enumerate(pool.entries[:STARTS], STARTS * seed)
    searches = [(name, Search(problem, found, number, meter)) for number, (_, name, found) in chosen]
    count = FIRST
    while searches:
        for name, search in searches:
            found = f"local search from {name.removesuffix(PUSHED)}"
            known = search.value
            for value in search.steps(count, hot, cold):
                if value < known:
                    known = value
                    yield found, search.best
                else:
                    yield found, None
            yield pushed(found), justifier.push(search.best, meter)
            search.restart()
        searches.sort(key=lambda entry: entry[1].value)
        del searches[max(2, len(searches) - 1) :]
        count *= 2
