"""The start and end of every operation.

A rank runs its slots in order, one at a time. A slot starts when the slot before it has ended and its inputs have
arrived; an input from another rank arrives tC after its producer's end. Sends are asynchronous here, whatever the
communication model of the deadlock check. An overlap pair starts when the inputs of both parts have arrived, and ends
as a whole.

    end = cost + max(end of the slot before, end of each producer + tC if it is on another rank)

Copies to host memory and back run at the same time (`analysis.copies`): O waits until its own copy has ended, and an I
or B waits until the copy of its L has ended. In the run (`analysis.lists`) ranks and engines are lists of slots.

If ranks wait for each other, the run stops there; the stopped operations are part of the result.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipesched.analysis.copies import Copies
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.lists import Lists, Runner, Waits, run
from pipesched.diagnostics import Code, fail
from pipesched.model.columns import PLACE, Bools, Column, Ints, among
from pipesched.model.costs import PAIRS, Costs, Ticks
from pipesched.model.ops import COPIES, LETTERS, Op
from pipesched.model.schedule import Schedule
from pipesched.support.record import Record


class Timeline(Record):
    """The times of a schedule. start, end: times in ticks, shape (operations,), equal for both parts of a pair; -1 for
    operations that never run.

    turn: for each operation, a number larger than those of the operations that it waits for. stuck: for each rank, the
    operation at which it stops for good, or -1. copies: the copies that O and L begin; an O or L itself starts and ends
    at the instant when its rank reaches it.
    """

    start: Ints
    end: Ints
    turn: Column
    stuck: tuple[int, ...]
    copies: Copies | None = None

    @property
    def finished(self) -> bool:
        return all(i < 0 for i in self.stuck)

    @property
    def makespan(self) -> int:
        """The makespan in ticks."""
        return int(self.end.max(initial=0))


def slot_costs(schedule: Schedule, ticks: Ticks) -> Ints:
    """Return the cost of every operation in ticks: a pair's cost at its first part, 0 at its second part; 0 for copies.

    Raises:
        PipeschedError: PS222: costs are so large that times exceed 64 bits.
    """
    cost = ticks.durations(schedule.op, schedule.stage, schedule.microbatch)
    second = schedule.joined.nonzero()[0]
    if len(second):
        first = second - 1
        pair = cost[first] + cost[second]
        for key in ticks.pair:
            whole = ticks.pairs(key, schedule.stage[first], schedule.microbatch[first])
            pair = np.where(paired(schedule, key)[second], whole, pair)
        cost[first], cost[second] = pair, 0
    if float(cost.sum(dtype=np.float64)) + float(ticks.message.max(initial=0)) * len(schedule) >= 2.0**62:
        raise fail(Code.COSTS, "the times exceed 64 bits", help="use a larger unit of time")
    if schedule.has(COPIES):
        cost[among(schedule.op, COPIES)] = 0
    return np.asarray(cost, dtype=np.int64)


def costs_used(schedule: Schedule, costs: Costs) -> set[str]:
    """Return the keys of the costs that a schedule uses: its kinds, given pairs, and FB if F and B overlap."""
    if not schedule.joined.any():
        return {key for key, some in zip(LETTERS, schedule.counts, strict=True) if some}
    count, used = np.array(schedule.counts), set()
    for key in PAIRS:
        second = np.flatnonzero(paired(schedule, key))
        used |= {key} if len(second) and (key == "FB" or key in costs.given) else set()
        if key in costs.given:
            count -= np.bincount(schedule.op[np.union1d(second - 1, second)], minlength=len(count))
    return used | {key for key, some in zip(LETTERS, count.tolist(), strict=True) if some}


def paired(schedule: Schedule, key: str) -> Bools:
    """Return a mask of the second parts in overlap pairs of these two kinds."""
    first, second = (schedule.op == Op[letter] for letter in key)
    return np.asarray(schedule.joined & second & np.roll(first, 1))


def entries(
    schedule: Schedule, dependencies: Dependencies, ticks: Ticks, copies: Copies | None
) -> tuple[Column, Ints, Ints, Waits]:
    """Return the slot of each operation, and cost, cut and waits (`Lists`) of all slots, followed by the copies."""
    cost, cut, found = slot_costs(schedule, ticks), schedule.start, dependencies.messages()
    delay = ticks.delays(schedule.stage[found.producer], schedule.microbatch[found.producer])
    slot, waits = np.arange(len(schedule), dtype=PLACE), (found.consumer, found.producer, delay)
    if schedule.joined.any():
        head, slot = (~schedule.joined).nonzero()[0], (~schedule.joined).cumsum(dtype=PLACE) - PLACE(1)
        cost, cut = cost[head], head.searchsorted(schedule.start)
        waits = slot[found.consumer], slot[found.producer], delay
    return slot, *((cost, cut, waits) if copies is None else copies.joined(schedule, ticks, slot, cost, cut, waits))


def timeline(schedule: Schedule, dependencies: Dependencies, ticks: Ticks, plainly: Runner = run) -> Timeline:
    """Run the schedule once, greedily; O(operations). plainly: the runner if there are no copies or further inputs."""
    copies = Copies.of(schedule, dependencies)
    slot, cost, cut, waits = entries(schedule, dependencies, ticks, copies)
    slots = schedule.slots
    lists = Lists.of(cost, cut, waits)
    plain = copies is None and not len(dependencies.further)
    end, turn, at = plainly(lists) if plain else run(lists, rounds=False)
    begin = end - cost
    begin[end < 0] = -1
    if copies is not None:
        copies = replace(copies, start=begin[slots:], end=end[slots:])
    stops = zip(at.tolist(), cut[1:].tolist(), strict=True)
    stuck = tuple(int(slot.searchsorted(i)) if i < high else -1 for i, high in list(stops)[: schedule.ranks])
    if slots < len(schedule) or copies is not None:
        begin, end, turn = begin[slot], end[slot], turn[slot]
    return Timeline(begin, end, turn, stuck, copies)
