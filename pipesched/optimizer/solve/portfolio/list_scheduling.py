"""List scheduling on the time axis: a free rank runs the most urgent operation that has arrived and has room.

    key[x]     the most urgent operation has the smallest key; compared only among arrived operations
    W          runs in a gap that is long enough, and to free memory if a forward has no room

A forward starts only if all unfinished microbatches can still be finished (`safe`), so a run never deadlocks if the
placement has a schedule. Events take O(operations x log ranks) time, not counting `safe`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve.bounds.longest_paths import paths
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.portfolio.banker import Room
from pipesched.optimizer.solve.problem import Orders, Problem

LOOK = 256  # events between two checks of the clock
EVENT, CHECKED = 4, 8  # steps per event; operations of `safe` per step


def listed(problem: Problem, key: Ints, meter: Meter | None = None) -> Orders | None:
    """Return a list schedule for keys, int64, shape (operations,); None if none is found within the caps and time."""
    run = _Run(problem, key)
    run.all(meter or Meter())
    return run.orders if run.left == 0 else None


class _Run:
    def __init__(self, problem: Problem, key: Ints) -> None:
        self.key: list[int] = key.tolist()
        self.room = Room(problem)
        self.left = problem.operations
        self.first: list[int] = problem.first.tolist()
        self.length: list[int] = problem.length.tolist()
        self.duration: list[int] = problem.duration.tolist()
        self.rank: list[int] = problem.rank.tolist()
        self.next = [0] * problem.sequences
        self.arrival = [0 if needed < 0 else -1 for needed in problem.producers[0]]
        self.follow: list[list[tuple[int, int]]] = [[] for _ in range(problem.sequences)]
        for b, a, lag in zip(problem.before.tolist(), problem.after.tolist(), problem.lag.tolist(), strict=True):
            self.follow[b].append((a, lag))
        self.chains = [[q for q in held if problem.op[q] != Op.W] for held in problem.on]
        self.fillers = [[q for q in held if problem.op[q] == Op.W] for held in problem.on]
        self.orders: list[list[int]] = [[] for _ in range(problem.ranks)]
        self.free = [0] * problem.ranks
        self.events = [(0, rank) for rank in range(problem.ranks)]
        self.denied: set[int] = set()

    def all(self, meter: Meter) -> None:
        events, free = self.events, self.free
        for turn in count(1):
            if not events:
                return
            if turn % LOOK == 0:
                meter.spend(EVENT * LOOK + self.room.steps // CHECKED)
                self.room.steps = 0
                if meter.late:
                    return
            now, rank = heapq.heappop(events)
            if free[rank] <= now:
                q = self.choose(rank, now)
                if q >= 0:
                    self.start(q, rank, now)

    def choose(self, rank: int, now: int) -> int:
        """Return the sequence to run now, -1 for none."""
        here, coming = self._candidates(rank, now)
        full = False
        for _, q in here:
            if not self.room.fits(q):
                full = True
            elif not self.room.safe(q):
                self.denied.add(rank)
            else:
                return q
        gap = min(coming) - now if coming else None
        q = self._filler(rank)
        if q >= 0 and (full or gap is None or gap >= self.duration[q]):
            return q
        if gap is not None:
            heapq.heappush(self.events, (now + gap, rank))
        return -1

    def _candidates(self, rank: int, now: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Return (key, sequence) of arrived operations, most urgent first, and arrival times of those in transit."""
        here, coming = [], []
        for q in self.chains[rank]:
            i = self.next[q]
            if i < self.length[q]:
                x = self.first[q] + i
                arrival = self.arrival[x]
                if 0 <= arrival <= now:
                    here.append((self.key[x], q))
                elif arrival > now:
                    coming.append(arrival)
        if len(here) > 1:
            here.sort()
        return here, coming

    def _filler(self, rank: int) -> int:
        """Return the sequence of the most urgent waiting W, -1 for none."""
        best, least = -1, 0
        for q in self.fillers[rank]:
            i = self.next[q]
            if i < self.length[q]:
                x = self.first[q] + i
                if self.arrival[x] >= 0 and (best < 0 or self.key[x] < least):
                    best, least = q, self.key[x]
        return best

    def start(self, q: int, rank: int, now: int) -> None:
        i = self.next[q]
        end = now + self.duration[q]
        self.next[q] = i + 1
        self.room.start(q)
        self.orders[rank].append(self.first[q] + i)
        self.left -= 1
        self.free[rank] = end
        heapq.heappush(self.events, (end, rank))
        for after, lag in self.follow[q]:
            self.arrival[self.first[after] + i] = end + lag
            if self.rank[after] != rank:
                heapq.heappush(self.events, (end + lag, self.rank[after]))
        if self.denied:
            for other in self.denied:
                heapq.heappush(self.events, (now, other))
            self.denied.clear()


def policies(problem: Problem) -> list[tuple[str, Ints]]:
    """Return (name, sort keys of all operations) for each policy, most useful first; the name states the priority."""
    alone = paths(problem).head[np.minimum(problem.first[:-1], problem.operations - 1)]  # of first microbatches
    depth, index = alone[problem.sequence], problem.index
    forward = problem.op[problem.sequence] == Op.F
    oldest = index * (int(depth.max(initial=0)) + 1) + depth
    most = int(oldest.max(initial=0)) + 1
    period = max(1, int(problem.work.max(initial=1)) // max(1, int(problem.length.max(initial=1))))
    return [
        *((f"oldest first, {n}/4", index * period * n // 4 + depth) for n in (4, 3)),
        ("backward first", np.where(forward, most + oldest, oldest)),
        *((f"oldest first, {n}/4", index * period * n // 4 + depth) for n in (2, 1)),
    ]


def listings(problem: Problem, meter: Meter | None = None) -> Iterator[tuple[str, Orders]]:
    """Yield the orders of all policies."""
    for name, key in policies(problem):
        found = listed(problem, key, meter)
        if found is not None:
            yield f"list schedule, {name}", found
