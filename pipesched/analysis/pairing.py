"""Which send pairs with which receive.

    channel = (communicator, source rank, target rank)
    the i-th send on a channel pairs with the i-th receive on it, whatever they carry

Nobody can steal a message: a channel has one writer and one reader, both sequential. The pairing is therefore the
same in every run, and is found by one stable sort of either side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import PLACE, Column, Ints, fresh, places, small
from pipesched.model.ops import Op
from pipesched.model.schedule import Program


@dataclass(frozen=True, eq=False)
class Side:
    """The sends or the receives by channel, in list order. place: of each one on its channel."""

    at: Column
    place: Column
    channel: Column

    @classmethod
    def of(cls, at: Ints, channel: Ints) -> Side:
        channel = small(channel)
        order = np.argsort(channel, kind="stable")
        channel = channel[order]
        return cls(at[order].astype(PLACE), places(fresh(channel)), channel)

    def apart(self, by: int) -> tuple[Column, Column]:
        """Pairs of one channel, the second so many places after the first."""
        after = np.flatnonzero(self.place >= by)
        return self.at[after - by], self.at[after]


@dataclass(frozen=True, eq=False)
class Pairing:
    """partner: the index of the other end of a send, receive or SYNC, or -1; shape (instructions,)."""

    partner: Column
    sends: Side
    receives: Side


def pair(program: Program) -> Pairing:
    """Pair all sends with receives, and SYNCs with SYNCs."""
    partner = np.full(len(program), -1, dtype=PLACE)
    valid = (program.peer >= 0) & (program.peer < program.ranks)
    sends, receives = np.flatnonzero(program.sends & valid), np.flatnonzero(program.receives & valid)
    made = Pairing(
        partner,
        Side.of(sends, _channel(program, sends, program.rank, program.peer)),
        Side.of(receives, _channel(program, receives, program.peer, program.rank)),
    )
    _link(partner, made.sends, made.receives)
    syncs = np.flatnonzero((program.op == Op.SYNC) & valid)
    if len(syncs):
        rank, peer = program.rank[syncs].astype(np.int64), program.peer[syncs]
        both = np.minimum(rank, peer) * program.ranks + np.maximum(rank, peer)
        low, high = (Side.of(syncs[end], both[end]) for end in (rank < peer, rank > peer))
        _link(partner, low, high)
    return made


def _channel(program: Program, index: Ints, source: Column, target: Column) -> Ints:
    """The channel of each instruction as one number."""
    ranks = np.int64(program.ranks)
    return np.asarray((program.communicator[index] * ranks + source[index]) * ranks + target[index], dtype=np.int64)


def _link(partner: Column, a: Side, b: Side) -> None:
    one, other = a.at, b.at
    if not np.array_equal(a.channel, b.channel):
        width = max(len(one), len(other), 1)
        left, right = (side.channel.astype(np.int64) * width + side.place for side in (a, b))
        _, i, j = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        one, other = one[i], other[j]
    partner[one], partner[other] = other, one
