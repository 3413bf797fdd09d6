"""Questions asked in parallel, with answers in an order that does not depend on the machine.

    lane 1     |---- question a ----------|-- c --|         time is counted in steps of work,
    lane 2     |- b -|---------- d ---------------|         not in seconds
    heuristics |..|..|..|..|..|..|..|..|..|..|..|..|        in this process, in slices

The event that comes first by this clock is returned first. So an answer that has arrived waits until every lane has
reached the answer's time, and two runs see the same events in the same order on any machine, idle or busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.problem import Answer, Orders, Question

if TYPE_CHECKING:
    from pipesched.optimizer.solve.engines.worker_pool import Pool

_WAIT = 0.5  # seconds between two calls of `tick`


@dataclass(frozen=True, eq=False)
class Found:
    """The event that heuristics have found orders."""

    name: str
    orders: Orders


@dataclass(frozen=True, eq=False)
class Answered:
    """The event that a question has been answered."""

    ticket: int
    answer: Answer


Slice = tuple[int, Found | None]
"""A slice of heuristics: its steps, and the orders that it found."""


@dataclass(eq=False)
class Lanes:
    """Lanes of questions. pool: the worker pool, whose workers are the lanes. meter: counts the work of all lanes and
    of the heuristics. heuristics: the slices of the heuristics, or None when they have ended.

    weight: the number of lane steps per step of the heuristics. now: the time of the last event, in steps of the lanes.
    """

    pool: Pool
    meter: Meter
    heuristics: Iterator[Slice] | None = None
    weight: int = 1
    now: int = 0
    _since: dict[int, int] = field(default_factory=dict)
    _answers: dict[int, Answer] = field(default_factory=dict)
    _heuristics_at: int = 0
    _found: Found | None = None

    @property
    def free(self) -> int:
        """The number of free lanes; an answer that has arrived but has not been returned still occupies its lane."""
        return self.pool.size - len(self._since)

    def ask(self, question: Question) -> int:
        """Ask a question on a free lane; return its ticket."""
        ticket = self.pool.submit(question)
        self._since[ticket] = self.now
        return ticket

    def cancel(self, ticket: int) -> None:
        """Drop a question."""
        self.pool.cancel(ticket)
        self._since.pop(ticket, None)
        self._answers.pop(ticket, None)

    def next(self, tick: Callable[[], None] = lambda: None) -> Answered | Found | None:
        """Return the next event; None if the meter reaches its limit first, or if nothing is running.

        tick: function that is called at intervals.
        """
        working = len(self._since) + (1 / self.weight if self.heuristics is not None else 0)
        until = self.now + self.meter.left / working if working else self.now
        while True:
            first = min(self._since, key=lambda ticket: (self._at(ticket), ticket), default=None)
            if self.heuristics is not None and (first is None or self._heuristics_at < self._at(first)):
                if self._heuristics_at >= until:
                    break
                if (found := self._slice()) is not None:
                    return found
            elif first is None:
                return None
            elif self._at(first) >= until:
                break
            elif first in self._answers:
                self._advance(self._at(first))
                del self._since[first]
                return Answered(first, self._answers.pop(first))
            else:
                self.pool.listen(_WAIT)
                self._answers.update(self.pool.arrived())
            tick()
        if self._found is not None:  # a result at the limit counts, even if another lane is late
            return self._slice()
        self.meter.spend(ceil(self.meter.left))
        return None

    def _advance(self, now: int) -> None:
        """Advance the clock to `now`, and charge the meter for the work of the lanes until then."""
        self.meter.spend(len(self._since) * max(0, now - self.now))
        self.now = max(self.now, now)

    def _at(self, ticket: int) -> int:
        """Return the time at which a question ended or, if it is open, up to which it certainly runs."""
        answer = self._answers.get(ticket)
        return self._since[ticket] + (self.pool.steps.get(ticket, 0) if answer is None else answer.steps)

    def _slice(self) -> Found | None:
        """Return the orders of the last slice if their time has come; otherwise run one more slice and return None."""
        if self._found is not None:
            found, self._found = self._found, None
            self._advance(self._heuristics_at)
            return found
        assert self.heuristics is not None
        steps, self._found = next(self.heuristics, (0, None))
        self._heuristics_at = max(self._heuristics_at, self.now) + steps * self.weight
        if not steps:
            self.heuristics = None
        return None
