"""The pairing of sends and receives.

    channel = (communicator, source rank, target rank)
    the i-th send on a channel pairs with the i-th receive on it, whatever their contents

A channel has one writer and one reader, both sequential, so no other rank can take a message. The pairing is therefore
the same in every run, and one stable sort of each side finds it.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from pipesched.model.columns import PLACE, Bools, Column, among, fresh, places, small
from pipesched.model.ops import Op
from pipesched.model.schedule import Program
from pipesched.support.record import Record


class Side(Record):
    """The sends, or the receives, grouped by channel and in list order."""

    at: Column
    channel: Column

    @property
    def place(self) -> Column:
        """The position of each send or receive on its channel."""
        return places(fresh(self.channel))

    @classmethod
    def of(cls, program: Program, which: Bools, source: Column, target: Column) -> Self:
        """Return the instructions in `which` whose peers exist; the channel of a SYNC ignores the communicator."""
        at = np.flatnonzero(which & (program.peer >= 0) & (program.peer < program.ranks))
        ranks, communicator = np.int64(program.ranks), program.communicator[at] * (program.op[at] != Op.SYNC)
        channel = small((communicator * ranks + source[at]) * ranks + target[at])
        order = np.argsort(channel, kind="stable")
        return cls(at[order].astype(PLACE), channel[order])

    def apart(self, by: int) -> tuple[Column, Column]:
        """Return the pairs of sends (or receives) that are `by` positions apart on one channel."""
        after = np.flatnonzero(self.place >= by)
        return self.at[after - by], self.at[after]


class Pairing(Record):
    """partner: for each send, receive and SYNC, the index of its other end, or -1; shape (instructions,). proved:
    whether the clock proves the pairing, so that all messages can occur in clock order.
    """

    program: Program
    partner: Column
    proved: bool = False

    @property
    def sends(self) -> Side:
        return Side.of(self.program, self.program.sends, self.program.rank, self.program.peer)

    @property
    def receives(self) -> Side:
        return Side.of(self.program, self.program.receives, self.program.peer, self.program.rank)


def pair(program: Program) -> Pairing:
    """Pair all sends with receives, and SYNCs with SYNCs."""
    rank, peer, sync = program.rank, program.peer, among(program.op, [Op.SYNC])
    sides = [(program.sends, program.receives)]
    sides += [(sync & (rank < peer), sync & (rank > peer))] if sync.any() else []
    partner = np.full(len(program), -1, dtype=PLACE)
    if _by_clock(program, sides, partner):
        return Pairing(program, partner, proved=True)
    partner[:] = -1
    for one, two in sides:
        _link(partner, Side.of(program, one, rank, peer), Side.of(program, two, peer, rank))
    return Pairing(program, partner)


def _by_clock(program: Program, sides: list[tuple[Bools, Bools]], partner: Column) -> bool:
    """Link the two ends of each message by their time; return True if the clock proves that this pairing is correct.

    On each rank the clock increases, starting at 0 or later, and both ends of a message have the same time. Along a
    channel both sides are in the order of their times, so the i-th send and receive are linked.
    """
    clock, start = program.clock, program.start
    if clock is None or not len(clock):
        return False
    begins, rises = start[:-1][start[:-1] < start[1:]], np.append(True, clock[1:] > clock[:-1])
    rises[begins] = clock[begins] >= 0
    right, pairs = [rises], [(clock, clock), *[(program.communicator,) * 2] * bool(program.communicator.any())]
    pairs += [(program.rank, program.peer), (program.peer, program.rank)]
    for one, two in sides if rises.all() else ():
        at, there, known = one.nonzero()[0], two.nonzero()[0], np.zeros(int(clock.max()) + 1, dtype=PLACE)
        known[clock[at]] = at
        other = known[clock[there]]
        partner[there], partner[other] = other, there
        right += [partner[other] == there, np.array(len(at) == len(there)), *(a[other] == b[there] for a, b in pairs)]
    return all(x.all() for x in right)


def _link(partner: Column, a: Side, b: Side) -> None:
    one, other = a.at, b.at
    if not np.array_equal(a.channel, b.channel):
        width = max(len(one), len(other), 1)
        left, right = (side.channel.astype(np.int64) * width + side.place for side in (a, b))
        _, i, j = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        one, other = one[i], other[j]
    partner[one], partner[other] = other, one
