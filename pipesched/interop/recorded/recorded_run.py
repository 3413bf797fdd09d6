"""Messages that a real run posted, compared with the plan: the i-th message of a channel with the i-th planned message
of that channel.

    plan      rank 0 > rank 1   F0.0 F0.1 F0.2 |            n messages per step
    recorded  rank 0 > rank 1   F0.0 F0.1 F0.2 | F0.0 F0.1      entry i is message i mod n of step i div n

Each side of a channel is compared with the plan separately, so that a message with different names at its two ends is
found at the end that deviated from the plan. A record without names is compared by count, order and size only.

If the run stops, each rank waits in its first unfinished message whose other end was not posted; if there is no such
message, in the first one that is queued behind another message at its other end:

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
    """The messages that the ranks of a pipeline posted, one entry per message, in the order of posting.

    op, stage, microbatch: as in `Program`; in a record without names, op only distinguishes sends from receives.
    communicator: as in the plan. size: index into `sizes` (texts), -1 if unknown. state: index into `STATES`, -1 if
    unknown; a message of unknown state counts as finished if its other end is posted. entry: number of the message in
    the record. absent: ranks without a record. blocking: True if a message is recorded when it finishes, not when it is
    posted. job: for each rank of the pipeline, its rank in the whole job. cut: a description of the lost first
    messages, or empty. Messages of such a record cannot be counted: only unfinished messages are kept, and they are
    paired from the first one on.
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
    """Messages, each on one side of a channel: the side of its sends or of its receives. key: the number of the side,
    -1 if the peer is unknown. position: the number of earlier messages on that side.
    """

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
    """A rank that is blocked. entry: the message in which it waits, -1 if all messages that it posted have finished.

    planned: the instruction of the plan, or -1. other: the rank for which it waits, or -1. queued: True if the other
    end of the message is posted; if other >= 0, that end is queued behind another message.
    """

    rank: int
    entry: int
    planned: int
    other: int
    queued: bool = False


@dataclass(frozen=True, eq=False)
class Held:
    """A recorded run compared with a program. For each entry, planned: the planned instruction, -1 if the plan lacks
    its channel; position: its position on its side of the channel; partner: the entry at the other end, or -1.
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
        """For each side of the plan's channels: key, first index in the plan sorted by side, messages per step."""
        keys, first, count = np.unique(np.sort(self.plan.key), return_index=True, return_counts=True)
        return keys, first, count

    @cached_property
    def _side(self) -> tuple[Ints, Bools]:
        """The index of each entry's side in `_channels`, and True for each entry whose side is in the plan."""
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
        """For each entry, the number of its step, from 0."""
        return self.posted.position // self.a_step

    @cached_property
    def a_step(self) -> Ints:
        """For each entry, the number of messages per step on its side of the channel."""
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
        """For each side of the plan's channels, the number of entries."""
        at, known = self._side
        return np.bincount(at[known], minlength=len(self._channels[0]))

    @cached_property
    def steps(self) -> int:
        """The number of started steps."""
        count = self._channels[2]
        return int((-(-self._counts // count)).max(initial=0))

    @cached_property
    def _done(self) -> Ints:
        """For each rank, the number of whole steps that it has posted."""
        keys, _, count = self._channels
        steps = np.full(self.program.ranks, self.steps, dtype=np.int64)
        at = np.searchsorted(keys, self.plan.key)
        np.minimum.at(steps, self.program.rank[self.plan.index], (self._counts // count)[at])
        return steps

    @property
    def stands_in(self) -> int:
        """The number of the first unfinished step, from 1."""
        return min(int(self._done.min()) + 1, self.steps)

    @cached_property
    def unposted(self) -> Bools:
        """For each message of the plan, True if its rank did not post it in the rank's current step."""
        keys, _, count = self._channels
        at = np.searchsorted(keys, self.plan.key)
        done = self._done[self.program.rank[self.plan.index]]
        return (done < self.steps) & (self.plan.position >= self._counts[at] - done * count[at])

    @cached_property
    def next(self) -> Ints:
        """For each rank, the first planned message that it did not post, or -1."""
        found = np.full(self.program.ranks, -1, dtype=np.int64)
        if not self.recorded.cut:
            missing = self.plan.index[self.unposted][::-1]
            found[self.program.rank[missing]] = missing
        return found

    @cached_property
    def open(self) -> Bools:
        """True for each unfinished entry: by its state, or because its other end is not posted.

        A message to or from a rank without a record counts as finished if its own rank posted all of its messages.
        """
        made = self.recorded
        known = ~np.isin(made.peer, made.absent) | (self.next[made.rank] >= 0)
        return np.where(made.state < 0, (self.partner < 0) & known, made.state < COMPLETED)

    @property
    def over(self) -> bool:
        """True if every started step finished."""
        return bool((self.next < 0).all()) and not self.open[self._side[1]].any()

    @cached_property
    def misplaced(self) -> Ints:
        """For each rank, the first entry on a different channel from the planned message at its position, or -1.

        The order of messages within a batch does not matter.
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
        """Yield a Wait for each rank that is blocked or has no record."""
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
        """Return the wait of a rank whose unfinished messages all have both ends posted."""
        entry = front[rank]
        other = int(self.recorded.peer[entry])
        behind = front.get(other, -1) not in (-1, int(self.partner[entry]))
        return Wait(rank, entry, int(self.planned[entry]), other if behind else -1, queued=True)

    def _arrives_not(self, index: int) -> bool:
        """Return True if instruction `index`, the next of its rank, is a receive whose message is not yet sent."""
        if not self.program.receives[index]:
            return False
        at = int(np.searchsorted(self.plan.index, index))
        mine, theirs = (self._count_of(int(key)) for key in (self.plan.key[at], self.plan.key[at] ^ 1))
        return theirs <= mine

    def _count_of(self, key: int) -> int:
        keys = self._channels[0]
        at = int(np.searchsorted(keys, key))
        return int(self._counts[at]) if at < len(keys) and keys[at] == key else 0
