"""Repairs an order of compute in which ranks wait for each other, by running the awaited operations earlier.

    rank 0   F0 F1 | B0 F2 B1 B2          rank 1 waits for F2 of rank 0, which waits for B0 of rank 1;
    rank 1   F0 F2 | B0 F1 B1 B2          after the repair, rank 1 runs F1 before F2

The ranks run their lists in order until all are stuck. Each stuck rank waits for a slot, which may wait for other
slots; unless a slot needs itself, at least one awaited slot has all its inputs. That slot moves earlier, and the lists
run again. A slot that moves a second time goes exactly where its rank is stuck, so each run gets further.

Then single slots on the critical paths move earlier or later, as long as the run gets shorter and holds no more
activations than the given order, or than the cap if there is one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, pairwise, product

import numpy as np

from pipesched.analysis.dependencies import between_slices
from pipesched.analysis.timeline import slot_costs
from pipesched.model.columns import Ints
from pipesched.schedule_analysis import Analysis

MOST = 5_000_000
"""Limit on the slots that a repair simulates, summed over all runs."""
TRIES = 2000
"""Limit on consecutive runs that do not shorten an order."""
FREE_TRIES = 500
"""Limit like TRIES, for the search that ignores the memory cap and finds the makespan that more memory allows."""
STARTS = 2
"""Limit on the repaired orders that are shortened; the best result is taken."""
NEAR = 12
"""Limit on the number of positions by which one move shifts a slot to shorten the run."""


@dataclass(frozen=True)
class Slots:
    """The slots of an order. lists: for each rank, its slots in order. All other fields are indexed by slot. costs:
    durations in ticks. kinds: ((kind, stage), microbatch). needs: the slots of its inputs, each with the time of the
    message in ticks. users: the slots that need it. head: the index of its first operation.
    """

    lists: list[list[int]]
    rank: list[int]
    costs: list[int]
    kinds: list[tuple[tuple[int, int], int]]
    needs: list[list[tuple[int, int]]]
    users: list[list[int]]
    head: Ints

    @classmethod
    def of(cls, made: Analysis) -> Slots:
        """Return the slots of an analysed schedule."""
        schedule, ticks = made.schedule, made.ticks
        head = np.flatnonzero(~schedule.joined)
        slot = (np.cumsum(~schedule.joined) - 1).tolist()
        edges, delays = made.dependencies.edges(), ticks.delays(schedule.stage, schedule.microbatch).tolist()
        pairs = list(zip(edges.producer.tolist(), edges.consumer.tolist(), edges.crosses.tolist(), strict=True))
        for at, before in between_slices(schedule, made.dependencies):
            pairs += [(a, b, False) for a, b in zip(before.tolist(), at.tolist(), strict=True) if a >= 0]
        needs: list[list[tuple[int, int]]] = [[] for _ in head]
        users: list[list[int]] = [[] for _ in head]
        for producer, consumer, crosses in pairs:
            if (one := slot[producer]) != (other := slot[consumer]):
                needs[other].append((one, delays[producer] if crosses else 0))
                users[one].append(other)
        cut = np.searchsorted(head, schedule.start).tolist()
        columns = (schedule.op, schedule.stage, schedule.microbatch)
        kinds = [
            ((op, stage), microbatch)
            for op, stage, microbatch in zip(*(x[head].tolist() for x in columns), strict=True)
        ]
        return cls(
            lists=[[*range(*ends)] for ends in pairwise(cut)],
            rank=schedule.rank[head].tolist(),
            costs=slot_costs(schedule, ticks)[head].tolist(),
            kinds=kinds,
            needs=needs,
            users=users,
            head=head,
        )


@dataclass
class _Run:
    """A run of the lists until no rank can continue. at: for each rank, the position of its next slot. free: for each
    rank, the end of its last slot. end: for each slot, its end, -1 if it never runs.
    """

    slots: Slots
    lists: list[list[int]]
    at: list[int]
    free: list[int]
    end: list[int]

    @classmethod
    def of(cls, slots: Slots, lists: list[list[int]]) -> _Run:
        """Run all ranks as far as possible."""
        made = cls(slots, lists, [0 for _ in lists], [0 for _ in lists], [-1] * len(slots.costs))
        queue = [*range(len(lists))]
        while queue:
            rank = queue.pop()
            row = lists[rank]
            while made.at[rank] < len(row) and made.ready(row[made.at[rank]]):
                slot = row[made.at[rank]]
                made.end[slot] = made.free[rank] = made.start(slot) + slots.costs[slot]
                made.at[rank] += 1
                queue += [slots.rank[user] for user in slots.users[slot] if slots.rank[user] != rank]
        return made

    @property
    def makespan(self) -> int:
        return max(self.end, default=0)

    @property
    def score(self) -> tuple[int, int, int]:
        """The makespan; to break ties, the sum of the end times of all ranks, then of all slots."""
        ends = sum(self.end[row[-1]] for row in self.lists if row)
        return self.makespan, ends, sum(self.end)

    def critical(self) -> list[int]:
        """Return the slots on all critical paths, the slot that ends last first."""
        slots, makespan = self.slots, self.makespan
        found = [slot for slot, end in enumerate(self.end) if end == makespan]
        seen, ahead = set(found), {after: slot for row in self.lists for slot, after in pairwise(row)}
        for slot in found:
            begin = self.end[slot] - slots.costs[slot]
            needs = slots.needs[slot] + ([(ahead[slot], 0)] if slot in ahead else [])
            new = {need for need, delay in needs if self.end[need] + delay == begin} - seen
            seen |= new
            found += sorted(new)
        return sorted(found, key=lambda slot: (-self.end[slot], slot))

    def near(self) -> Iterator[_Run]:
        """Yield the finished runs with one critical slot moved earlier, then those with one moved later."""
        for step, slot in product((-1, 1), self.critical()):
            rank = self.slots.rank[slot]
            row = self.lists[rank]
            at = row.index(slot)
            rest = [*row[:at], *row[at + 1 :]]
            for place in range(at + step, at + step * NEAR, step):
                if not 0 <= place < len(row):
                    break
                moved = [*rest[:place], slot, *rest[place:]]
                tried = _Run.of(self.slots, [*self.lists[:rank], moved, *self.lists[rank + 1 :]])
                if not tried.finished:
                    break
                yield tried

    @property
    def finished(self) -> bool:
        return all(at == len(row) for at, row in zip(self.at, self.lists, strict=True))

    def ready(self, slot: int) -> bool:
        return all(self.end[need] >= 0 for need, _ in self.slots.needs[slot])

    def start(self, slot: int) -> int:
        """Return the earliest start of a slot whose inputs have all run."""
        arrived = (self.end[need] + delay for need, delay in self.slots.needs[slot])
        return max(self.free[self.slots.rank[slot]], *arrived, 0)

    def missed(self) -> list[int]:
        """Return the slots whose inputs have all run and for which a stuck rank waits, directly or indirectly."""
        left = [row[at] for row, at in zip(self.lists, self.at, strict=True) if at < len(row)]
        seen = set(left)
        for slot in left:
            needs = [need for need, _ in self.slots.needs[slot] if self.end[need] < 0 and need not in seen]
            seen.update(needs)
            left += needs
        return [slot for slot in left if self.ready(slot)]


@dataclass(frozen=True)
class Repaired:
    """A repaired order. entries: indices of the given operations, in the new order. moved: each moved operation, with
    the one that it now precedes. free: a shorter order that holds more activations than allowed, if one is found.
    """

    entries: Ints
    moved: list[tuple[int, int]]
    free: Analysis | None


def repaired(made: Analysis, caps: Sequence[Fraction] | None) -> Repaired | None:
    """Return the repaired order with the shortest makespan, within the caps if possible.

    caps: the limit on the activations of each rank; by default the largest peak of the given order. The result is None
    if an operation needs itself, so that no repair helps, or if the search reaches its limit.
    """
    slots = Slots.of(made)
    bounds = np.append(slots.head[1:], len(made.schedule))
    most = caps or [max(made.memory.peak)] * made.schedule.ranks

    def entries(run: _Run) -> Ints:
        order = [slot for row in run.lists for slot in row]
        return np.concatenate([np.arange(slots.head[slot], bounds[slot]) for slot in order])

    def analysed(run: _Run) -> Analysis:
        return replace(made, schedule=made.schedule.with_program(None).taken(entries(run)))

    def fits(run: _Run) -> bool:
        return all(peak <= cap for peak, cap in zip(analysed(run).memory.peak, most, strict=True))

    ends = _all_repaired(slots)
    within = sorted((run for run in ends if fits(run)), key=lambda run: run.makespan)
    runs = [_shortened(run, fits) for run in within[:STARTS]] or ends
    if not runs:
        return None
    best = min(runs, key=lambda run: run.makespan)
    moved = [pair for row in best.lists for pair in _moved(row)]
    free = min([_shortened(best, lambda _: True, FREE_TRIES), *ends], key=lambda run: run.makespan)
    return Repaired(
        entries(best),
        [(int(slots.head[slot]), int(slots.head[before])) for slot, before in moved],
        analysed(free) if free.makespan < best.makespan else None,
    )


def _shortened(run: _Run, fits: Callable[[_Run], bool], tries: int = TRIES) -> _Run:
    """Return the run with the shortest makespan that is found by moving single slots, each time to a run that `fits`.

    A move that keeps the makespan but lets slots end earlier is undone unless a later move shortens the makespan.
    """
    best, left, budget = run, tries, MOST // max(1, len(run.end))
    while True:
        better = run
        for tried in islice(run.near(), min(left, budget)):
            left, budget = left - 1, budget - 1
            if tried.score < better.score and fits(tried):
                better = tried
                if better.makespan < best.makespan:
                    best, left = better, tries
                    break
        if better is run:
            return best
        run = better


def _moved(row: list[int]) -> list[tuple[int, int]]:
    """Return the smallest set of slots without which the list ascends, each with the slot that it now precedes."""
    tails, before = list[int](), dict[int, int]()
    for slot in row:
        at = bisect_left(tails, slot)
        before[slot] = tails[at - 1] if at else -1
        tails[at : at + 1] = [slot]
    kept, slot = set[int](), tails[-1] if tails else -1
    while slot >= 0:
        kept.add(slot)
        slot = before[slot]
    return [(slot, after) for slot, after in pairwise([*row, row[-1] if row else 0]) if slot not in kept]


def _ascending(slots: Slots) -> list[list[int]]:
    """Return the lists with the slots of each kind and stage sorted by microbatch, within the positions they occupy."""
    made = []
    for row in slots.lists:
        places = defaultdict[tuple[int, int], list[int]](list)
        for place, slot in enumerate(row):
            places[slots.kinds[slot][0]].append(place)
        new = row.copy()
        for at in places.values():
            for place, slot in zip(
                at, sorted((row[x] for x in at), key=lambda slot: slots.kinds[slot][1]), strict=True
            ):
                new[place] = slot
        made.append(new)
    return made


def _all_repaired(slots: Slots) -> list[_Run]:
    """Return the distinct runs that finish after a repair: with and without sorted lists, with and without `early`."""
    both = (slots.lists, _ascending(slots))
    found = [_repaired(slots, lists, early=early) for lists in both for early in (True, False)]
    return [run for at, run in enumerate(found) if run is not None and run not in found[:at]]


def _repaired(slots: Slots, given: list[list[int]], *, early: bool) -> _Run | None:
    """Move awaited slots until a run finishes, and return that run; None if no move helps. early: whether a slot's
    first move also puts it before later microbatches of its kind and stage, not only before the slot that is stuck.
    """
    lists, moved = [list(row) for row in given], set[int]()
    for _ in range(MOST // max(1, len(slots.costs))):
        run = _Run.of(slots, lists)
        if run.finished:
            return run
        places = {slot: lists[slots.rank[slot]].index(slot) for slot in run.missed()}
        if not places:
            return None
        slot = min(places, key=lambda slot: (places[slot] - run.at[slots.rank[slot]], run.start(slot), slot))
        row = lists[slots.rank[slot]]
        del row[places[slot]]
        stuck = run.at[slots.rank[slot]]
        place = _earliest(slots, row[:stuck], slot) if early and slot not in moved else stuck
        moved.add(slot)
        row.insert(place, slot)
    return None


def _earliest(slots: Slots, row: list[int], slot: int) -> int:
    """Return the position for a slot in the part of its list that ran: after its inputs, and there before the first
    later microbatch of its kind and stage, or else at the end.
    """
    needs = {need for need, _ in slots.needs[slot]}
    least = max((i + 1 for i, other in enumerate(row) if other in needs), default=0)
    kind, microbatch = slots.kinds[slot]
    later = (i for i, other in enumerate(row) if slots.kinds[other][0] == kind and slots.kinds[other][1] > microbatch)
    return max(least, next(later, len(row)))
