"""Computes the times of a program with queues: a message is served when it is first in both of its queues, and then
leaves them.

    strict        a rank has one list and stands at a line of it; a message lasts C from when both ranks stand at it
    buffered(k)   a send that has room leaves its rank at once and is there C later; k messages may be unreceived
    one-stream    a queue a rank and communicator; what a batch puts into one is served together and leaves together
    pair-stream   the same, with a queue for each peer
    async         a message lasts C from when both ends are posted

Instants are played one after the other, and at each one everything that can happen does, in any order, until nothing
is left. It uses neither a graph nor a longest path.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from pipesched.model.ops import Op
from pipesched.model.schedule import Program
from tests.oracles.explorer_script import End, Line, Script

Queue: TypeAlias = deque[set[End]]
Cost: TypeAlias = Callable[[str, int, int], Fraction | None]
"""The cost of a kind, a stage and a microbatch; FB by the F, None where it is the sum; C by the stage that sends."""


@dataclass
class Rank:
    """line: its current line. until: when it is free again. entered: whether it has begun the line."""

    line: int = 0
    until: Fraction = Fraction(0)
    entered: bool = False


@dataclass
class Play:
    """A run. posted: ends that their ranks have posted. there: completed ends."""

    script: Script
    model: str
    cost: Cost
    ranks: list[Rank] = field(default_factory=list)
    posted: set[End] = field(default_factory=set)
    served: set[End] = field(default_factory=set)
    there: set[End] = field(default_factory=set)
    queues: dict[tuple[int, ...], Queue] = field(default_factory=lambda: defaultdict(deque))
    arrivals: list[tuple[Fraction, End, End]] = field(default_factory=list)
    flying: dict[tuple[int, int, int], int] = field(default_factory=lambda: defaultdict(int))
    arrived: set[End] = field(default_factory=set)
    now: Fraction = Fraction(0)

    @property
    def waits(self) -> bool:
        """Return True if a rank waits at its messages, and not at their uses."""
        return self.model == "strict" or self.model.startswith("buffered")

    @property
    def capacity(self) -> float:
        text = self.model.removeprefix("buffered(").removesuffix(")")
        return math.inf if text == "inf" else int(text)

    def run(self) -> Fraction | None:
        """Return the instant at which the last rank leaves its last line; None if one never does."""
        self.ranks = [Rank() for _ in self.script.lines]
        while True:
            while any(self._step(rank) for rank in range(len(self.ranks))) or self._serve():
                pass
            later = [x.until for x in self.ranks if x.until > self.now] + [x[0] for x in self.arrivals[:1]]
            if not later:
                break
            self.now = min(later)
            while self.arrivals and self.arrivals[0][0] == self.now:
                self._arrive(*heapq.heappop(self.arrivals)[1:])
        over = all(x.line == len(lines) for x, lines in zip(self.ranks, self.script.lines, strict=True))
        return self.now if over else None

    def _step(self, number: int) -> bool:
        """Return True if a rank could make progress."""
        rank, lines = self.ranks[number], self.script.lines[number]
        if rank.until > self.now or rank.line == len(lines):
            return False
        line = lines[rank.line]
        if line.sync:
            return self._sync(number)
        if not rank.entered:
            if not self.waits and not self._come(line.awaits):
                return False
            rank.entered = True
            self._post(line)
            rank.until = self.now + self._cost(number, line)
            return True
        if self.waits and not self.there.issuperset(line.ends):
            return False
        self._leave(rank)
        return True

    def _come(self, ends: tuple[End, ...]) -> bool:
        """Return True if these are complete; in a queue, whether they have left it."""
        queued = self.model.endswith("stream")
        return all(
            not any(end in element for element in self.queues[self._queue_of(end)]) if queued else end in self.there
            for end in ends
        )

    def _leave(self, rank: Rank) -> None:
        rank.line, rank.entered = rank.line + 1, False

    def _sync(self, number: int) -> bool:
        """Return both ranks leave a SYNC when both are there."""
        other = self.script.other_sync.get((number, self.ranks[number].line))
        if other is None:
            return False
        there = self.ranks[other[0]]
        if there.line != other[1] or there.until > self.now:
            return False
        self._leave(self.ranks[number])
        self._leave(there)
        return True

    def _cost(self, number: int, line: Line) -> Fraction:
        """Return the cost of the computes of a line."""
        slot = self.script.lists[number][line.first : line.first + 2]
        if not slot or not slot[0].op.compute:
            return Fraction(0)
        first, *second = slot if len(slot) > 1 and slot[1].op.compute and slot[1].second else slot[:1]
        whole = self.cost("FB", first.stage, first.microbatch) if second and second[0].op is Op.B else None
        parts = [self.cost(x.op.name, x.stage, x.microbatch) for x in (first, *second)]
        return whole if whole is not None else sum((x for x in parts if x is not None), Fraction(0))

    def _post(self, line: Line) -> None:
        """Post the ends of a line; ends in one queue are one element of it."""
        self.posted |= set(line.ends)
        if not self.model.endswith("stream"):
            return
        elements: dict[tuple[int, ...], set[End]] = defaultdict(set)
        for end in line.ends:
            elements[self._queue_of(end)].add(end)
        for key, element in elements.items():
            self.queues[key].append(element)

    def _queue_of(self, end: End) -> tuple[int, ...]:
        x = self.script.instruction(end)
        return (end[0], x.communicator) if self.model == "one-stream" else (end[0], x.communicator, x.peer)

    def _heads(self, end: End) -> bool:
        """Return True if an end is in the first element of its queue."""
        if not self.model.endswith("stream"):
            return True
        return end in self.queues[self._queue_of(end)][0]

    def _serve(self) -> bool:
        """Return True if some message could begin."""
        found = False
        for send in sorted(end for end in self.posted - self.served if self.script.sends(end)):
            receive = self.script.partner.get(send)
            if self.model.startswith("buffered"):
                found |= receive is not None and self._launch(send, receive)
            elif receive in self.posted and self._heads(send) and self._heads(receive):
                self.served.add(send)
                heapq.heappush(self.arrivals, (self.now + self._latency(send), send, receive))
                found = True
        return self._take() or found

    def _latency(self, send: End) -> Fraction:
        x = self.script.instruction(send)
        return self.cost("C", x.stage, x.microbatch) or Fraction(0)

    def _arrive(self, send: End, receive: End) -> None:
        """Remove a message from both queues; an element leaves with its last message."""
        if self.model.startswith("buffered"):
            self.arrived.add(receive)
            return
        for end in (send, receive):
            self.there.add(end)
            if self.model.endswith("stream"):
                queue = self.queues[self._queue_of(end)]
                if queue and queue[0] <= self.there:
                    queue.popleft()

    def _launch(self, send: End, receive: End) -> bool:
        """Start a send of a buffered channel if there is room, and all before it on the channel have gone."""
        channel = self.script.channel[send]
        before = [end for end, other in self.script.channel.items() if other == channel and end[0] == send[0]]
        if any(end < send and self.script.sends(end) and end not in self.served for end in before):
            return False
        if self.flying[channel] >= self.capacity:
            return False
        self.flying[channel] += 1
        self.served.add(send)
        self.there.add(send)
        heapq.heappush(self.arrivals, (self.now + self._latency(send), send, receive))
        return True

    def _take(self) -> bool:
        """Return the complete posted receives whose message has arrived, in channel order, which makes room."""
        found = False
        for receive in sorted(self.arrived & self.posted - self.there):
            channel = self.script.channel[receive]
            mine = [end for end, other in self.script.channel.items() if other == channel and end[0] == receive[0]]
            if all(end in self.there for end in mine if end < receive and not self.script.sends(end)):
                self.there.add(receive)
                self.flying[channel] -= 1
                found = True
        return found


def makespan(program: Program, model: str, cost: Cost) -> Fraction | None:
    """Return the duration of a program, None if it never ends."""
    return Play(Script(program), model, cost).run()
