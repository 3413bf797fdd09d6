"""Which send pairs with which receive.

    channel = (communicator, source rank, target rank)
    the i-th send on a channel pairs with the i-th receive on it, whatever they carry

Nobody can steal a message: a channel has one writer and one reader, both sequential. The pairing is therefore the
same in every run, and is found by one stable sort of either side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Column, Ints, fresh, places
from pipesched.model.ops import Op
from pipesched.model.schedule import Program


@dataclass(frozen=True, eq=False)
class Pairing:
    """partner: the index of the other end of a send, receive or SYNC, or -1; shape (instructions,).

    channel, position: of a send or receive, its channel's number and its place on it; -1 elsewhere.
    """

    partner: Ints
    channel: Ints
    position: Ints


def pair(program: Program) -> Pairing:
    """Pair all sends with receives, and SYNCs with SYNCs."""
    size = len(program)
    pairing = Pairing(*(np.full(size, -1, dtype=np.int64) for _ in range(3)))
    valid = (program.peer >= 0) & (program.peer < program.ranks)
    sends, receives = np.flatnonzero(program.sends & valid), np.flatnonzero(program.receives & valid)
    left = _sorted(sends, _channel(program, sends, program.rank, program.peer))
    right = _sorted(receives, _channel(program, receives, program.peer, program.rank))
    for index, key, position in (left, right):
        pairing.channel[index] = key
        pairing.position[index] = position
    _link(pairing.partner, *left, *right)
    syncs = np.flatnonzero((program.op == Op.SYNC) & valid)
    if len(syncs):
        rank, peer = program.rank[syncs].astype(np.int64), program.peer[syncs]
        both = np.minimum(rank, peer) * program.ranks + np.maximum(rank, peer)
        low, high = rank < peer, rank > peer
        _link(pairing.partner, *_sorted(syncs[low], both[low]), *_sorted(syncs[high], both[high]))
    return pairing


def _channel(program: Program, index: Ints, source: Column, target: Column) -> Ints:
    """The channel of each instruction as one number."""
    ranks = np.int64(program.ranks)
    return np.asarray((program.communicator[index] * ranks + source[index]) * ranks + target[index], dtype=np.int64)


def _link(partner: Ints, a: Ints, a_key: Ints, a_position: Ints, b: Ints, b_key: Ints, b_position: Ints) -> None:
    if np.array_equal(a_key, b_key):
        partner[a], partner[b] = b, a
        return
    width = max(len(a), len(b), 1)
    _, i, j = np.intersect1d(
        a_key * width + a_position, b_key * width + b_position, assume_unique=True, return_indices=True
    )
    partner[a[i]], partner[b[j]] = b[j], a[i]


def _sorted(index: Ints, key: Ints) -> tuple[Ints, Ints, Ints]:
    """The instructions by channel, in list order; their channels; their places on the channel."""
    order = np.argsort(_small(key), kind="stable")
    index, chosen = index[order], key[order]
    return index, chosen, places(fresh(chosen))


def _small(key: Ints) -> Column:
    """16 bits where they do, since numpy sorts those by radix."""
    return key.astype(np.uint16) if len(key) and int(key.max()) < 2**16 else key
