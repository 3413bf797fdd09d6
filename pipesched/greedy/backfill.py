"""Moves the operations of lists to earlier times, if every program ends in `backfill`.

    rank r { for t in 0 .. end { … }  backfill }

All ranks share the clock of `greedy`, with times from the costs in the file. In list order, each operation takes the
first time at which its inputs have arrived and its rank is free for long enough: between operations that come earlier
in the list, if there is room, without delaying any of them. Batch systems call this conservative backfilling. An F also
waits until its rank will never again hold more than the largest peak of any list.

          slot  0  1  2  3  4  5           slot  0  1  2  3  4  5
    the list    F0 .  F1 B0 B0 F2    ->          F0 F1 F2 B0 B0
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipesched.greedy.clock import Clock, Part
from pipesched.language.operations import Emitter


@dataclass
class Track:
    """The operations of one rank that already have a time. slots: (start, end, list position), sorted by time.

    memory: (time, change in held memory), sorted by time. held: the sum of all changes.
    """

    slots: list[tuple[int, int, int]] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)
    held: int = 0

    def within(self, ready: int, most: int) -> int:
        """Return the first time, at `ready` or later, after which the rank never holds more than `most`."""
        level, since = self.held, ready
        for time, change in reversed(self.memory):
            if level > most:
                return since
            if time <= ready:
                break
            level, since = level - change, time
        return ready

    def gap(self, ready: int, duration: int) -> int:
        """Return the first time, at `ready` or later, at which the rank is free for long enough."""
        first = bisect_right(self.slots, ready, key=lambda slot: slot[1])
        for start, end, _ in map(self.slots.__getitem__, range(first, len(self.slots))):
            if ready + duration <= start:
                break
            ready = end
        return ready

    def put(self, slot: tuple[int, int, int], changes: Sequence[int]) -> None:
        """Add a slot and its changes in held memory: increases at its start, decreases at its end."""
        insort(self.slots, slot)
        for change in filter(None, changes):
            insort(self.memory, (slot[change < 0], change))
            self.held += change


class Backfill(Clock):
    """Moves the operations of all ranks on one clock."""

    def run(self) -> list[list[int]]:
        """Move the operations of all ranks. Return, for each rank, the previous list positions of its operations; if
        some operations wait for each other, return an empty list and leave the lists unchanged.
        """
        tracks = [Track() for _ in self.emitters]
        self.most = max(map(self._peak, self.emitters))
        moved = True
        while moved:
            moved = sum(self._place(*both) for both in zip(self.emitters, tracks, strict=True)) > 0
        if self.done != [len(emitter.sites) for emitter in self.emitters]:
            return []
        return [self._reordered(*both) for both in zip(self.emitters, tracks, strict=True)]

    def _slot(self, emitter: Emitter, first: int) -> list[Part]:
        """Return the parts of the slot at a list position; parts that a frozen stage does not need are left out."""
        size = 1 + (first + 1 in self.second[emitter.rank])
        parts = (self._part(*self._entry(emitter, at)) for at in range(first, first + size))
        return [part for part in parts if part is not None]

    def _changes(self, slot: Sequence[Part]) -> list[int]:
        return [self.changes[op][stage] * self.sizes[stage][microbatch] for op, stage, microbatch in slot]

    def _peak(self, emitter: Emitter) -> int:
        """Return the peak memory of a rank in list order."""
        held = most = at = 0
        while at < len(emitter.sites):
            changes = sorted(self._changes(self._slot(emitter, at)), reverse=True)
            for change in changes:  # an F holds memory before the other part of its slot frees any
                most = max(most, held := held + change)
            at += 1 + (at + 1 in self.second[emitter.rank])
        return most

    def _place(self, emitter: Emitter, track: Track) -> bool:
        """Give times to operations of a rank, in list order, until an input has no time; return True if any got one."""
        rank, begun = emitter.rank, self.done[emitter.rank]
        while (first := self.done[rank]) < len(emitter.sites):
            slot = self._slot(emitter, first)
            inputs = [x for part in slot for x in self._inputs(part)]
            if any(x not in self.made for x in inputs):
                break
            changes = self._changes(slot)
            takes = sum(change for change in changes if change > 0)
            ready = max((self.made[x] + self._delay(x, rank) for x in inputs), default=0)
            duration = self._duration(slot)
            start = track.gap(track.within(ready, self.most - takes) if takes else ready, duration)
            track.put((start, start + duration, first), changes)
            for op, stage, microbatch in slot:
                self.made |= {(result, stage, microbatch): start + duration for result in op.kind.makes}
            self.done[rank] += 1 + (first + 1 in self.second[rank])
        return self.done[rank] > begun

    def _reordered(self, emitter: Emitter, track: Track) -> list[int]:
        """Sort the list of a rank by the times of its operations; return the old positions."""
        second = self.second[emitter.rank]
        order = [at for _, _, first in track.slots for at in (first, first + 1) if at == first or at in second]
        emitter.sites, emitter.keys = ([row[at] for at in order] for row in (emitter.sites, emitter.keys))
        emitter.second = [now for now, at in enumerate(order) if at in second]
        return order
