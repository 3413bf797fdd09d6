"""Candidates: the best orders so far, without duplicates, and the steps spent on them."""

from __future__ import annotations

import time
from bisect import insort
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.problem import Orders, Problem

ROOM = 300  # most orders that are kept

Entry: TypeAlias = tuple[int, str, Orders]
"""An order that was found: its value in ticks, its name, its orders."""
Candidate: TypeAlias = tuple[str, Orders | None]
"""A name with orders; None for the orders if there are no new ones, so that the caller can check the meter."""


@dataclass(eq=False)
class Meter:
    """A meter of work in steps. A step is about a microsecond, and the same work takes the same number of steps
    everywhere.

    until: deadline, in monotonic seconds; if it ends the work, the result depends on the machine.
    """

    until: float = inf
    spent: int = 0

    def spend(self, steps: int) -> None:
        self.spent += steps

    @property
    def late(self) -> bool:
        """True if the deadline has passed."""
        return time.monotonic() >= self.until


@dataclass(eq=False)
class Pool:
    """The best orders so far. entries: the best first; only orders that do not deadlock and respect the caps."""

    problem: Problem
    meter: Meter = field(default_factory=Meter)
    entries: list[Entry] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    @property
    def best(self) -> int:
        """The value of the best orders."""
        return self.entries[0][0]

    def offer(self, name: str, found: Orders) -> bool:
        """Add orders to the pool if they are new and valid; return True if they are better than all before."""
        mark = hash(tuple(tuple(order) for order in found))
        if mark in self.seen:
            return False
        self.seen.add(mark)
        self.meter.spend(self.problem.operations)
        value = convert.value(self.problem, found)
        if value is None:
            return False
        better = not self.entries or value < self.best
        insort(self.entries, (value, name, found), key=lambda entry: entry[0])
        del self.entries[ROOM:]
        return better
