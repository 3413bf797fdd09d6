"""Questions side by side, whose answers come in an order that does not depend on the machine.

    lane 1     |---- question a ----------|-- c --|         time is counted in steps: what was done, not how long
    lane 2     |- b -|---------- d ---------------|         it took
    heuristics |..|..|..|..|..|..|..|..|..|..|..|..|        in this process, in slices

What happens first by this clock is returned first. So an answer that is here waits until every lane has come that far,
and two runs see the same events in the same order, on an idle machine and on a busy one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pipesched.optimizer.solve.engines.worker_pool import Pool
from pipesched.optimizer.solve.problem import Answer, Orders, Question

_WAIT = 0.5  # seconds between two looks at the limit


@dataclass(frozen=True, eq=False)
class Found:
    """What heuristics found."""

    name: str
    orders: Orders


@dataclass(frozen=True, eq=False)
class Answered:
    """The answer to a question."""

    ticket: int
    answer: Answer


Slice = tuple[int, Found | None]
"""The steps of a slice of heuristics, and what it found."""


@dataclass(eq=False)
class Lanes:
    """pool: whose workers are the lanes. heuristics: slices of them, or nothing; weight: how many of the lanes' steps
    pass in the time of one of theirs. now: the time of the last event.
    """

    pool: Pool
    heuristics: Iterator[Slice] | None = None
    weight: int = 1
    now: int = 0
    _since: dict[int, int] = field(default_factory=dict)
    _answers: dict[int, Answer] = field(default_factory=dict)
    _heuristics_at: int = 0
    _found: Found | None = None

    @property
    def free(self) -> int:
        """How many more questions can be asked: an answer that is here and not yet returned keeps its lane."""
        return self.pool.size - len(self._since)

    def ask(self, question: Question) -> int:
        """The ticket of a question that is begun now; only where a lane is free."""
        ticket = self.pool.submit(question)
        self._since[ticket] = self.now
        return ticket

    def cancel(self, ticket: int) -> None:
        """The question is not to be answered."""
        self.pool.cancel(ticket)
        self._since.pop(ticket, None)
        self._answers.pop(ticket, None)

    def next(self, until: float, tick: Callable[[], None] = lambda: None) -> Answered | Found | None:
        """What happens next; None when time is over (monotonic, in seconds), and when nothing runs.

        tick: called now and then.
        """
        while time.monotonic() < until:
            first = min(self._since, key=lambda ticket: (self._at(ticket), ticket), default=None)
            if self.heuristics is not None and (first is None or self._heuristics_at < self._at(first)):
                if (found := self._slice()) is not None:
                    return found
            elif first is None:
                return None
            elif first in self._answers:
                self.now = self._at(first)
                del self._since[first]
                return Answered(first, self._answers.pop(first))
            else:
                self._listen(min(_WAIT, max(0.0, until - time.monotonic())))
            tick()
        return None

    def _at(self, ticket: int) -> int:
        """When a question ends, or how far it is known to be."""
        answer = self._answers.get(ticket)
        return self._since[ticket] + (self.pool.steps.get(ticket, 0) if answer is None else answer.steps)

    def _listen(self, timeout: float) -> None:
        self.pool.listen(timeout)
        self._answers.update(self.pool.arrived())

    def _slice(self) -> Found | None:
        """What the last slice found, now that the lanes are there; else one slice more."""
        if self._found is not None:
            found, self._found, self.now = self._found, None, max(self.now, self._heuristics_at)
            return found
        assert self.heuristics is not None
        steps, self._found = next(self.heuristics, (0, None))
        self._heuristics_at = max(self._heuristics_at, self.now) + steps * self.weight
        if not steps:
            self.heuristics = None
        return None
