"""The best orders so far, each value and way of starting once."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from pipesched.optimize import convert
from pipesched.optimize.problem import Orders, Problem

ROOM = 300


@dataclass(eq=False)
class Pool:
    """entries: (value in ticks, name, orders), the best first; only orders that end and keep to the caps."""

    problem: Problem
    entries: list[tuple[int, str, Orders]] = field(default_factory=list)
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
