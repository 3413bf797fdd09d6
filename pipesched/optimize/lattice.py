"""One rank alone, all its orders at once.

    state   how many operations of each sequence of the rank are done
    T       the earliest time at which a state can be reached        from the states with one operation less
    U       the latest time at which it may be left                  from the states with one more

The sequences of a rank are chains of like operations, so its orders are the paths through a lattice of counts, and a
cap cuts most of that away. Whatever the order, time at a state is at least T: one pass decides whether the rank, with
the heads and tails of the whole problem, its memory and its own precedences, can do its work at all, and between
which times each operation can start. What it leaves out are the delays of paths through other ranks; heads and tails
carry those, and what one rank learns moves the heads and tails of the others.

With several chunks a rank this is where lower bounds come from: on a folded placement the last rank alone, which has no
such delays between its chunks, often decides the optimum. Dynamic programming over subsets, Held and Karp, 1962, with
counts for subsets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Bools, Ints
from pipesched.optimize.merge import Merged
from pipesched.optimize.relax import restrict

MOST = 400_000  # states of one rank; beyond, nothing is learnt
_LATE = np.int64(2**60)
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Rank:
    """The sequences of one rank, numbered from 0; before[q]: what operation i of q comes after, operation i of each;
    joins[q]: those of which i + 1 in all have ended before it.
    """

    first: Ints
    length: Ints
    duration: Ints
    peak: Ints
    change: Ints
    cap: int
    before: tuple[tuple[int, ...], ...]
    joins: tuple[tuple[int, ...], ...]

    @property
    def stride(self) -> Ints:
        """One operation more of each sequence, in the number of a state."""
        return np.concatenate([[1], np.cumprod(self.length + 1)[:-1]])

    def counts(self, keys: Ints) -> Ints:
        """By sequence and state, shape (sequences, states)."""
        return keys // self.stride[:, None] % (self.length[:, None] + 1)

    def may(self, counts: Ints, q: int) -> Bools:
        """Whether an operation of q can come next."""
        i = counts[q]
        yes: Bools = (i < self.length[q]) & (self.change @ counts + self.peak[q] <= self.cap)
        for b in self.before[q]:
            yes &= counts[b] > i
        if self.joins[q]:
            yes &= counts[list(self.joins[q])].sum(axis=0) > i
        return yes


def alone(merged: Merged, rank: int) -> Rank:
    """One rank of a problem."""
    problem = merged.problem
    held = list(problem.on[rank])
    number = {q: i for i, q in enumerate(held)}
    part, _ = restrict(problem, (rank,))
    before: list[list[int]] = [[] for _ in held]
    for b, a in zip(part.before.tolist(), part.after.tolist(), strict=True):
        before[a].append(b)
    joins = {number[q]: tuple(number[i] for i in inputs) for q, inputs in merged.joins if q in number}
    change = problem.takes[held] - problem.frees[held]
    return Rank(
        problem.first[held],
        problem.length[held],
        problem.duration[held],
        np.maximum(problem.takes[held], change),
        change,
        int(problem.cap[rank]),
        tuple(map(tuple, before)),
        tuple(joins.get(i, ()) for i in range(len(held))),
    )


def between(rank: Rank, low: Ints, high: Ints, most: int = MOST) -> tuple[Ints, Ints] | None:
    """The times between which operations can start if this rank is to do its work; None if it cannot.

    Args:
        rank: from `alone`.
        low: the earliest start by heads, of every operation of the problem.
        high: the latest start by tails.
        most: states, beyond which low and high come back as they are.
    """
    layers = forward(rank, low, high, most)
    if layers is None:
        return low, high
    found = backward(rank, layers, low, high)
    return None if found is None else (np.maximum(low, found[0]), np.minimum(high, found[1]))


@dataclass(frozen=True, eq=False)
class Layer:
    """States with as many operations done, by number; time: T."""

    keys: Ints
    time: Ints


def forward(rank: Rank, low: Ints, high: Ints, most: int = MOST) -> list[Layer] | None:
    """The states that can be reached, layer by layer, up to a layer without any; None if there are too many."""
    layers = [Layer(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))]
    states = 1
    for _ in range(int(rank.length.sum())):
        here = layers[-1]
        counts = rank.counts(here.keys)
        keys, times = [], []
        for q in range(len(rank.length)):
            may = np.flatnonzero(rank.may(counts, q))
            x = rank.first[q] + counts[q, may]
            start = np.maximum(here.time[may], low[x])
            fits = start <= high[x]
            keys.append(here.keys[may[fits]] + rank.stride[q])
            times.append(start[fits] + rank.duration[q])
        layers.append(_least(np.concatenate(keys), np.concatenate(times)))
        states += len(layers[-1].keys)
        if states > most:
            return None
        if not len(layers[-1].keys):
            break
    return layers


def _least(keys: Ints, times: Ints) -> Layer:
    """Every state once, with its earliest time."""
    order = np.argsort(keys, kind="stable")
    keys, times = keys[order], times[order]
    new = np.flatnonzero(np.diff(keys, prepend=-1))
    return Layer(keys[new], np.minimum.reduceat(times, new) if len(new) else times)


def backward(rank: Rank, layers: list[Layer], low: Ints, high: Ints) -> tuple[Ints, Ints] | None:
    """Earliest and latest starts over all orders that come to the end in time, as wide as can be where nothing is
    known; None if no order does.
    """
    if len(layers) <= rank.length.sum() or not len(layers[-1].keys):
        return None
    least, most = np.full(len(low), _LATE), np.full(len(low), -_LATE)
    late = np.full(1, _LATE)
    for here, after in zip(layers[-2::-1], layers[:0:-1], strict=True):
        counts = rank.counts(here.keys)
        latest = np.full(len(here.keys), -_LATE)
        for q in range(len(rank.length)):
            may = np.flatnonzero(rank.may(counts, q))
            key = here.keys[may] + rank.stride[q]
            there = np.minimum(np.searchsorted(after.keys, key), len(after.keys) - 1)
            x = rank.first[q] + counts[q, may]
            soonest = np.maximum(here.time[may], low[x])
            last = np.minimum(late[there] - rank.duration[q], high[x])
            alive = (after.keys[there] == key) & (soonest <= last)
            np.maximum.at(latest, may[alive], last[alive])
            np.minimum.at(least, x[alive], soonest[alive])
            np.maximum.at(most, x[alive], last[alive])
        late = latest
    mine = np.concatenate([np.arange(a, a + n) for a, n in zip(rank.first, rank.length, strict=True)] or [_NONE])
    others = np.ones(len(low), dtype=np.bool_)
    others[mine] = False
    least[others], most[others] = -_LATE, _LATE
    return (least, most) if late[0] > -_LATE else None
