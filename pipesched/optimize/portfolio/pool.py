"""The best orders so far, each of them once, and the time that is left."""

from __future__ import annotations

import time
from bisect import insort
from dataclasses import dataclass, field
from typing import TypeAlias

from pipesched.optimize import convert
from pipesched.optimize.problem import Orders, Problem

ROOM = 300  # orders that are kept

Entry: TypeAlias = tuple[int, str, Orders]
"""Value in ticks, name, orders."""


@dataclass(frozen=True)
class Clock:
    """A limit of time in seconds, monotonic."""

    began: float
    seconds: float

    def at(self, share: float) -> float:
        """When this share of the time has gone."""
        return self.began + share * self.seconds

    def gone(self) -> float:
        """The share that has gone; above 1 when it is over."""
        return (time.monotonic() - self.began) / self.seconds if self.seconds > 0 else 2.0


@dataclass(eq=False)
class Pool:
    """entries: the best first; only orders that end and keep to the caps."""

    problem: Problem
    entries: list[Entry] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    @property
    def best(self) -> int:
        """The least value."""
        return self.entries[0][0]

    def offer(self, name: str, found: Orders) -> bool:
        """Whether the orders are better than all before."""
        mark = hash(tuple(tuple(order) for order in found))
        if mark in self.seen:
            return False
        self.seen.add(mark)
        value = convert.value(self.problem, found)
        if value is None:
            return False
        better = not self.entries or value < self.best
        insort(self.entries, (value, name, found), key=lambda entry: entry[0])
        del self.entries[ROOM:]
        return better
