"""The pairing of sends and receives.

    channel = (communicator, source rank, target rank)
    the i-th send on a channel pairs with the i-th receive on it, whatever they carry

Nobody can take another's message: a channel has one writer and one reader, both sequential. The pairing is therefore
the same in every run, and is found by one stable sort of either side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from pipesched.model.columns import PLACE, Bools, Column, among, fresh, places, small
from pipesched.model.ops import Op
from pipesched.model.schedule import Program


@dataclass(frozen=True, eq=False)
class Side:
    """The sends or the receives by channel, in list order."""

    at: Column
    channel: Column

    @property
    def place(self) -> Column:
        """The index of each one on its channel."""
        return places(fresh(self.channel))

    @classmethod
    def of(cls, program: Program, which: Bools, source: Column, target: Column) -> Self:
        """Return these instructions, if their peers exist; a channel is one number, and SYNCs have no communicators."""
        at = np.flatnonzero(which & (program.peer >= 0) & (program.peer < program.ranks))
        ranks, communicator = np.int64(program.ranks), program.communicator[at] * (program.op[at] != Op.SYNC)
        channel = small((communicator * ranks + source[at]) * ranks + target[at])
        order = np.argsort(channel, kind="stable")
        return cls(at[order].astype(PLACE), channel[order])

    def apart(self, by: int) -> tuple[Column, Column]:
        """Return the pairs on one channel whose second is `by` places after the first."""
        after = np.flatnonzero(self.place >= by)
        return self.at[after - by], self.at[after]


@dataclass(frozen=True, eq=False)
class Pairing:
    """partner: the index of the other end of a send, receive or SYNC, or -1; shape (instructions,). proved: they were
    paired by the clock, so all of them can happen in the order of their instants.
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
    proved = _rising(program) and all(_by_clock(program, partner, *both) for both in sides)
    if not proved:
        partner[:] = -1
    for one, two in () if proved else sides:
        _link(partner, Side.of(program, one, rank, peer), Side.of(program, two, peer, rank))
    return Pairing(program, partner, proved)


def _rising(program: Program) -> bool:
    """Return True if the program has a clock that rises on each rank, from 0 or later."""
    clock, start = program.clock, program.start
    if clock is None or not len(clock):
        return False
    begins = start[:-1][start[:-1] < start[1:]]
    rises = np.append(True, clock[1:] > clock[:-1])
    rises[begins] = clock[begins] >= 0
    return bool(rises.all())


def _by_clock(program: Program, partner: Column, one: Bools, two: Bools) -> bool:
    """Link the two ends of each message by their instant; return True if all of a rising clock are linked so.

    Along a channel both sides have the order of their instants, so the i-th send and the i-th receive are linked.
    """
    clock, at, there = program.clock, one.nonzero()[0].astype(PLACE), two.nonzero()[0].astype(PLACE)
    assert clock is not None
    if len(at) != len(there):
        return False
    known = np.zeros(int(clock.max()) + 1, dtype=PLACE)
    known[clock[at]] = at
    at = known[clock[there]]
    partner[there], partner[at] = at, there
    columns = [(clock, clock), (program.communicator,) * 2, (program.rank, program.peer), (program.peer, program.rank)]
    return bool((partner[at] == there).all()) and all((a[at] == b[there]).all() for a, b in columns)


def _link(partner: Column, a: Side, b: Side) -> None:
    one, other = a.at, b.at
    if not np.array_equal(a.channel, b.channel):
        width = max(len(one), len(other), 1)
        left, right = (side.channel.astype(np.int64) * width + side.place for side in (a, b))
        _, i, j = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        one, other = one[i], other[j]
    partner[one], partner[other] = other, one
