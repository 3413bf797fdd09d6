"""The clock of a search, which measures work in steps. The same work takes the same number of steps on every machine.

    SECOND steps    about one CPU second of all processes of a search together

A limit in seconds is a number of steps, so the answer does not depend on the load or the number of cores of a machine:
two processes that work at the same time reach the limit in half the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import TypeVar

Given = TypeVar("Given")

SECOND = 1_000_000


@dataclass(eq=False)
class Meter:
    """A meter that counts steps of work. limit: the number of steps at which time is up."""

    limit: float = inf
    spent: int = 0

    def spend(self, steps: int) -> None:
        """Add steps to the work done so far."""
        self.spent += steps

    @property
    def left(self) -> float:
        """The number of steps until the limit."""
        return max(0.0, self.limit - self.spent)

    @property
    def late(self) -> bool:
        """True if the limit is reached."""
        return self.spent >= self.limit

    @contextmanager
    def part(self, share: float) -> Iterator[Meter]:
        """Yield a meter limited to a share of the remaining steps; the steps that it spends are added at the end."""
        made = Meter(self.left * share)
        yield made
        self.spend(made.spent)

    def shared(self, questions: Sequence[Given]) -> Iterator[tuple[Given, Meter]]:
        """Yield each question with a meter for an equal share of the remaining steps; later ones get unused steps."""
        for left, question in zip(range(len(questions), 0, -1), questions, strict=True):
            with self.part(1 / left) as part:
                yield question, part
