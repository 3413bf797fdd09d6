"""Runs lists that wait for each other, in one greedy pass: the basis of timelines and queues.

    list 0   a ─ b ─── c            an entry begins when the one before it has ended and all its inputs have arrived
                 │    ↗
    list 1   d ──┴─ e               end = cost + max(end of the entry before, end of each input + its delay)

If lists wait for each other in a cycle, the run stops there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Self, TypeAlias

import numpy as np

from pipesched.model.columns import PLACE, Column, Ints, fresh, places
from pipesched.support.record import Record

Waits: TypeAlias = tuple[Column, Column, Ints]
"""Three columns: entries, the entry that each one waits for (-1 for none), and the delay after that entry ends."""


def together(waits: Sequence[Waits]) -> Waits:
    """Concatenate several waits."""
    entry, other, delay = (np.concatenate(column) for column in zip(*waits, strict=True))
    return entry, other, delay


ROUNDS = range(12, 513)  # for so many lists, numpy's rounds over lists beat the event loop over entries
TRIED, WORTH = 4096, 8  # after TRIED rounds it is known whether they run WORTH entries each
AHEAD = 4096  # entries that are run before checking whether one of them had to wait
NEVER = 1 << 62  # the end of an entry that has not run
RAISED = 16  # most passes over all entries that raise their ends; one takes a twentieth of the time of a run
STEADY = 128  # rounds of lists in step before repetitions are looked for
_WIDTH = 4  # inputs of an entry that are stored as columns
_STRETCH = 4096  # entries of a list that the event loop reads at a time


class Lists(Record):
    """Lists of entries, such as the operations of each rank. cost: the cost of each entry.
    cut: the first entry of each list, then the number of entries. inputs: up to four pairs of columns: the entry that
    each entry waits for (len(cost) for none), and its delays or None. further: the inputs beyond these four.
    """

    cost: Ints
    cut: Ints
    inputs: tuple[tuple[Column, Ints | None], ...]
    further: Waits

    @classmethod
    def of(cls, cost: Ints, cut: Ints, waits: Waits) -> Self:
        """Build lists whose entries have these waits, in this order."""
        consumer, producer, delay = waits
        size, late, parts = len(cost), bool(delay.any()), list[Ints | slice]([slice(None), slice(0)])
        waiting = np.zeros(size, dtype=np.bool_)
        waiting[consumer] = True
        if np.count_nonzero(waiting) < len(consumer):  # some entries wait for several others
            order = np.argsort(consumer, kind="stable")
            consumer, producer, delay = consumer[order], producer[order], delay[order]
            number = np.minimum(places(fresh(consumer)), _WIDTH)
            parts = [np.flatnonzero(number == x) for x in (*range(min(int(number.max()) + 1, _WIDTH)), _WIDTH)]
        inputs = []
        for at in parts[:-1]:
            need, delays = np.full(size, size, dtype=PLACE), np.zeros(size, dtype=np.int64) if late else None
            need[consumer[at]] = producer[at]
            need[need < 0] = size
            if delays is not None:
                delays[consumer[at]] = delay[at]
            inputs.append((need, delays))
        left = parts[-1]
        return cls(cost, cut, tuple(inputs), (consumer[left], producer[left], delay[left]))


Runner: TypeAlias = Callable[[Lists], tuple[Ints, Column, Ints]]


def run(lists: Lists, *, rounds: bool = True) -> tuple[Ints, Column, Ints]:
    """Return the end and the turn of every entry, -1 if it never runs, and the entry at which each list stopped. The
    turn of an entry is larger than the turns of the entries that it waits for. rounds: whether entries of different
    lists may have the same turn.
    """
    many = len(lists.cut) - 1 in ROUNDS and not len(lists.further[0])
    return run_rounds(lists) if rounds and many else run_events(lists)


def ends_from(least: Ints, lists: Lists) -> Ints:
    """Return the end of every entry of lists without a cycle of waits. least: a lower bound on each end.

    The result is the smallest ends that satisfy every wait. Ends are raised from `least`, list by list, until all waits
    are satisfied, which is fast if few entries are late; otherwise the lists are run.
    """
    end = np.append(least, 0)
    consumer, producer, delay = lists.further
    for _ in range(RAISED):
        raised = False
        for low, high in pairwise(lists.cut.tolist()):
            cost, before = lists.cost[low:high], end[low:high].copy()
            begin = before - cost
            for need, late in lists.inputs:
                arrival = end[need[low:high]]
                np.maximum(begin, arrival if late is None else arrival + late[low:high], out=begin)
            more = slice(*np.searchsorted(consumer, (low, high)))
            np.maximum.at(begin, consumer[more] - low, end[producer[more]] + delay[more])
            total = np.cumsum(cost)
            end[low:high] = np.maximum.accumulate(begin - total + cost) + total
            raised |= not np.array_equal(end[low:high], before)
        if not raised:
            return end[:-1]
    return run(lists)[0]


def run_rounds(lists: Lists) -> tuple[Ints, Column, Ints]:
    """Run the lists in rounds: in each round, every list runs its next entry if the inputs of that entry are ready. No
    entry may have further inputs.

    The entries of one round are independent, and the number of the round is their turn. Some rounds are run as if no
    list had to wait, and are undone if a list did have to wait. Entries that repeat are run together in one step. If
    lists mostly wait for each other, a round runs few entries; the event loop, which is then faster, takes over.
    """
    size, steady, look = len(lists.cost), 0, STEADY
    turn, end = np.full(size, -1, dtype=PLACE), np.full(size + 1, NEVER, dtype=np.int64)
    end[size] = 0  # the end of an absent input
    at, last = lists.cut[:-1].copy(), lists.cut[1:]
    clock = np.zeros(len(at), dtype=np.int64)
    live, round_number, ahead = np.flatnonzero(at < last), 0, 1
    while len(live):
        i = at[live] + np.arange(ahead)[:, None]
        now = _in_step(lists, i, clock[live], end)
        ready = np.flatnonzero(now < NEVER)
        if len(ready) < len(live):
            end[i] = NEVER
            if ahead > 1:
                ahead = 1
                continue
            if not len(ready):
                break
            i, now = i[:, ready], now[ready]
            end[i[0]] = now
        ranks = live[ready]
        turn[i] = round_number + np.arange(ahead, dtype=PLACE)[:, None]
        clock[ranks] = now
        at[ranks] += ahead
        round_number += ahead
        steady = steady + ahead if len(ready) == len(live) else 0
        if look <= steady and (at[live] < last[live]).all():
            more = _repeated(lists, at[live], end, turn, steady)
            at[live] += more
            clock[live] = end[at[live] - 1]
            round_number, look = round_number + more, 2 * look
        if round_number == TRIED and int((at - lists.cut[:-1]).sum()) < WORTH * TRIED:
            return run_events(lists)
        left = last[live] - at[live]
        live = live[left > 0]
        ahead = 2 * ahead if len(ready) == len(left) else 1
        ahead = max(1, min(ahead, AHEAD // max(1, len(live)), TRIED - round_number % TRIED, int(left.min())))
    end[end >= NEVER] = -1
    return end[:size], turn, at


def _repeated(lists: Lists, at: Ints, end: Ints, turn: Column, steady: int) -> int:
    """Run the next entries of lists that were in step for `steady` rounds, as long as they repeat earlier entries;
    return the number of entries run per list.

    Entries repeat if they cost the same as the entries one period before, and their inputs are one period later too.
    They then end later by a constant time, if this is true of the last entries and of the inputs that have already run.
    """
    last, size, cost = lists.cut[lists.cut.searchsorted(at, side="right")], len(lists.cost), lists.cost
    need = lists.inputs[0][0][at[0] : last[0]]
    by = _period(np.where(need < size, need - np.arange(at[0], last[0]), size), steady - 1)
    if not by or (later := end[at - 1] - end[at - 1 - by]).min() < later.max():
        return 0
    alike, new = cost[by:] == cost[:-by], np.zeros(size + 1, dtype=np.bool_)
    for need, delay in lists.inputs:
        moved = need[by:] - need[:-by]
        alike &= (moved == by) | (need[by:] == size) & (moved == 0)
        alike &= True if delay is None else delay[by:] == delay[:-by]
    odd = np.append(np.flatnonzero(~alike) + by, size)
    count = int((np.minimum(odd[odd.searchsorted(at)], last) - at).min()) // by * by
    parts = [slice(first, first + count) for first in at.tolist()]
    for here in parts:
        new[here] = True
    for need, _ in lists.inputs:
        old = need[new[:-1] & ~new[need] & (need < size)]
        if (end[old] != end[old - by] + later[0]).any():
            return 0
    guess = np.arange(1, count // by + 1)[:, None] * later[0]
    for here in parts:
        end[here] = (guess + end[here.start - by : here.start]).ravel()
        turn[here] = np.arange(1, count + 1, dtype=PLACE) + turn[here.start - 1]
    return count


def _period(column: Column, most: int) -> int:
    """Return the smallest distance up to `most` at which the first half of a column repeats, or 0 if none does."""
    half = len(column) // 2
    some = (np.flatnonzero(column[1 : min(half, most) + 1] == column[:1]) + 1).tolist()
    return next((by for by in some if np.array_equal(column[by : by + half], column[:half])), 0)


def _in_step(lists: Lists, entries: Ints, now: Ints, end: Ints) -> Ints:
    """Run rows of one entry per list, row by row; return the ends of the last row, NEVER for an entry that waits."""
    inputs = [(need[entries], None if delay is None else delay[entries]) for need, delay in lists.inputs]
    for number, cost in enumerate(lists.cost[entries]):
        for need, delay in inputs:
            arrival = end.take(need[number])
            if delay is not None:
                arrival += delay[number]
            np.maximum(now, arrival, out=now)
        now += cost
        end[entries[number]] = now
    return now


def run_events(lists: Lists) -> tuple[Ints, Column, Ints]:
    """Run the event loop: each list runs until it waits, and is woken by the entry that it waits for."""
    size = len(lists.cost)
    end, turn = array("q", [-1]) * size, array("i", [-1]) * size
    end.append(0)  # the end of an absent input
    (need, delay), more = lists.inputs[0], _more(lists)
    ready: list[Iterator[int]] = []
    waiting: dict[int, list[Iterator[int]]] = {}
    clock = 0
    nothing = np.broadcast_to(np.int64(0), size)

    def run(low: int, high: int) -> Iterator[int]:
        """Run a list; yield each entry that it waits for."""
        nonlocal clock
        now = 0
        for first in range(low, high, _STRETCH):
            part = slice(first, min(first + _STRETCH, high))
            delays = nothing if delay is None else delay
            each = zip(need[part].tolist(), delays[part].tolist(), lists.cost[part].tolist(), strict=True)
            for i, (producer, lag, cost) in enumerate(each, first):
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
                turn[i] = clock
                clock += 1
                if i in waiting:
                    ready.extend(waiting.pop(i))

    ready += [run(low, high) for low, high in pairwise(lists.cut.tolist())][::-1]
    while ready:
        rank = ready.pop()
        for producer in rank:
            waiting.setdefault(producer, []).append(rank)
            break
    ends = np.frombuffer(end, dtype=np.int64)[:size]
    ran = np.append(0, (ends >= 0).cumsum())[lists.cut]
    stopped = lists.cut[1:] if clock == size else lists.cut[:-1] + np.diff(ran)
    return ends, np.frombuffer(turn, dtype=PLACE), stopped


def _more(lists: Lists) -> dict[int, list[tuple[int, int]]]:
    """Return, for each entry, its inputs except the first one, each as (entry, delay)."""
    found: dict[int, list[tuple[int, int]]] = {}
    for waits in (*(_waits(*column, len(lists.cost)) for column in lists.inputs[1:]), lists.further):
        for entry, producer, delay in zip(*(column.tolist() for column in waits), strict=True):
            found.setdefault(entry, []).append((producer, delay))
    return found


def _waits(need: Column, delay: Ints | None, size: int) -> Waits:
    """Return the waits that a column of inputs expresses."""
    at = np.flatnonzero(need < size)
    return at, need[at], np.zeros(len(at), dtype=np.int64) if delay is None else delay[at]
