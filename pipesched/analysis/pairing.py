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

from pipesched.model.columns import PLACE, Bools, Column, fresh, places, small
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
    """partner: the index of the other end of a send, receive or SYNC, or -1; shape (instructions,)."""

    program: Program
    partner: Column

    @property
    def sends(self) -> Side:
        return Side.of(self.program, self.program.sends, self.program.rank, self.program.peer)

    @property
    def receives(self) -> Side:
        return Side.of(self.program, self.program.receives, self.program.peer, self.program.rank)


def pair(program: Program) -> Pairing:
    """Pair all sends with receives, and SYNCs with SYNCs."""
    made = Pairing(program, np.full(len(program), -1, dtype=PLACE))
    _link(made.partner, made.sends, made.receives)
    rank, peer, sync = program.rank, program.peer, program.op == Op.SYNC
    if sync.any():
        low, high = (
            Side.of(program, sync & (rank < peer), rank, peer),
            Side.of(program, sync & (rank > peer), peer, rank),
        )
        _link(made.partner, low, high)
    return made


def _link(partner: Column, a: Side, b: Side) -> None:
    one, other = a.at, b.at
    if not np.array_equal(a.channel, b.channel):
        width = max(len(one), len(other), 1)
        left, right = (side.channel.astype(np.int64) * width + side.place for side in (a, b))
        _, i, j = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        one, other = one[i], other[j]
    partner[one], partner[other] = other, one
