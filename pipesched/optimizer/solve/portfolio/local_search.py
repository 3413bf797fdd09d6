"""Local search: a move shifts one operation on its rank, next to a pair of neighbours on a longest path.

    a longest path   ... u v ...       u right before v on one rank, no idle time between
    a move           v moves before u, or even earlier; or u moves behind v, or even later

Only a move that breaks such a pair on every longest path can shorten the schedule, and most often a pair at the end of
a block, which is a part of the path without a message (van Laarhoven, Aarts and Lenstra, 1992; Nowicki and Smutnicki,
1996). A move keeps the order within each sequence, keeps each operation after its input, and respects the rank's cap.

All operations are kept in one order, the turn, in which each operation follows those that it waits for. A move changes
only a segment of the turn:

    turn     ........ | ancestors of v, v, u, the others | ........
               end ->      both are computed again            <- left        left: from its start to the end of all
                                                                known        lefts from here on are up to date

The longest path through the segment follows from the ends before it and the rest after it. So a move that makes the
schedule too long, or causes a deadlock, is rejected without looking at the other operations. A longer schedule is
accepted with a falling probability (simulated annealing); the same seed and number of steps give the same orders.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import log

import numpy as np

from pipesched.optimizer.solve.candidates import Candidate, Pool
from pipesched.optimizer.solve.convert import played
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.portfolio.justify import PUSHED, Justifier, pushed
from pipesched.optimizer.solve.problem import Orders, Problem

ROUNDS, FIRST, MORE = 1_000, 300, 700  # walks; steps per operation of the first, and more of each one after it
LOOK, OFFERED = 64_000, 500_000  # steps between two checks of the clock, and between two orders that are offered
ENDS = 0.9  # part of the moves that are next to an end of a block
DRAWN, TESTED, TAKEN = 3, 12, 40  # steps for a move that is drawn, tested, accepted
_NEVER = -(2**60)


class Search:
    """A random walk through the orders of a problem. best, value: the best orders so far, and the best objective."""

    def __init__(self, problem: Problem, orders: Orders, seed: int = 0, meter: Meter | None = None) -> None:
        self.problem, self.meter, self.random = problem, meter or Meter(), random.Random(seed)
        self.sequence: list[int] = problem.sequence.tolist()
        self.duration = problem.durations
        self.rank: list[int] = problem.rank[problem.sequence].tolist()
        self.change: list[int] = (problem.takes - problem.frees)[problem.sequence].tolist()
        self.cap: list[int] = problem.cap.tolist()
        self.needs, delay = problem.producers
        self.lag = [wait - self.duration[y] if y >= 0 else 0 for y, wait in zip(self.needs, delay, strict=True)]
        self.follow: list[list[tuple[int, int]]] = [[] for _ in self.needs]
        for x, y in enumerate(self.needs):
            if y >= 0:
                self.follow[y].append((x, self.lag[x]))
        self.begun = [0] * problem.ranks
        found = played(problem, orders)
        if found is None:
            raise ValueError("the ranks wait for each other in a cycle")
        self.orders, self.best = ([list(order) for order in orders] for _ in range(2))
        self._begin(found.start)
        self.value = self.now

    def _begin(self, start: Sequence[int]) -> None:
        """Fill the tables for the orders. In them, n + r stands for the end of rank r, and -1 for no operation."""
        problem, n = self.problem, self.problem.operations
        self.before, self.after = [-1] * (n + problem.ranks + 1), [-1] * (n + problem.ranks + 1)
        for rank, order in enumerate(self.orders):
            for x, y in pairwise([-1, *order, n + rank]):
                self.before[y], self.after[x] = x, y
        self.held = [list(accumulate(self.change[x] for x in order)) for order in self.orders]
        self.turn = self._turn(start)
        self.place = [0] * n
        for k, x in enumerate(self.turn):
            self.place[x] = k
        self.end, self.left = [0] * (n + problem.ranks + 1), [0] * (n + problem.ranks) + [_NEVER]
        self._forward(self.turn)
        self._set_begun()
        self.known = len(self.turn)
        self.now = self._longest()

    def _turn(self, start: Sequence[int]) -> list[int]:
        """Return all operations by start; at equal starts, each after those that it waits for."""
        turn = sorted(range(len(start)), key=start.__getitem__)
        depth, deeper = [0] * len(start), 0 in self.duration
        while deeper:
            deeper = False
            for x in turn:
                for y in (self.before[x], self.needs[x]):
                    if y >= 0 and start[y] == start[x] and depth[y] >= depth[x]:
                        depth[x], deeper = depth[y] + 1, True
        return sorted(turn, key=lambda x: (start[x], depth[x]))

    def steps(self, most: int, hot: float, cold: float) -> Iterator[int]:
        """Make moves for `most` steps of work, cooling from `hot` to `cold` ticks; at times yield the best value."""
        ends, all_of_them = self._pairs()
        work = told = 0
        while work < most:
            work += DRAWN
            if work >= told + LOOK:
                self.meter.spend(work - told)
                told = work
                yield self.value
            pairs = ends if self.random.random() < ENDS else all_of_them
            move = self._move(*self.random.choice(pairs)) if pairs else None
            if move is None:
                continue
            work += TESTED
            heat = hot * (cold / hot) ** (work / most)
            if not self._made(*move, self.now - heat * log(1 - self.random.random())):
                continue
            work += TAKEN + len(self.turn) // 4
            ends, all_of_them = self._pairs()
            if self.now < self.value:
                self.value, self.best = self.now, [list(order) for order in self.orders]
        self.meter.spend(work - told)
        yield self.value

    def _forward(self, turn: Sequence[int]) -> None:
        """Compute the ends of operations that run as early as possible."""
        end, before, needs, lag, duration = self.end, self.before, self.needs, self.lag, self.duration
        for x in turn:
            free, ready = end[before[x]], end[needs[x]] + lag[x]
            end[x] = (free if free > ready else ready) + duration[x]

    def _backward(self, turn: Sequence[int]) -> None:
        """Compute the longest path from the start of each operation to the end."""
        left, after, follow, duration = self.left, self.after, self.follow, self.duration
        for x in reversed(turn):
            most = left[after[x]]
            for y, lag in follow[x]:
                if left[y] + lag > most:
                    most = left[y] + lag
            left[x] = most + duration[x]

    def _set_begun(self) -> bool:
        """Count the spans from the first starts of the ranks; return True if any first start has changed."""
        if self.problem.objective != "span":
            return False
        begun = [self.end[order[0]] - self.duration[order[0]] if order else 0 for order in self.orders]
        changed, self.begun = begun != self.begun, begun
        for rank, at in enumerate(begun, start=self.problem.operations):
            self.left[rank] = -at
        return changed

    def _longest(self) -> int:
        """Return the objective."""
        n = self.problem.operations
        return max(self.end[self.before[n + rank]] - at for rank, at in enumerate(self.begun))

    def _pairs(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the pairs (u, v) of neighbours on a rank and a longest path: those at block ends, and all pairs."""
        end, before, n = self.end, self.before, self.problem.operations
        lasts = [before[n + rank] for rank, at in enumerate(self.begun) if end[before[n + rank]] - at == self.now]
        x = self.random.choice(lasts)
        ends, pairs, opened = list[tuple[int, int]](), list[tuple[int, int]](), True
        while x >= 0:
            u = before[x]
            if u < 0 or end[u] < end[x] - self.duration[x]:
                if pairs and not opened and ends[-1] != pairs[-1]:
                    ends.append(pairs[-1])
                x, opened = self.needs[x] if end[x] > self.duration[x] else -1, True
                continue
            pairs.append((u, x))
            if opened:
                ends.append((u, x))
            x, opened = u, False
        return ends, pairs

    def _move(self, u: int, v: int) -> tuple[int, int, int] | None:
        """Return (rank, from, to) for a random move next to a pair, or None if the chosen move is not valid."""
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
        """Return True if `later` must follow `earlier`: both are in one sequence, or `later` waits for `earlier`."""
        return self.sequence[earlier] == self.sequence[later] or self.needs[later] == earlier

    def _room(self, rank: int, i: int, j: int) -> bool:
        """Return True if the rank stays within its cap when the operation at position i moves to position j."""
        held, change = self.held[rank], self.change[self.orders[rank][i]]
        if j < i:
            return change <= 0 or max(held[j - 1] if j else 0, *held[j:i]) + change <= self.cap[rank]
        return change >= 0 or max(held[i + 1 : j + 1]) - change <= self.cap[rank]

    def _made(self, rank: int, i: int, j: int, limit: float) -> bool:
        """Make a move if the objective is at most `limit`; return True if it was made."""
        order, end, left, duration = self.orders[rank], self.end, self.left, self.duration
        x, other = order[i], order[j]
        first, last = sorted((self.place[x], self.place[other]))
        segment = self.turn[first : last + 1]
        changed = self._earlier(segment) if j < i else self._later(segment, order[i + 1])
        if changed is None:
            return False
        old = [end[y] for y in segment], [left[y] for y in segment]
        whole = (end[:], left[:], self.begun, self.known) if self.problem.objective == "span" else None
        if last + 1 < self.known:
            self._backward(self.turn[last + 1 : self.known])
            self.known = last + 1
        follower = self._linked(x, other if j < i else self.after[other])
        self._forward(changed)
        self._backward(changed)
        if max(end[y] + left[y] - duration[y] for y in changed) > limit:
            self._linked(x, follower)
            for y, ended, rest in zip(segment, *old, strict=True):
                end[y], left[y] = ended, rest
            return False
        order.insert(j, order.pop(i))
        self.turn[first : last + 1] = changed
        self._forward(self.turn[last + 1 :])
        self.known = len(self.turn) if self._set_begun() else first
        now = self._longest()
        if whole is not None and now > limit:
            order.insert(i, order.pop(j))
            self._linked(x, follower)
            self.turn[first : last + 1] = segment
            self.end, self.left, self.begun, self.known = whole
            return False
        self.now = now
        for k, y in enumerate(changed, start=first):
            self.place[y] = k
        low, high = sorted((i, j))
        held, changes = self.held[rank], map(self.change.__getitem__, order[low : high + 1])
        held[low : high + 1] = [*accumulate(changes, initial=sum(held[low - 1 : low]))][1:]
        return True

    def _linked(self, x: int, follower: int) -> int:
        """Move x before `follower`, an operation on its rank or the rank's end; return what followed x until now."""
        before, after = self.before, self.after
        earlier, was = before[x], after[x]
        after[earlier], before[was] = was, earlier
        earlier = before[follower]
        before[x], after[x] = earlier, follower
        after[earlier] = before[follower] = x
        return was

    def _earlier(self, segment: list[int]) -> list[int] | None:
        """Move a segment's last operation earlier, after its ancestors; return None if an ancestor is on its rank."""
        x = segment[-1]
        rank, needed, ahead, others = self.rank[x], {self.needs[x]}, [x], list[int]()
        for y in reversed(segment[:-1]):
            if y not in needed:
                others.append(y)
                continue
            if self.rank[y] == rank:
                return None
            needed.add(self.before[y])
            needed.add(self.needs[y])
            ahead.append(y)
        return [*reversed(ahead), *reversed(others)]

    def _later(self, segment: list[int], follower: int) -> list[int] | None:
        """Return a segment of the turn with its first operation moved later, before its descendants; None if a
        descendant is on its rank. follower: the operation right after it on its rank.
        """
        x = segment[0]
        rank, found, behind, others = self.rank[x], {x}, [x], list[int]()
        for y in segment[1:]:
            if self.needs[y] not in found and (y == follower or self.before[y] not in found):
                others.append(y)
                continue
            if self.rank[y] == rank:
                return None
            found.add(y)
            behind.append(y)
        return [*others, *behind]


def temperatures(problem: Problem) -> tuple[float, float]:
    """Return the temperatures (hot, cold): the median duration, and a twentieth of the median."""
    typical = float(np.median(problem.duration[problem.duration > 0])) if (problem.duration > 0).any() else 1.0
    return typical, typical / 20


def walks(pool: Pool, justifier: Justifier, seed: int = 0) -> Iterator[Candidate]:
    """Yield better and better orders, or None, from longer and longer walks that begin at the pool's best orders."""
    if not pool.problem.operations:
        return
    meter, (hot, cold) = pool.meter, temperatures(pool.problem)
    for turn in range(ROUNDS):
        most = pool.problem.operations * (FIRST + MORE * turn)
        _, name, begin = pool.entries[0]
        found = f"local search from {name.removesuffix(PUSHED).removeprefix('local search from ')}"
        search = Search(pool.problem, begin, ROUNDS * seed + turn, meter)
        known, enough = search.value, meter.spent + OFFERED
        for value in search.steps(most, hot, cold):
            if value < known and meter.spent >= enough:
                known, enough = value, meter.spent + OFFERED
                yield found, search.best
            else:
                yield found, None
        yield found, search.best
        yield pushed(found), justifier.push(search.best, meter)
