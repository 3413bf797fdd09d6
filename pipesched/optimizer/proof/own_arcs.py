"""The arcs between a schedule's own operations, which are the same in every order, and the longest paths along them.

an arc       from the end of one operation to the start of another that waits for its result, which takes a message if
             it comes from another rank; O waits for its copy out, and an I or B for the copy of its L
head, tail   the longest paths from the first start to an operation, and from its end to the last end
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesched.analysis.copies import Copies
from pipesched.analysis.dependencies import Dependencies, between_slices
from pipesched.analysis.timeline import entries
from pipesched.model.columns import Ints, among
from pipesched.model.costs import Ticks
from pipesched.model.ops import COMPUTES, FOR_BACKWARDS, Result
from pipesched.model.schedule import Schedule

UNKNOWN = -(2**60)
"""A time so early that it precedes every other time, even after durations are added."""


_USES_ACTIVATION = [op for op in COMPUTES if op.kind.own is Result.ACTIVATION]


@dataclass(frozen=True)
class Arcs:
    """The arcs between nodes: the slots of a schedule, then its copies. rank: the rank of each slot; cost: the duration
    of each node; slot: the slot of each operation; cut: the first slot of each rank, then the number of slots. before,
    after, delay: the columns of the arcs. copies: None if nothing is offloaded.
    """

    rank: Ints
    cost: Ints
    slot: Ints
    cut: Ints
    before: Ints
    after: Ints
    delay: Ints
    copies: Copies | None

    @classmethod
    def of(cls, schedule: Schedule, ticks: Ticks) -> Arcs:
        """Return the arcs of a valid schedule."""
        found = Dependencies.of(schedule)
        copies = Copies.of(schedule, found)
        slot, cost, _, (waits, awaited, delay) = entries(schedule, found, ticks, copies)
        here = [pair for pair in _on_its_rank(schedule, found) if len(pair[0])]
        before = np.concatenate([awaited, *(slot[one] for one, _ in here)])
        after = np.concatenate([waits, *(slot[two] for _, two in here)])
        delay = np.concatenate([delay, np.zeros(len(before) - len(delay), dtype=np.int64)])
        apart = before != after
        head = np.flatnonzero(~schedule.joined)
        cut = np.searchsorted(head, schedule.start)
        return cls(
            schedule.rank[head].astype(np.int64), cost, slot, cut, before[apart], after[apart], delay[apart], copies
        )

    def heads(self, frame: int | None = None) -> Ints:
        """Return the longest path to the start of each slot and copy, from time 0 or from the first start on a rank."""
        return longest(self.cost, (self.before, self.after, self.delay), self._from(frame))

    def tails(self, frame: int | None = None) -> Ints:
        """Return the longest path from the end of each slot and copy, to the last end on all ranks or on one rank."""
        return longest(self.cost, (self.after, self.before, self.delay), self._from(frame))

    def _from(self, frame: int | None) -> list[int]:
        own = [0 if frame in (None, rank) else UNKNOWN for rank in self.rank.tolist()]
        return own + [0 if frame is None else UNKNOWN] * (len(self.cost) - len(own))


def _on_its_rank(schedule: Schedule, found: Dependencies) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of operations on one rank, in which the second operation uses a result of the first."""
    at = np.flatnonzero(among(schedule.op, _USES_ACTIVATION))
    edges = found.edges()
    pairs = [(edges.producer, edges.consumer)]
    pairs += [(found.made[result][schedule.key(at)], at) for result in (Result.ACTIVATION, *FOR_BACKWARDS)]
    pairs += [(producer, consumer) for consumer, producer in between_slices(schedule, found)]
    for one, two in pairs:
        there = one >= 0
        one, two = one[there], two[there]
        own = schedule.rank[one] == schedule.rank[two]
        yield one[own], two[own]


def longest(cost: Ints, arcs: tuple[Ints, Ints, Ints], least: list[int]) -> Ints:
    """Return the longest path to each node, without the cost of the node. arcs: (before, after, delay), acyclic; least:
    a lower limit on each result, which is changed in place.
    """
    before, after, delay = arcs
    by = np.argsort(before, kind="stable")
    first = np.searchsorted(before[by], np.arange(len(cost) + 1)).tolist()
    follower, later = after[by].tolist(), (delay + cost[before])[by].tolist()
    missing = np.bincount(after, minlength=len(cost)).tolist()
    ready = [node for node, count in enumerate(missing) if not count]
    while ready:
        node = ready.pop()
        for i in range(first[node], first[node + 1]):
            two = follower[i]
            least[two] = max(least[two], least[node] + later[i])
            missing[two] -= 1
            if not missing[two]:
                ready.append(two)
    return np.array(least, dtype=np.int64)


@dataclass(frozen=True)
class Least:
    """A bound in ticks: the work of a rank between a head and a tail or, without a rank, the longest path.

    held: True if `work` is the time that the rank's activations need under its cap.
    """

    value: int
    rank: int = -1
    head: int = 0
    work: int = 0
    tail: int = 0
    held: bool = False
