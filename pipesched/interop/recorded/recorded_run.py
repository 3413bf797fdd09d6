"""What the ranks of a real run posted, against the plan: the i-th message of each channel is the i-th that is planned.

    plan      rank 0 > rank 1   F0.0 F0.1 F0.2 |            n messages a step
    recorded  rank 0 > rank 1   F0.0 F0.1 F0.2 | F0.0 F0.1      entry i is message i mod n of step i div n

Each side of a channel is held against the plan by itself, so that a message with different names at its two ends is
found at the end that left the plan. A record without names is held by count, order and size alone.

Where a run stops, a rank waits in the first message that is not over whose other end is not posted, else in the
first that is queued behind another at its other end:

    rank 0  recv F1.0 < 1, not over ──> rank 1 has not posted it: it waits in ──> …      a cycle, or a rank that posts
                                                                                         nothing more
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesched.model.columns import Bools, Column, Ints, among, fresh, places, rank_column
from pipesched.model.ops import SENDS
from pipesched.model.schedule import Program

SCHEDULED, STARTED, COMPLETED = range(3)
STATES = ("scheduled", "started", "completed")


@dataclass(frozen=True, eq=False)
class Recorded:
    """Messages that ranks posted, one entry each, in order; the ranks are those of the pipeline.

    op, stage, microbatch: as in `Program`; where it has no names, op only tells sends from receives. communicator: as
    in the plan. size: a number for each size, -1 where it is not known; `sizes` are their texts. state: how far it is,
    -1 where it is not known: then it is over if its other end is posted. entry: what the record calls it. absent: ranks
    without a record. blocking: a message is recorded when it is over, and not when it is posted. job: the rank of each
    rank in the whole job. cut: that the first messages are lost, so that none can be counted: then only those that are
    not over are here, which pair from the first one on.
    """

    by: str
    op: Column
    stage: Column
    microbatch: Column
    peer: Column
    communicator: Column
    size: Column
    state: Column
    entry: Column
    start: Ints
    sizes: tuple[str, ...] = ()
    named: bool = True
    blocking: bool = False
    absent: tuple[int, ...] = ()
    job: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    cut: str = ""

    @property
    def ranks(self) -> int:
        return len(self.start) - 1

    @cached_property
    def rank(self) -> Column:
        return rank_column(self.start)


@dataclass(frozen=True, eq=False)
class _Sides:
    """The sides of the channels, sends and receives apart. key: of each message; position: its place on its side."""

    index: Ints
    key: Ints
    position: Ints


def _sides(order: Program | Recorded, index: Ints, ranks: int) -> _Sides:
    send, rank = among(order.op[index], SENDS), order.rank[index].astype(np.int64)
    source, target = np.where(send, (rank, order.peer[index]), (order.peer[index], rank))
    key = 2 * ((order.communicator[index] * np.int64(ranks) + source) * ranks + target) + ~send
    key[(order.peer[index] < 0) | (order.peer[index] >= ranks)] = -1
    by = np.argsort(key, kind="stable")
    position = np.empty(len(by), dtype=np.int64)
    position[by] = places(fresh(key[by]))
    return _Sides(index, key, position)


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank that does not go on. entry: the message that it waits in, or -1 where nothing that it posted is open.

    planned: the instruction of the plan, or -1. other: whom it waits for, or -1. queued: the other end is posted, and
    queued behind another message there.
    """

    rank: int
    entry: int
    planned: int
    other: int
    queued: bool = False


@dataclass(frozen=True, eq=False)
class Held:
    """A recorded run held against a program. planned: the instruction of each entry, -1 where the plan has no such
    channel. position: of each entry on its side of its channel. partner: the entry of its other end, or -1.
    """

    recorded: Recorded
    program: Program

    @cached_property
    def plan(self) -> _Sides:
        index = np.flatnonzero(self.program.sends | self.program.receives)
        return _sides(self.program, index, self.program.ranks)

    @cached_property
    def posted(self) -> _Sides:
        return _sides(self.recorded, np.arange(len(self.recorded.op)), self.program.ranks)

    @cached_property
    def _channels(self) -> tuple[Ints, Ints, Ints]:
        """The sides of the plan: their keys, where each begins in the plan by side, how many messages a step has."""
        keys, first, count = np.unique(np.sort(self.plan.key), return_index=True, return_counts=True)
        return keys, first, count

    @cached_property
    def _side(self) -> tuple[Ints, Bools]:
        """The side of each entry, and whether the plan has it."""
        keys, _, _ = self._channels
        at = np.minimum(np.searchsorted(keys, self.posted.key), len(keys) - 1)
        return at, keys[at] == self.posted.key

    @cached_property
    def planned(self) -> Ints:
        if self.recorded.cut:
            return np.full(len(self.recorded.op), -1, dtype=np.int64)
        _, first, count = self._channels
        at, known = self._side
        by = self.plan.index[np.argsort(self.plan.key, kind="stable")]
        return np.where(known, by[first[at] + self.posted.position % count[at]], -1)

    @property
    def sent(self) -> int:
        return int(np.count_nonzero(among(self.recorded.op, SENDS)))

    @property
    def position(self) -> Ints:
        return self.posted.position

    @cached_property
    def step(self) -> Ints:
        """The step of each entry."""
        return self.posted.position // self.a_step

    @cached_property
    def a_step(self) -> Ints:
        """How many messages a step has on the side of each entry."""
        return self._channels[2][self._side[0]]

    @cached_property
    def partner(self) -> Ints:
        key, position = self.posted.key, self.posted.position
        wide = int(position.max(initial=0)) + 1
        send = key % 2 == 0
        ends = [np.flatnonzero(send), np.flatnonzero(~send)]
        partner = np.full(len(key), -1, dtype=np.int64)
        one, other = ((key[end] // 2) * wide + position[end] for end in ends)
        _, i, j = np.intersect1d(one, other, assume_unique=True, return_indices=True)
        partner[ends[0][i]], partner[ends[1][j]] = ends[1][j], ends[0][i]
        return partner

    @cached_property
    def _counts(self) -> Ints:
        """How many entries each side of the plan has."""
        at, known = self._side
        return np.bincount(at[known], minlength=len(self._channels[0]))

    @cached_property
    def steps(self) -> int:
        """The steps that were begun."""
        count = self._channels[2]
        return int((-(-self._counts // count)).max(initial=0))

    @cached_property
    def _done(self) -> Ints:
        """How many whole steps each rank has posted."""
        keys, _, count = self._channels
        steps = np.full(self.program.ranks, self.steps, dtype=np.int64)
        at = np.searchsorted(keys, self.plan.key)
        np.minimum.at(steps, self.program.rank[self.plan.index], (self._counts // count)[at])
        return steps

    @property
    def stands_in(self) -> int:
        """The number of the first step that is not over, from 1."""
        return min(int(self._done.min()) + 1, self.steps)

    @cached_property
    def unposted(self) -> Bools:
        """By message of the plan: it is not posted in the step that its rank is in."""
        keys, _, count = self._channels
        at = np.searchsorted(keys, self.plan.key)
        done = self._done[self.program.rank[self.plan.index]]
        return (done < self.steps) & (self.plan.position >= self._counts[at] - done * count[at])

    @cached_property
    def next(self) -> Ints:
        """By rank, the first message of the plan that it did not post, or -1."""
        found = np.full(self.program.ranks, -1, dtype=np.int64)
        if not self.recorded.cut:
            missing = self.plan.index[self.unposted][::-1]
            found[self.program.rank[missing]] = missing
        return found

    @cached_property
    def open(self) -> Bools:
        """Which entries are not over: by their state, or because their other end is not posted. Of what went to a rank
        without a record only its sender can tell, by going on.
        """
        made = self.recorded
        known = ~np.isin(made.peer, made.absent) | (self.next[made.rank] >= 0)
        return np.where(made.state < 0, (self.partner < 0) & known, made.state < COMPLETED)

    @property
    def over(self) -> bool:
        """Whether whole steps were run."""
        return bool((self.next < 0).all()) and not self.open[self._side[1]].any()

    @cached_property
    def misplaced(self) -> Ints:
        """By rank, the first entry that is on another channel than the message at its place of the list, or -1. The
        messages of a batch have no order among themselves.
        """
        made, plan = self.recorded, self.plan
        held = np.bincount(self.program.rank[plan.index], minlength=self.program.ranks)
        begin = np.cumsum(held) - held
        place = np.arange(len(made.op)) - made.start[made.rank]
        size = np.maximum(held[made.rank], 1)
        slot = np.minimum(begin[made.rank] + place % size, len(plan.index) - 1)
        group = self.program.group[plan.index]
        batch = (place // size) * len(group) + np.cumsum((group < 0) | fresh(group))[slot]
        meant = np.lexsort((plan.key[slot], batch, made.rank))
        seen = np.lexsort((self.posted.key, batch, made.rank))
        wrong = seen[plan.key[slot][meant] != self.posted.key[seen]][::-1]
        found = np.full(self.program.ranks, -1, dtype=np.int64)
        found[made.rank[wrong]] = wrong
        return found

    def waits(self) -> Iterator[Wait]:
        """Of each rank that does not go on, or has no record, what it waits for."""
        front: dict[int, int] = {}
        opened = np.flatnonzero(self.open & self._side[1])
        for i in opened.tolist():
            front.setdefault(int(self.recorded.rank[i]), i)
        alone = opened[self.partner[opened] < 0]
        waiting = dict(zip(self.recorded.rank[alone[::-1]].tolist(), alone[::-1].tolist(), strict=True))
        for rank in range(self.program.ranks):
            after = int(self.next[rank])
            if rank in self.recorded.absent:
                yield Wait(rank, -1, after, -1)
            elif rank in waiting:
                entry = waiting[rank]
                yield Wait(rank, entry, int(self.planned[entry]), int(self.recorded.peer[entry]))
            elif rank in front:
                yield self._queued(rank, front)
            elif after >= 0:
                under_way = self.recorded.blocking and self._arrives_not(after)
                yield Wait(rank, -1, after, int(self.program.peer[after]) if under_way else -1)

    def _queued(self, rank: int, front: dict[int, int]) -> Wait:
        """A rank all of whose open messages have both ends posted."""
        entry = front[rank]
        other = int(self.recorded.peer[entry])
        behind = front.get(other, -1) not in (-1, int(self.partner[entry]))
        return Wait(rank, entry, int(self.planned[entry]), other if behind else -1, queued=True)

    def _arrives_not(self, index: int) -> bool:
        """Whether the next message of a rank is a receive of what its sender has not sent."""
        if not self.program.receives[index]:
            return False
        at = int(np.searchsorted(self.plan.index, index))
        mine, theirs = (self._count_of(int(key)) for key in (self.plan.key[at], self.plan.key[at] ^ 1))
        return theirs <= mine

    def _count_of(self, key: int) -> int:
        keys = self._channels[0]
        at = int(np.searchsorted(keys, key))
        return int(self._counts[at]) if at < len(keys) and keys[at] == key else 0
