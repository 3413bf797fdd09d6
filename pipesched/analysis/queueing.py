"""The time that a program takes if its messages queue, under a communication model.

    a compute    begins when the slot before it has ended, and takes its cost
    a message    is served when it heads its queue at both ends, takes tC, and leaves both

Under strict the queue of a rank is its own list: a rank computes nothing while it waits for a message. Under one-stream
and pair-stream a rank goes on computing, and waits when a compute needs a receive; the messages of one batch are served
together. Under async a message is served as soon as both ends are posted. Under buffered(k) a send ends as soon as the
buffer has a free place, and the message arrives tC later. The ideal timeline (`analysis.timeline`) has no receives to
post and no queues, so it is never longer. The message of a shape takes no time. Copies to host memory and back wait for
no message (`analysis.copies`).

All of this is expressed by lists that wait for each other (`analysis.lists`): one per rank, and the queues of messages
if these are not in the order of the rank's own list.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.copies import Copies
from pipesched.analysis.events import consumers, heads, queues
from pipesched.analysis.lists import Lists, Waits, ends_from, run, together
from pipesched.analysis.pairing import Pairing
from pipesched.analysis.timeline import Timeline, slot_costs
from pipesched.model.columns import PLACE, Bools, Column, Ints, among, computes
from pipesched.model.costs import Ticks
from pipesched.model.ops import SHAPES, Op
from pipesched.model.schedule import Schedule


def makespan(
    model: Model, pairing: Pairing, schedule: Schedule, ticks: Ticks, *, copies: Copies | None, ideal: Timeline | None
) -> int:
    """Return the end of the last list in ticks, for a program that ends under the model.

    schedule, copies: the computes of the program, and their copies. ideal: their timeline, if the program has a message
    for each of their inputs.
    """
    program = pairing.program
    made, compute = _Queues(pairing, ticks), np.flatnonzero(computes(program.op))
    made.cost[compute] = slot_costs(schedule, ticks)
    made.communicate(model)
    cost, cut, waits = made.cost, made.cut, made.waits
    if copies is not None:
        cost, cut, waits = copies.joined(schedule, ticks, made.head[compute], cost, cut, waits)
    lists = Lists.of(cost, cut, waits)
    if ideal is None:
        end, _, _ = run(lists)
    else:
        least = np.zeros(len(cost), dtype=np.int64)
        least[compute] = ideal.end
        end = ends_from(least, lists)
    last = int(end[: len(made.cost)].max(initial=0))
    if model.kind != "async":
        return last
    reached = np.append(end, 0)[made.sources[0]]
    sends = np.flatnonzero(program.sends)
    over = made.late[sends] + np.maximum(reached[sends], reached[pairing.partner[sends]])
    return max(last, int(over.max(initial=0)))


class _Queues:
    """The lists of a program: entries are its instructions, then those of queues with an order of their own.

    late: the time of each message, at both of its ends. head: where each instruction blocks. sources: by end of a
    message, the entry whose end begins it, -1 for none.
    """

    def __init__(self, pairing: Pairing, ticks: Ticks) -> None:
        program, size = pairing.program, len(pairing.program)
        self.program, self.pairing = program, pairing
        self.head = heads(program)
        self.sources = [np.where(self.head == program.start[program.rank], PLACE(-1), self.head - PLACE(1))]
        self.cost, self.cut = np.zeros(size, dtype=np.int64), program.start
        self.late: Column = np.broadcast_to(np.int8(0), size)
        if ticks.message.any():
            sends = np.flatnonzero(program.sends & (pairing.partner >= 0) & ~among(program.op, SHAPES))
            self.late = np.zeros(size, dtype=np.int64)
            for ends in (sends, pairing.partner[sends]):
                self.late[ends] = ticks.delays(program.stage[sends], program.microbatch[sends])
        self._waits: list[Waits] = []

    @property
    def waits(self) -> Waits:
        return together(self._waits)

    def communicate(self, model: Model) -> None:
        """Add all waits that are caused by messages."""
        program, ends = self.program, np.flatnonzero(self.program.sends | self.program.receives)
        blocking = program.op == Op.SYNC
        if model.kind == "strict":
            blocking[ends] = True
        elif model.kind == "buffered":
            self._buffer(ends, model.capacity)
        else:
            blocking |= among(program.op, SHAPES)
            receive, consumer = consumers(program)
            if model.queued:
                self._wait(self.head[consumer], self._queue(model)[receive])
            else:
                self._meet(self.head[consumer], receive)
        self._meet(self.head[blocking], np.flatnonzero(blocking))

    def _wait(self, entry: Column, other: Column, late: Column | None = None) -> None:
        """Add entries that wait for others."""
        self._waits.append((entry, other, np.broadcast_to(np.int8(0), len(entry)) if late is None else late))

    def _meet(self, entry: Column, at: Ints) -> None:
        """Add waits until the messages of these ends are done; an entry waits for ever if the other end is missing."""
        other = self.pairing.partner[at]
        self._wait(entry[other < 0], entry[other < 0])
        entry, at, other = entry[other >= 0], at[other >= 0], other[other >= 0]
        for source, end in product(self.sources, (at, other)):
            self._wait(entry, source[end], self.late[at])

    def _extend(self, begins: Bools) -> Column:
        """Add entries, in lists that begin there."""
        first, count = len(self.cost), len(begins)
        self.cost = np.append(self.cost, np.zeros(count, dtype=np.int64))
        self.cut = np.append(self.cut, [*(first + np.flatnonzero(begins)[1:]), first + count])
        return np.arange(first, first + count, dtype=PLACE)

    def _buffer(self, ends: Ints, capacity: int | None) -> None:
        """Make a receive wait for its send, and a send for the receive that freed its slot, each separately."""
        program, pairing = self.program, self.pairing
        done = np.arange(len(program), dtype=PLACE)
        if np.any(self.head[ends] != ends):
            for side in (pairing.sends, pairing.receives):
                done[side.at] = self._extend(side.place == 0)
            self._wait(done[ends], self.sources[0][ends])
            self._wait(self.head[ends], done[ends])
        lost, sends = ends[pairing.partner[ends] < 0], ends[program.sends[ends] & (pairing.partner[ends] >= 0)]
        self._wait(done[lost], done[lost])
        self._wait(done[pairing.partner[sends]], done[sends], self.late[sends])
        if capacity is not None:
            before, after = pairing.sends.apart(capacity)
            freed = pairing.partner[before]
            self._wait(done[after[freed >= 0]], done[freed[freed >= 0]])

    def _queue(self, model: Model) -> Column:
        """Add the queues, one entry per message end; return, for each end, the last entry of its element."""
        ends, begins, elements = queues(self.program, model, self.head)
        count = np.diff(elements, append=len(ends))
        own = self._extend(begins)
        last = own[elements + count - 1]
        over, behind = (np.full(len(self.program), -1, dtype=PLACE) for _ in range(2))
        over[ends] = np.repeat(last, count)
        behind[ends] = np.repeat(np.where(begins[elements], -1, np.roll(last, 1)), count)
        self.sources.append(behind)
        self._meet(own, ends)
        return over
