"""When every operation starts and ends.

A rank runs its slots in order, one at a time. A slot starts when the slot before it has ended and its inputs are
there; an input from another rank is there tC after its producer's end. Sends are asynchronous here, whatever the
communication model of the deadlock check. An overlap pair starts when both inputs are there, and ends as one.

    end = cost + max(end of the slot before, end of each producer + tC if it is on another rank)

Copies to host memory and back run meanwhile (`analysis.copies`): O waits until its own is over, and an I or B until
that of its L is. To the event loop each engine is one more rank.

A run in which ranks wait for each other stops there; what stopped is part of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pipesched.analysis.copies import Copies
from pipesched.analysis.dependencies import Dependencies
from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints, among
from pipesched.model.costs import Costs, Ticks
from pipesched.model.ops import COPIES, Op
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Timeline:
    """start, end: in ticks, shape (operations,), the same for both parts of a pair; -1 for what never runs.

    turn: a topological order, the turn in which each operation ran. stuck: per rank the operation that never runs,
    or -1. copies: those of O and L, whose own start and end are the instant at which their rank passes them.
    """

    start: Ints
    end: Ints
    turn: Ints
    stuck: tuple[int, ...]
    copies: Copies | None = None

    @property
    def finished(self) -> bool:
        return all(i < 0 for i in self.stuck)

    @property
    def makespan(self) -> int:
        """In ticks."""
        return int(self.end.max(initial=0))


def slot_costs(schedule: Schedule, ticks: Ticks) -> Ints:
    """The cost of every slot in ticks, at its first operation; 0 at second parts, and of copies.

    Raises:
        PipeschedError: PS222, costs so large that times leave 64 bits.
    """
    cost = ticks.durations(schedule.op, schedule.stage, schedule.microbatch)
    second = np.flatnonzero(schedule.joined)
    if len(second):
        first = second - 1
        pair, whole = cost[first] + cost[second], ticks.pairs(schedule.stage[first], schedule.microbatch[first])
        if whole is not None:
            pair = np.where(schedule.op[second] == Op.B, whole, pair)
        cost[first], cost[second] = pair, 0
    if float(cost.sum(dtype=np.float64)) + float(ticks.message.max(initial=0)) * len(schedule) >= 2.0**62:
        raise fail(Code.COSTS, "the times leave 64 bits", help="use a larger unit of time")
    cost[among(schedule.op, COPIES)] = 0
    return np.asarray(cost, dtype=np.int64)


def costs_used(schedule: Schedule, costs: Costs) -> set[str]:
    """The keys of the costs on which the times depend: the kinds that run, and FB for each F and B that overlap."""
    second = np.flatnonzero(schedule.joined)
    pairs = second[schedule.op[second] == Op.B]
    alone = np.ones(len(schedule), dtype=np.bool_)
    if "FB" in costs.given:
        alone[pairs] = alone[pairs - 1] = False
    kinds = {Op(op).name for op in np.unique(schedule.op[alone]).tolist()}
    return kinds | {"FB"} if len(pairs) else kinds


ROUNDS = range(12, 513)  # for so many ranks, numpy's rounds over ranks beat the event loop over slots
TRIED, WORTH = 4096, 8  # after so many rounds it is known whether they run so many slots each


def timeline(schedule: Schedule, dependencies: Dependencies, ticks: Ticks) -> Timeline:
    """Run the schedule once, greedily; O(operations)."""
    slots = _slots(schedule, dependencies, ticks)
    copies = Copies.of(schedule, dependencies)
    run = run_rounds if schedule.ranks in ROUNDS and slots.further is None and copies is None else run_events
    start, end, turn, at = run(slots if copies is None else _with(copies, copies.lengths(schedule, ticks), slots))
    if copies is not None:
        copies = replace(copies, start=start[len(slots.cost) :], end=end[len(slots.cost) :])
    stuck = tuple(
        int(slots.head[i]) if i < high else -1 for i, high in zip(at.tolist(), slots.cut[1:].tolist(), strict=False)
    )
    return Timeline(start[slots.slot], end[slots.slot], turn[slots.slot], stuck, copies)


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a schedule. head: the first operation of each slot. slot: the slot of each operation.

    inputs: the slot from which the input of another rank comes, len(cost) where there is none, and its delay; of the
    second parts of pairs too, if there is any pair. cut: the slots by rank. further: of other inputs from other ranks,
    if there is any, the slots and the delays, and where those of each slot begin. Copies are inputs too.
    """

    head: Ints
    slot: Ints
    cost: Ints
    inputs: tuple[tuple[Ints, Ints], ...]
    cut: Ints
    further: tuple[Ints, Ints, Ints] | None = None


def _slots(schedule: Schedule, dependencies: Dependencies, ticks: Ticks) -> Slots:
    head = np.flatnonzero(~schedule.joined)
    slot = np.cumsum(~schedule.joined) - 1
    crossing = np.where(dependencies.crosses, dependencies.producer, -1)
    late = ticks.delays(schedule.stage[crossing], schedule.microbatch[crossing])
    delay = np.where(crossing >= 0, late, 0)
    need = np.where(crossing >= 0, slot[crossing], len(head))
    inputs = [(need[head], delay[head])]
    second = np.flatnonzero(schedule.joined)
    if len(second):
        other_need, other_delay = np.full(len(head), len(head)), np.zeros(len(head), dtype=np.int64)
        other_need[slot[second]], other_delay[slot[second]] = need[second], delay[second]
        inputs.append((other_need, other_delay))
    cost = slot_costs(schedule, ticks)[head]
    more = None
    if further := dependencies.further:
        late = ticks.delays(schedule.stage[further.producer], schedule.microbatch[further.producer])
        of = slot[further.consumer[further.crosses]]
        begins = np.searchsorted(of, np.arange(len(head) + 1))
        more = slot[further.producer[further.crosses]], late[further.crosses], begins
    return Slots(head, slot, cost, tuple(inputs), np.searchsorted(head, schedule.start), more)


def _with(copies: Copies, lengths: Ints, slots: Slots) -> Slots:
    """The slots, and one more for each copy; each engine counts as a rank after the others."""
    size, count = len(slots.cost), len(copies.op)
    own, absent, none = size + np.arange(count), size + count, np.zeros(count, dtype=np.int64)
    inputs = [
        (np.concatenate([np.where(need == size, absent, need), none + absent]), np.concatenate([delay, none]))
        for need, delay in slots.inputs
    ]
    need, waits = inputs[0][0], copies.waits
    need[size:] = np.where(copies.after >= 0, slots.slot[copies.after], absent)
    out = waits == copies.op
    need[slots.slot[waits[out]]] = own[out]  # an O has no other input
    back = ~out & (waits >= 0)
    consumer, producer, delay = slots.slot[waits[back]], own[back], none[back]
    if slots.further is not None:
        producers, delays, begins = slots.further
        consumer = np.concatenate([np.repeat(np.arange(size), np.diff(begins)), consumer])
        producer, delay = np.concatenate([producers, producer]), np.concatenate([delays, delay])
    order = np.argsort(consumer, kind="stable")
    further = producer[order], delay[order], np.searchsorted(consumer[order], np.arange(absent + 1))
    cut = np.concatenate([slots.cut, own[copies.first][1:], [absent]])
    return Slots(slots.head, slots.slot, np.concatenate([slots.cost, lengths]), tuple(inputs), cut, further)


def run_rounds(slots: Slots) -> tuple[Ints, Ints, Ints, Ints]:
    """Rounds over ranks: every rank whose next slot has its inputs runs that slot.

    Returns start, end and round of every slot, and where each rank stopped. What runs in one round is independent.
    Where ranks mostly wait for each other, so that rounds have little to do, the event loop is faster and takes over.
    """
    size = len(slots.cost)
    start, turn = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    end = np.full(size + 1, -1, dtype=np.int64)
    end[size] = 0  # where an absent input is looked up
    at, last = slots.cut[:-1].copy(), slots.cut[1:]
    clock = np.zeros(len(at), dtype=np.int64)
    live = np.flatnonzero(at < last)
    round_number = 0
    while len(live):
        i = at[live]
        begin = clock[live]
        ready = np.ones(len(live), dtype=np.bool_)
        for need, delay in slots.inputs:
            arrival = end[need[i]]
            ready &= arrival >= 0
            begin = np.maximum(begin, arrival + delay[i])
        if not ready.all():
            if not ready.any():
                break
            i, begin, ranks = i[ready], begin[ready], live[ready]
        else:
            ranks = live
        start[i] = begin
        turn[i] = round_number
        end[i] = clock[ranks] = begin + slots.cost[i]
        at[ranks] = i + 1
        if (at[ranks] == last[ranks]).any():
            live = np.flatnonzero(at < last)
        round_number += 1
        if round_number == TRIED and int((at - slots.cut[:-1]).sum()) < WORTH * TRIED:
            return run_events(slots)
    return start, end[:size], turn, at


def run_events(slots: Slots) -> tuple[Ints, Ints, Ints, Ints]:
    """The event loop over slots: each rank runs until it waits, and is woken by the slot it waits for.

    Returns start, end and turn of every slot, and where each rank stopped.
    """
    size, cut = len(slots.cost), slots.cut.tolist()
    (need, delay), *second = slots.inputs
    more: dict[int, list[tuple[int, int]]] = {}  # by slot, the inputs besides: whose, and the delay
    for producers, delays in second:
        pair = np.flatnonzero(producers < size)
        for i, producer, lag in zip(pair.tolist(), producers[pair].tolist(), delays[pair].tolist(), strict=True):
            more[i] = [(producer, lag)]
    if slots.further is not None:
        producers, delays, begins = slots.further
        consumer = np.repeat(np.arange(size), np.diff(begins))
        for i, producer, lag in zip(consumer.tolist(), producers.tolist(), delays.tolist(), strict=True):
            more.setdefault(i, []).append((producer, lag))
    end = [-1] * size + [0]  # the last is of an absent input
    order: list[int] = []

    def run(low: int, high: int) -> Iterator[int]:
        """A rank at work; yields the slot that it waits for."""
        now = 0
        columns = (column[low:high].tolist() for column in (need, delay, slots.cost))
        for i, (producer, lag, cost) in enumerate(zip(*columns, strict=True), low):
            if end[producer] < 0:
                yield producer
            arrival = end[producer] + lag
            if arrival > now:
                now = arrival
            if i in more:
                for producer, lag in more[i]:
                    if end[producer] < 0:
                        yield producer
                    now = max(now, end[producer] + lag)
            end[i] = now = now + cost
            order.append(i)
            if i in waiting:
                ready.extend(waiting.pop(i))

    ready = [run(low, high) for low, high in pairwise(cut)][::-1]
    waiting: dict[int, list[Iterator[int]]] = {}
    while ready:
        rank = ready.pop()
        for producer in rank:
            waiting.setdefault(producer, []).append(rank)
            break
    ends, turn = np.array(end, dtype=np.int64)[:size], np.full(size, -1, dtype=np.int64)
    turn[order] = np.arange(len(order))
    ran = np.concatenate([[0], np.cumsum(ends >= 0)])[slots.cut]
    return np.where(ends < 0, -1, ends - slots.cost), ends, turn, slots.cut[:-1] + np.diff(ran)
