"""Finds the first rank that left the common order of a job: its call differs from the calls of the ranks that should
make the same calls.

    rank 4   all_reduce in tp   all_reduce in dp   send +1 …       ranks in the same role (place in a pipeline) make the
    rank 5   all_reduce in tp   send +1 …                          same calls: 4, 6 and 7 agree, and 5 left their order
    rank 6   all_reduce in tp   all_reduce in dp   send +1 …

These criteria decide, in this order: the majority of the ranks in the same role; the rank's own earlier steps; its
messages, since in every step a rank sends as many to a neighbour as it receives from it; and, if two ranks differ,
which sequence of calls is rarer in the job. A rank that merely stops early has not left the order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesched.interop.recorded.blocked import Blocked
from pipesched.interop.recorded.job import COLLECTIVE, RECEIVE, SEND, Job, listed, step_of
from pipesched.model.columns import Bools, Column

_SUSPECTS = 64  # most ranks with a history to be compared
_NEAR = 10  # calls within which two that are exchanged are found


@dataclass(frozen=True, slots=True)
class Left:
    """A rank that left the common order. at: the index of its first call that differs. meant: the calls of the common
    order from there on, as far as they are known. why: the evidence.
    """

    rank: int
    at: int
    meant: tuple[int, ...]
    why: str


@dataclass(frozen=True, eq=False)
class Order:
    """The search for the rank that left the common order."""

    blocked: Blocked

    @property
    def job(self) -> Job:
        return self.blocked.job

    def left(self) -> Left | None:
        """Return the first rank that left the common order; None if all ranks keep to the known part of it."""
        laws = [self._by_most(), self._by_messages(), self._by_two()]
        for each in laws if self.blocked.roots else (*laws, self._by_meeting(), self._by_history(), self._by_rarity()):
            first = min(
                each, key=lambda left: (*self._times(left.at), self.job.record[left.at], left.rank), default=None
            )
            if first is not None:
                return first
        return None

    @cached_property
    def _roles(self) -> list[list[int]]:
        """The indices of the ranks, grouped by their positions in pipelines; a pipeline is a group with messages."""
        job = self.job
        messages = np.flatnonzero(job.way != COLLECTIVE)
        key = np.unique(job.owner[messages].astype(np.int64) * len(job.groups) + job.group[messages])
        places: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for at, group in zip(*(x.tolist() for x in np.divmod(key, len(job.groups))), strict=True):
            ranks = job.groups[group].ranks
            if job.ranks[at] in ranks:
                places[at].append((len(ranks), ranks.index(job.ranks[at])))
        found: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
        for at in range(len(job.ranks)):
            found[tuple(places[at])].append(at)
        return [*found.values()]

    def _rows(self, role: Sequence[int]) -> tuple[Column, int]:
        """Return the calls of ranks, one row per rank (-1: no call), and the number of the first column.

        A column is a position in the record or, if the first calls were overwritten, the recorder's number.
        """
        job = self.job
        if not any(map(job.cut, role)):
            lengths = [int(job.start[at + 1] - job.start[at]) for at in role]
            made = np.full((len(role), max(lengths)), -1, dtype=np.int32)
            for row, at in enumerate(role):
                made[row, : lengths[row]] = job.call[job.of(at)]
            return made, 0
        of = [job.of(at) for at in role if job.start[at] < job.start[at + 1]]
        low = min((int(job.record[x.start]) for x in of), default=0)
        high = max((int(job.record[x.stop - 1]) for x in of), default=-1) + 1
        made = np.full((len(role), high - low), -1, dtype=np.int32)
        for row, at in enumerate(role):
            mine = job.of(at)
            made[row, job.record[mine] - low] = job.call[mine]
        return made, low

    def _by_most(self) -> Iterator[Left]:
        """Yield, for each position in a pipeline, the first rank that makes a different call from most ranks there."""
        for role in self._roles:
            if len(role) < 3:
                continue
            rows, low = self._rows(role)
            alive = (rows >= 0).sum(axis=0)
            usual = np.take_along_axis(
                np.sort(rows, axis=0), (len(role) - alive + alive // 2)[None].clip(max=len(role) - 1), 0
            )[0]
            agreed = ((rows == usual) & (rows >= 0)).sum(axis=0)
            differs = (rows >= 0) & (rows != usual) & (2 * agreed > alive) & (agreed > 1)
            first = np.where(differs.any(axis=1), differs.argmax(axis=1), rows.shape[1])
            row = int(first.argmin())
            if (column := int(first[row])) < rows.shape[1]:
                at = self._entry(role, row, column + low)
                with_it = [self.job.ranks[x] for y, x in enumerate(role) if rows[y, column] == usual[column]]
                known = tuple(x for x in usual[column : column + _NEAR].tolist() if x >= 0)
                yield Left(
                    self.job.ranks[role[row]],
                    at,
                    known,
                    f"ranks {listed(with_it)}, which have the same role, made a different call",
                )

    def _entry(self, role: Sequence[int], row: int, column: int) -> int:
        """Return the index of the call in a row and column of `_rows`."""
        mine = self.job.of(role[row])
        if not any(map(self.job.cut, role)):
            return int(mine.start) + column
        return int(mine.start) + int(np.searchsorted(self.job.record[mine], column))

    @cached_property
    def _suspects(self) -> list[int]:
        """The indices of the ranks to examine: in a large job, only roots, the wait cycle, and ranks that wait for
        these.
        """
        job = self.job
        if len(job.ranks) <= _SUSPECTS:
            return [*range(len(job.ranks))]
        near = [*self.blocked.roots, *self.blocked.cycle()]
        near += [other for rank in near for other in self.blocked.waiting_for(rank)]
        return [job.place[rank] for rank in dict.fromkeys(near) if rank in job.place][:_SUSPECTS]

    def _by_history(self) -> Iterator[Left]:
        """Yield the ranks of the wait cycle whose calls differ from those of their own previous step."""
        for at in [self.job.place[rank] for rank in self.blocked.cycle()]:
            mine = self.job.of(at)
            row = self.job.call[mine]
            period, first = step_of(row)
            if period and first < len(row):
                meant = tuple(row[first - period : first - period + _NEAR].tolist())
                yield Left(
                    self.job.ranks[at],
                    mine.start + first,
                    meant,
                    f"in the previous step, {period} calls earlier, it made a different call",
                )

    def _by_messages(self) -> Iterator[Left]:
        """Yield the ranks whose sends to a neighbour and receives from it do not match in number, and the ranks that
        exchange only one message with a rank that is not a neighbour.
        """
        job = self.job
        for at in self._suspects:
            mine = job.of(at)
            way, peer = job.way[mine], job.peer[mine]
            others = np.unique(peer[way != COLLECTIVE]).tolist()
            for other in others if not job.cut(at) else ():
                ahead = np.cumsum(np.where(peer == other, (way == SEND) * 1 - (way == RECEIVE) * 1, 0))
                ours = np.flatnonzero((peer == other) & (way != COLLECTIVE))
                first = 1 if way[ours[0]] == SEND else -1
                wrong = np.flatnonzero((ahead * first < 0) | ((ahead != 0) & self._ends[mine]))
                if len(wrong):
                    yield Left(job.ranks[at], mine.start + int(wrong[0]), (), self._counted(mine, int(wrong[0]), other))
                elif len(ours) == 1 and len(others) > 2 and not job.over[mine.start + ours[0]]:
                    i = mine.start + int(ours[0])
                    yield Left(job.ranks[at], i, (), "these two ranks exchange no other message")

    @cached_property
    def _ends(self) -> Bools:
        """True for each collective at the end of a step, where most ranks have received as many messages as sent."""
        job = self.job
        even = np.zeros(len(job.call), dtype=np.bool_)
        for at in range(len(job.ranks)):
            mine = job.of(at)
            way, ahead = job.way[mine], np.zeros(mine.stop - mine.start, dtype=np.int64)
            for other in np.unique(job.peer[mine][way != COLLECTIVE]).tolist():
                ours = job.peer[mine] == other
                ahead += np.abs(np.cumsum(np.where(ours, (way == SEND) * 1 - (way == RECEIVE) * 1, 0)))
            even[mine] = ahead == 0
        times = np.bincount(job.call, minlength=len(job.calls))
        share = np.bincount(job.call, even, len(job.calls)) / np.maximum(times, 1)
        found: Bools = (job.way == COLLECTIVE) & (share > 0.5)[job.call] & (times > 2)[job.call]
        return found

    def _counted(self, mine: slice, until: int, other: int) -> str:
        way, peer = (x[mine][: until + 1] for x in (self.job.way, self.job.peer))
        sent, taken = (int(((peer == other) & (way == x)).sum()) for x in (SEND, RECEIVE))
        return f"up to that point it sent {sent} messages to rank {other} and received {taken} from it"

    def _by_meeting(self) -> Iterator[Left]:
        """Yield, for each collective in the wait cycle, its minority: the ranks that called it or that did not."""
        job, cycle = self.job, self.blocked.cycle()
        for rank in cycle:
            wait = self.blocked.waits[rank]
            if job.way[wait.call] != COLLECTIVE or not wait.uncalled:
                continue
            members = len(job.groups[job.group[wait.call]].ranks)
            few = [x for x in wait.uncalled if x in cycle] if 2 * len(wait.uncalled) < members else [rank]
            for one in few if 2 * len(wait.uncalled) != members else ():
                calls = "called it" if one == rank else "did not call it"
                said = (
                    f"of {members} ranks, {members - len(wait.uncalled) if one == rank else len(wait.uncalled)} {calls}"
                )
                yield Left(one, self.blocked.waits[one].call, (), said)

    def _by_rarity(self) -> Iterator[Left]:
        """Yield, for each rank of the wait cycle, the rarest of its last four calls."""
        for rank in self.blocked.cycle():
            last = self.blocked.waits[rank].call
            start = int(self.job.start[self.job.place[rank]])
            i = min(range(max(start, last - 3), last + 1), key=self._times)
            yield Left(rank, i, (), "no other rank makes these calls in this order")

    def _by_two(self) -> Iterator[Left]:
        """For each role in which just two ranks differ, yield the rank whose call is rarer in the job."""
        for role in self._roles:
            if len(role) != 2:
                continue
            rows, low = self._rows(role)
            differs = np.flatnonzero((rows[0] != rows[1]) & (rows >= 0).all(axis=0))
            if len(differs):
                both = [self._entry(role, row, int(differs[0]) + low) for row in (0, 1)]
                odd = int(self._times(both[1]) < self._times(both[0]))
                meant = tuple(rows[1 - odd, differs[0] : differs[0] + _NEAR].tolist())
                other = self.job.ranks[role[1 - odd]]
                yield Left(
                    self.job.ranks[role[odd]], both[odd], meant, f"rank {other} in the same role made a different call"
                )

    def _times(self, i: int) -> tuple[int, int]:
        """Return how often a call follows its predecessor in the whole job, and how often it occurs."""
        start = int(self.job.start[self.job.owner[i]])
        before = int(self.job.call[i - 1]) if i > start else -1
        return self._pairs[before, int(self.job.call[i])], int((self.job.call == self.job.call[i]).sum())

    @cached_property
    def _pairs(self) -> Mapping[tuple[int, int], int]:
        job = self.job
        before = np.concatenate([[-1], job.call[:-1]])
        before[job.start[:-1][job.start[:-1] < len(before)]] = -1
        many = len(job.calls) + 1
        key, times = np.unique((before + np.int64(1)) * many + job.call, return_counts=True)
        return {(a - 1, b): n for a, b, n in zip(*(x.tolist() for x in (*np.divmod(key, many), times)), strict=True)}


def cause(job: Job, left: Left) -> str:
    """Infer the cause from the next calls: a missing or extra call, two swapped calls, or a different peer or group."""
    mine = job.of(job.place[left.rank])
    made, meant = job.call[left.at : min(left.at + _NEAR, mine.stop)].tolist(), [*left.meant]
    if not meant:
        return "a message was left out, or went to another rank"
    a, b = job.calls[made[0]], job.calls[meant[0]]
    if made[: len(meant) - 1] == meant[1 : len(made) + 1]:
        return f"it left out {b}"
    for k in range(1, len(meant)):
        if made == [meant[k], *meant[1:k], meant[0], *meant[k + 1 :]][: len(made)]:
            return f"it swapped two calls: {a} before {b}"
    if made[1:] == meant[: len(made) - 1] and len(made) > 1:
        return f"it made one extra call: {a}"
    if a.towards and b.towards and a.name == b.name:
        return "it named a different peer"
    if a.name == b.name and a.tensor == b.tensor:
        return f"it called {a.name} in {a.group} instead of {b.group}"
    return f"it left out {b}" if made[0] in meant[1:] else f"it called {a} where {b} was next"
