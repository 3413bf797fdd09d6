"""The clock of a search: its work, in steps. The same work takes the same number of steps on every machine.

    SECOND steps    about one CPU second of all processes of a search together

A limit in seconds is a number of steps, so neither the load of a machine nor the number of its cores enters an answer:
two processes that work at the same time reach the limit in half the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

SECOND = 1_000_000


@dataclass(eq=False)
class Meter:
    """A meter that counts steps of work. limit: the number of steps after which the work is late."""

    limit: float = inf
    spent: int = 0

    def spend(self, steps: int) -> None:
        """Add steps to the work that is done."""
        self.spent += steps

    @property
    def left(self) -> float:
        """The steps until the limit."""
        return max(0.0, self.limit - self.spent)

    @property
    def late(self) -> bool:
        """True if the limit is reached."""
        return self.spent >= self.limit

    def part(self, share: float) -> Meter:
        """Return a meter limited to a share of the remaining steps; the caller adds the steps that it takes."""
        return Meter(self.left * share)

    def shared(self, questions: int) -> Meter:
        """Return a meter for the next of some questions, all of which share the remaining steps; as `part`."""
        return self.part(1 / max(1, questions))
