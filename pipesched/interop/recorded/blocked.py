"""The waits of a stopped job: for each rank, its first call that has not completed, and the ranks that the call needs.

    rank 4  all_reduce 88 in tp, not completed ──> rank 5 has not called it
    rank 5  receive from rank 1, not completed ──> rank 1 has called it: it waits in ──> …

A rank without a record, or whose calls have all completed, waits for no other rank: it computes, sleeps or has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesched.interop.recorded.job import COLLECTIVE, Job
from pipesched.model.columns import Ints


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of a rank. call: the index of the call in which it waits. uncalled: the ranks that have not made this
    call. behind: the ranks that the call needs and that still wait in another call.
    """

    call: int
    uncalled: tuple[int, ...]
    behind: tuple[int, ...]

    @property
    def needs(self) -> tuple[int, ...]:
        return self.uncalled or self.behind


@dataclass(frozen=True, eq=False)
class Blocked:
    """The waits of a job."""

    job: Job

    @cached_property
    def front(self) -> Mapping[int, list[int]]:
        """For each rank with an open call, the index of the first one, or of several that were posted together."""
        job, found = self.job, dict[int, list[int]]()
        for i in np.flatnonzero(~job.over.astype(np.bool_)).tolist():
            rank = int(job.member[i])
            mine = found.setdefault(rank, [i])
            first = mine[0]
            together = job.way[first] and job.way[i] and job.number[first] == job.number[i]
            if i != first and together and job.group[first] == job.group[i]:
                mine.append(i)
        return found

    @cached_property
    def _called(self) -> dict[tuple[int, int], int]:
        """For each (group, rank), the number of the rank's last collective call in the group."""
        job = self.job
        at = np.flatnonzero(job.way == COLLECTIVE)
        key = job.group[at] * np.int64(len(job.ranks)) + job.owner[at]
        order = np.lexsort((job.number[at], key))
        last = order[np.flatnonzero(np.diff(key[order], append=-1))]
        pairs = zip(job.group[at][last].tolist(), job.member[at][last].tolist(), strict=True)
        return dict(zip(pairs, job.number[at][last].tolist(), strict=True))

    @cached_property
    def waits(self) -> Mapping[int, Wait]:
        """The wait of each rank that has an open call."""
        return {rank: self._wait(rank, calls) for rank, calls in self.front.items()}

    def _wait(self, rank: int, calls: list[int]) -> Wait:
        found = [self._needed(rank, i) for i in calls]
        at = next((k for k, (uncalled, _) in enumerate(found) if uncalled), 0)
        return Wait(calls[at], *found[at])

    def _needed(self, rank: int, i: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        job = self.job
        if job.way[i] == COLLECTIVE:
            return self._absent(int(job.group[i]), int(job.number[i]))
        peer = int(job.peer[i])
        if peer not in job.place or not self._posted(rank, i, peer):
            return (peer,), ()
        return (), (peer,) if peer in self.front else ()

    def _absent(self, group: int, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the members that have not called a collective, and the members that wait in another call."""
        if (group, number) not in self._met:
            ranks = self.job.groups[group].ranks
            uncalled = tuple(rank for rank in ranks if self._called.get((group, rank), -1) < number)
            behind = tuple(rank for rank in ranks if not self._meets(rank, group, number))
            self._met[group, number] = uncalled, behind
        return self._met[group, number]

    @cached_property
    def _met(self) -> dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]]:
        return {}

    def _meets(self, rank: int, group: int, number: int) -> bool:
        """Return True if a rank also waits in this call, or has no open call."""
        front = self.front.get(rank)
        return front is None or (int(self.job.group[front[0]]), int(self.job.number[front[0]])) == (group, number)

    def _posted(self, rank: int, i: int, peer: int) -> bool:
        """Return True if the other end of a message is posted. If the first calls of either rank were lost, only open
        calls count.
        """
        job, mine, theirs = self.job, self.job.of(self.job.place[rank]), self.job.of(self.job.place[peer])
        open_only = job.cut(job.place[rank]) or job.cut(job.place[peer])
        here = self._side(mine, int(job.way[i]), int(job.group[i]), peer, open_only)
        there = self._side(theirs, 3 - int(job.way[i]), int(job.group[i]), rank, open_only)
        return int(np.searchsorted(here, i)) < len(there)

    def _side(self, of: slice, way: int, group: int, peer: int, open_only: bool) -> Ints:
        job = self.job
        side = (job.way[of] == way) & (job.group[of] == group) & (job.peer[of] == peer)
        found: Ints = np.flatnonzero(side & ~job.over[of].astype(np.bool_) if open_only else side) + of.start
        return found

    @cached_property
    def _waiting(self) -> Mapping[int, list[int]]:
        """For each rank, the ranks with a call that needs it; one rank represents all ranks with the same needs."""
        found: dict[int, list[int]] = defaultdict(list)
        for needs, alike in self._alike.items():
            for other in needs:
                found[other].append(alike[0])
        return found

    @cached_property
    def _alike(self) -> Mapping[tuple[int, ...], list[int]]:
        """The waiting ranks, grouped by the ranks that they need."""
        found: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for rank, wait in self.waits.items():
            found[wait.needs].append(rank)
        return found

    @cached_property
    def roots(self) -> Counter[int]:
        """The ranks that others need but that wait for no rank themselves, each with the number of ranks that wait for
        it, directly or indirectly.
        """
        ends = [rank for rank in self._waiting if rank not in self.waits]
        return Counter({rank: len(self._behind(rank)) for rank in ends})

    def _behind(self, rank: int) -> set[int]:
        """Return the ranks that wait for a rank, directly or through other ranks."""
        seen, left = set[int](), [rank]
        while left:
            for first in self._waiting.get(left.pop(), ()):
                if first not in seen:
                    alike = self._alike[self.waits[first].needs]
                    seen.update(alike)
                    left += alike
        return seen

    def cycle(self) -> list[int]:
        """Return the ranks of a cycle of waits, each waiting for the next; empty if there is no cycle."""
        for start in self.waits:
            path, at = list[int](), start
            while at in self.waits and at not in path and self.waits[at].needs:
                path.append(at)
                at = self.waits[at].needs[0]
            if at in path:
                return path[path.index(at) :]
        return []

    def waiting_for(self, rank: int) -> Iterator[int]:
        """Yield the ranks with a call that needs this rank."""
        return (other for first in self._waiting.get(rank, ()) for other in self._alike[self.waits[first].needs])
