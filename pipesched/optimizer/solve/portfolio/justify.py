"""Compacts a schedule forward and backward in turn: moves every operation as early as gaps allow, then as late.

    forward    in the order of starts: each operation goes into the first gap of its rank that is long enough, after
               the operations that it waits for, and at a time from which the cap has room for it
    backward   the same for the reversed problem: time runs backward, frees take memory, and takes free it

No pass makes the schedule longer (Tormos and Lova, 2001, for projects with scarce resources). The memory held between
two operations is the same in both directions, as are the caps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.problem import Orders, Problem

PUSHED = ", pushed together"
PASS = 3  # steps charged per operation


@dataclass(frozen=True, eq=False)
class Network:
    """The problem in one direction of time; every list except cap has an entry per operation.

    into: pairs (operation that must start before, least time from its start), including the order of the sequence.
    """

    duration: list[int]
    rank: list[int]
    change: list[int]
    cap: list[int]
    into: list[list[tuple[int, int]]]


def network(problem: Problem) -> tuple[Network, Network]:
    """Build the networks of the problem, forward and backward."""
    later, earlier, delay = (column.tolist() for column in problem.precedence)
    q = problem.sequence
    duration, rank = problem.duration[q].tolist(), problem.rank[q].tolist()
    change = (problem.takes - problem.frees)[q]
    into: list[list[tuple[int, int]]] = [[] for _ in range(problem.operations)]
    back: list[list[tuple[int, int]]] = [[] for _ in range(problem.operations)]
    for y, x, wait in zip(later, earlier, delay, strict=True):
        into[y].append((x, wait))
        back[x].append((y, wait - duration[x] + duration[y]))
    cap = problem.cap.tolist()
    return Network(duration, rank, change.tolist(), cap, into), Network(duration, rank, (-change).tolist(), cap, back)


def placed(net: Network, turn: Sequence[int], ranks: int) -> Ints | None:
    """Put each operation, in the order of `turn`, into the first gap; return starts, int64, shape (operations,), or
    None if an operation does not fit.

    turn: all operations, each after the operations that it waits for.
    """
    start = [0] * len(turn)
    starts: list[list[int]] = [[] for _ in range(ranks)]
    ends: list[list[int]] = [[] for _ in range(ranks)]
    held: list[list[int]] = [[] for _ in range(ranks)]
    for x in turn:
        rank, length, change = net.rank[x], net.duration[x], net.change[x]
        ready = 0
        for y, wait in net.into[x]:
            ready = max(ready, start[y] + wait)
        begun, over, states = starts[rank], ends[rank], held[rank]
        k, size = bisect_left(over, ready), len(begun)
        if change > 0:
            k = _with_room(states, net.cap[rank] - change, k)
            if k < 0:
                return None
        while k < size and (max(ready, over[k - 1]) if k else ready) + length > begun[k]:
            k += 1
        at = max(ready, over[k - 1]) if k else ready
        start[x] = at
        begun.insert(k, at)
        over.insert(k, at + length)
        states.insert(k, (states[k - 1] if k else 0))
        if change:
            for i in range(k, size + 1):
                states[i] += change
    return np.array(start, dtype=np.int64)


def _with_room(states: list[int], room: int, k: int) -> int:
    """Return the first position, at k or later, from which on every state has room; -1 if there is none."""
    least = len(states)
    if states and states[-1] > room:
        return -1
    while least >= max(k, 1) and states[least - 1] <= room:
        least -= 1
    found = max(k, least + 1 if least else 0)  # the state just before the place must also have room
    return -1 if found == 0 and room < 0 else found


def pushed(name: str) -> str:
    """Return the name of compacted orders, without repeating the suffix."""
    return name.removesuffix(PUSHED) + PUSHED


class Justifier:
    """The forward and backward passes for one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rank: list[int] = problem.rank[problem.sequence].tolist()
        self.duration = problem.duration[problem.sequence]

    @cached_property
    def networks(self) -> tuple[Network, Network]:
        """The forward and backward networks, which are large and therefore built on first use."""
        return network(self.problem)

    def push(self, orders: Orders, meter: Meter | None = None) -> Orders:
        """Compact orders backward and forward, at least once, while this improves them and time remains."""
        meter = meter or Meter()
        best, value = orders, inf
        start = convert.run(self.problem, orders)
        forward, backward = self.networks
        turn = [x for order in orders for x in order]
        while start is not None and not (meter.late and value < inf):
            meter.spend(PASS * self.problem.operations)
            turn = _by(start, turn)
            late = placed(backward, turn[::-1], self.problem.ranks)
            if late is None:
                break
            meter.spend(PASS * self.problem.operations)
            turn = _by(-late - self.duration, turn)
            start = placed(forward, turn, self.problem.ranks)
            if start is None or self.problem.value(start) >= value:
                break
            value = self.problem.value(start)
            best = self._orders(_by(start, turn))
        return best

    def _orders(self, turn: Sequence[int]) -> Orders:
        orders: list[list[int]] = [[] for _ in range(self.problem.ranks)]
        for x in turn:
            orders[self.rank[x]].append(x)
        return orders


def _by(start: Ints, turn: Sequence[int]) -> list[int]:
    """Sort operations by start; operations that start together keep their order."""
    before = np.array(turn, dtype=np.int64)
    ordered: list[int] = before[np.argsort(start[before], kind="stable")].tolist()
    return ordered
