"""A program under a communication model, as lists that wait for each other (`analysis.lists`).

An instruction waits for the one before it, and some instructions wait for messages; a message waits until both of its
ends have begun, and in some models for other messages. An instruction waits for all of its inputs, never for whichever
of several comes first, so all runs stop at the same instructions (communication theory: Karp and Miller 1966, Kahn
1974), and one run finds them.

    strict      an end completes when both ends have begun; the rank waits for it
    posted      likewise; compute operations wait for their receives, and the end of the list for all sends
    queued      as posted, but only after everything before it in the queues of both ranks
    buffered    a send completes once the receive k before it has, a receive once its send has; the rank waits
    a shape     the rank waits for it, under every model

All members of a batch begin with the first member, and the batch ends with its last message; otherwise its members are
independent. In a queue a batch is one element, so a wait for one of its messages waits for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import product

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.lists import Lists, Waits, run, together
from pipesched.analysis.pairing import Pairing, pair
from pipesched.model.columns import PLACE, Bools, Column, Ints, among, computes, fresh, places
from pipesched.model.costs import Ticks
from pipesched.model.ops import SAME, SHAPES, Does, Op
from pipesched.model.schedule import Program


class Events:
    """The lists of a program: its instructions, followed by further lists that represent queues of messages.

    late: the transfer time of each message, at both of its ends. head: for each instruction, the one at which its rank
    blocks (see `heads`). sources: for each message end, the entries after which it begins, -1 for none. done: for each
    message end, an entry that does not end before that message end completes.
    """

    def __init__(
        self, program: Program, model: Model, pairing: Pairing | None = None, ticks: Ticks | None = None
    ) -> None:
        self.program, self.model, self.pairing = program, model, pairing or pair(program)
        size, partner = len(program), self.pairing.partner
        self.head = heads(program)
        self.sources = [np.where(self.head == program.start[program.rank], PLACE(-1), self.head - PLACE(1))]
        self.cost, self.cut = np.zeros(size, dtype=np.int64), program.start
        self.done: Column = np.arange(size, dtype=PLACE)
        self.late: Column = np.broadcast_to(np.int8(0), size)
        if ticks is not None and ticks.message.any():
            sends = np.flatnonzero(program.sends & (partner >= 0) & ~among(program.op, SHAPES))
            self.late = np.zeros(size, dtype=np.int64)
            for ends in (sends, partner[sends]):
                self.late[ends] = ticks.delays(program.stage[sends], program.microbatch[sends])
        self._waits: list[Waits] = []
        self._communicate()

    @property
    def waits(self) -> Waits:
        return together(self._waits)

    @cached_property
    def _run(self) -> tuple[Bools, Column]:
        end, _, stopped = run(Lists.of(self.cost, self.cut, self.waits))
        return np.append(end >= 0, True), stopped

    @property
    def ran(self) -> Bools:
        """A mask of the entries that end, the same in every run; True for the entry -1."""
        return self._run[0]

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """For each rank, the step (from 0) that cannot end; the list's length if only the end waits; -1 if it ends."""
        start, sends = self.program.start, np.flatnonzero(self.program.sends)
        late = sends[~(self.ran[self.done[sends]] & self.over(sends))]
        steps, length = self._run[1][: self.program.ranks] - start[:-1], np.diff(start)
        finished = (steps == length) & ~np.isin(np.arange(len(length)), self.program.rank[late])
        return tuple(np.where(finished, -1, steps).tolist())

    def over(self, ends: Ints) -> Bools:
        """Return, for each of these message ends, whether it completes."""
        partner = self.pairing.partner[ends]
        begun = np.all([self.ran[source[side]] for source in self.sources for side in (ends, partner)], axis=0)
        if self.model.kind == "buffered":
            begun = self.ran[self.done[ends]]
        return np.asarray((partner >= 0) & begun)

    def _communicate(self) -> None:
        """Add the waits that messages cause."""
        program, ends = self.program, np.flatnonzero(self.program.sends | self.program.receives)
        blocking = program.op == Op.SYNC
        if self.model.kind == "strict":
            blocking[ends] = True
        elif self.model.kind == "buffered":
            self._buffer(ends)
        else:
            blocking |= among(program.op, SHAPES)
            receive, consumer = consumers(program)
            if self.model.queued:
                self._queue()
                self._wait(self.head[consumer], self.done[receive])
            else:
                self._meet(self.head[consumer], receive)
        self._meet(self.head[blocking], np.flatnonzero(blocking))

    def _wait(self, entry: Column, other: Column, late: Column | None = None) -> None:
        """Record that entries wait for other entries, with delays if `late` is given."""
        self._waits.append((entry, other, np.broadcast_to(np.int8(0), len(entry)) if late is None else late))

    def _meet(self, entry: Column, at: Ints) -> None:
        """Make each entry wait until the message at its end `at` completes: forever if the message has no other end."""
        other = self.pairing.partner[at]
        self._wait(entry[other < 0], entry[other < 0])
        entry, at, other = entry[other >= 0], at[other >= 0], other[other >= 0]
        for source, end in product(self.sources, (at, other)):
            self._wait(entry, source[end], self.late[at])

    def _extend(self, begins: Bools) -> Column:
        """Append one entry per item of `begins`, which is True where a list begins; return the new entries."""
        first, count = len(self.cost), len(begins)
        self.cost = np.append(self.cost, np.zeros(count, dtype=np.int64))
        self.cut = np.append(self.cut, [*(first + np.flatnonzero(begins)[1:]), first + count])
        return np.arange(first, first + count, dtype=PLACE)

    def _buffer(self, ends: Ints) -> None:
        """Make each receive wait for its send, and each send for the receive that frees its buffer slot."""
        program, pairing, done = self.program, self.pairing, self.done
        if np.any(self.head[ends] != ends):
            for side in (pairing.sends, pairing.receives):
                done[side.at] = self._extend(side.place == 0)
            self._wait(done[ends], self.sources[0][ends])
            self._wait(self.head[ends], done[ends])
        lost, sends = ends[pairing.partner[ends] < 0], ends[program.sends[ends] & (pairing.partner[ends] >= 0)]
        self._wait(done[lost], done[lost])
        self._wait(done[pairing.partner[sends]], done[sends], self.late[sends])
        if self.model.capacity is not None:
            before, after = pairing.sends.apart(self.model.capacity)
            freed = pairing.partner[before]
            self._wait(done[after[freed >= 0]], done[freed[freed >= 0]])

    def _queue(self) -> None:
        """Add the queues, one entry per message end; all entries of an element complete with its last one."""
        ends, begins, elements = queues(self.program, self.model, self.head)
        count = np.diff(elements, append=len(ends))
        own = self._extend(begins)
        last = own[elements + count - 1]
        behind = np.full(len(self.program), -1, dtype=PLACE)
        self.done[ends] = np.repeat(last, count)
        behind[ends] = np.repeat(np.where(begins[elements], -1, np.roll(last, 1)), count)
        self.sources.append(behind)
        self._meet(own, ends)


def heads(program: Program) -> Column:
    """Return, for each instruction, where its rank blocks: at the start of its batch or overlap pair, or at itself."""
    size = len(program)
    joined = program.second.copy()
    if size > 1:
        joined[1:] &= computes(program.op[:-1])  # parts of a pair that are not adjacent are two slots
        message = program.sends | program.receives
        same = (program.group[1:] == program.group[:-1]) & (program.group[1:] >= 0) & message[1:] & message[:-1]
        joined[1:] |= same
    joined[program.start[:-1][program.start[:-1] < size]] = False
    return np.asarray(np.maximum.accumulate(np.arange(size, dtype=PLACE) * ~joined))


def consumers(program: Program) -> tuple[Ints, Ints]:
    """Return message ends, and the instruction that waits for each: a compute operation, or WAIT_SEND for a send.

    Each instruction waits for the latest message end before it on its rank with the same result, stage and microbatch.
    If stages read several stages, the instruction waits for all such ends, and sends to different stages are
    distinguished.
    """
    name = np.maximum(_POSTED[program.op], _AWAITED[program.op])
    at = np.flatnonzero(name >= 0)
    columns = [program.microbatch[at], program.stage[at].astype(np.int64) * len(Op) + name[at], program.rank[at]]
    if program.other is not None:
        sent = name[at] % 2 == 1
        columns.insert(0, np.where(sent, program.other[at], -1))
    order = np.lexsort(columns)
    at = at[order]
    posted = _POSTED[program.op[at]] >= 0
    begins = np.arange(len(at)) - places(fresh(*(column[order] for column in columns)))
    before: Ints = np.cumsum(posted) - posted  # counted over all names
    awaits = np.flatnonzero(~posted)
    reach: Ints = before[awaits] - before[begins[awaits]]
    reach = reach if program.other is not None else np.minimum(reach, 1)
    first = np.repeat(before[awaits] - reach, reach)
    ends = at[posted][first + np.arange(len(first)) - np.repeat(np.cumsum(reach) - reach, reach)]
    waiting = np.repeat(at[awaits], reach)
    by_place = np.argsort(waiting, kind="stable")
    return ends[by_place], waiting[by_place]


def _names(kinds: Iterable[Op], sends: Callable[[Op], bool]) -> Ints:
    """Return, for each kind of instruction, a number for the result that it sends, receives or awaits, or -1."""
    names = np.full(len(Op), -1, dtype=np.int64)
    for op in kinds:
        names[op] = 2 * op.result + sends(op)
    return names


_POSTED = _names([op for op in Op if (op.send or op.receive) and not op.kind.shape], lambda op: op.send)
_AWAITED = _names(  # a receive is awaited by the computes that use it, a send by its wait
    [op for op in Op if op.kind.of != SAME and (op.compute or op.kind.does is Does.WAIT)], lambda op: not op.compute
)


def queues(program: Program, model: Model, head: Column) -> tuple[Ints, Bools, Ints]:
    """Return the message ends in queue order, a mask of the ends that begin a queue, and the first end of each element.

    There is one queue per rank and communicator, and per peer under pair-stream. An element of a queue is a single
    message, or the part of a batch that is in this queue.
    """
    ends = np.flatnonzero(program.sends | program.receives)
    columns = [program.communicator[ends], program.rank[ends]]
    if model.kind == "pair-stream":
        columns.insert(0, program.peer[ends])
    order = np.lexsort(columns)
    ends = ends[order]
    begins = fresh(*(column[order] for column in columns))
    return ends, begins, np.flatnonzero(begins | fresh(head[ends]))
