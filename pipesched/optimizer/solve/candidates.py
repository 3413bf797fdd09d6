"""Candidates: the best orders so far, without duplicates."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TypeAlias

from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.problem import Orders, Problem

ROOM = 300  # most orders that are kept

Entry: TypeAlias = tuple[int, str, Orders]
"""A candidate: its value in ticks, its name, and the order on each rank."""
Candidate: TypeAlias = tuple[str, Orders | None]
"""A name and orders; or None instead of orders, if there are no new ones, so that the caller can check the meter."""


@dataclass(eq=False)
class Pool:
    """The pool of the best orders so far. entries: best first, all free of deadlock and within the caps."""

    problem: Problem
    meter: Meter = field(default_factory=Meter)
    entries: list[Entry] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    @property
    def best(self) -> int:
        """The value of the best orders."""
        return self.entries[0][0]

    def value_of(self, found: Orders) -> int | None:
        """Return the value of orders in ticks; None if they are not valid."""
        self.meter.spend(self.problem.operations)
        return convert.value(self.problem, found)

    def offer(self, name: str, found: Orders) -> bool:
        """Add orders to the pool if they are new and valid; return True if they are better than all earlier orders."""
        mark = hash(tuple(tuple(order) for order in found))
        if mark in self.seen:
            return False
        self.seen.add(mark)
        value = self.value_of(found)
        if value is None:
            return False
        better = not self.entries or value < self.best
        insort(self.entries, (value, name, found), key=lambda entry: entry[0])
        del self.entries[ROOM:]
        return better
