"""Lowers a Schedule to a Program: every message is sent and received at one global instant.

The schedule has been list-scheduled once (`analysis.timeline`). All events are put into one global order,

    a compute    at its start
    a message    at the end of its producer, before the computes that start then

and each message writes its SEND on one rank and its RECV on the other at that place of the order. A rank's list is
everything written there, in order. If each message is contracted to one point, the global order orders all of them, so
the program finishes under rendezvous, hence under every model; both ends of a channel see the same sequence of
messages, so they match by position. This fails only if the compute order itself has a cycle. (Compare torch's
`_add_send_recv`.)

    REDUCE_GRAD   after the last W or B of a stage, or the last before each STEP inside, and that instant's messages
    SYNC          for the trained stages with copies, ascending, at the end: pairwise rendezvous in turn
    STEP          last, or after the operation that it follows in the order
"""

from __future__ import annotations

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import PLACE, Column, Ints, makes
from pipesched.model.lists import Chosen
from pipesched.model.ops import COMPUTES, RECEIVES, SENDS, Op, Result
from pipesched.model.schedule import Program, Schedule

MESSAGE, REDUCE, COMPUTE = 0, 1, 2  # precedence among the events of one instant


def communicate(schedule: Schedule, dependencies: Dependencies, times: Timeline) -> Program:
    """Lower a schedule whose timeline is finished; O(n log n) in the number of operations.

    Instructions are first rows, in parts: computes, sends, receives, reductions, the two sides of SYNCs, and STEPs.
    Each one before the SYNCs comes from an operation, its source.
    """
    found, (local, reduced, of), syncs = dependencies.messages(), _locals(schedule), _syncs(schedule)
    stages, low, high = syncs.T
    steps = np.arange(0 if schedule.forward_only or schedule.steps else schedule.ranks)
    size, messages = len(schedule), len(found)
    parts = [size, messages, messages, len(reduced), len(syncs), len(syncs), len(steps)]
    source = np.concatenate([np.arange(size, dtype=PLACE), found.producer, found.consumer, reduced], dtype=PLACE)
    rank = np.concatenate([schedule.rank[source], low, high, steps], dtype=np.int64)
    row, clock, start = _laid_out(rank, _instants(times, found.producer, reduced), parts, schedule.ranks)
    del rank  # frees much memory

    def ordered(*columns: Column) -> Column:
        return np.concatenate(columns, dtype=np.int32)[row]

    compute, reduce, ending, step = (
        np.broadcast_to(np.int32(-1), x) for x in (size, len(reduced), sum(parts[4:]), parts[6])
    )
    alone = np.broadcast_to(np.False_, len(row))
    there = np.concatenate([found.consumer, found.producer])
    sends, receives = (_OF_CONSUMER[role][schedule.op[found.consumer]] for role in (SENDS, RECEIVES))
    rest = np.append(local, np.repeat([Op.SYNC, Op.STEP], [2 * parts[4], parts[6]]))
    return Program(
        schedule.name,
        schedule.placement,
        np.concatenate([schedule.op, sends, receives, rest], dtype=np.int8)[row],
        ordered(schedule.stage[source[: size + 2 * messages]], of, stages, stages, step),
        ordered(schedule.microbatch[source[: size + 2 * messages]], reduce, ending),
        peer=ordered(compute, schedule.rank[there], reduce, high, low, step),
        group=np.broadcast_to(np.int32(-1), len(row)),
        communicator=np.broadcast_to(np.int32(0), len(row)),
        second=(row < size) & schedule.second[np.minimum(row, size - 1)] if schedule.second.any() else alone,
        start=start,
        origin=Chosen(schedule.origin, ordered(source, ending)),
        clock=clock,
        other=None if schedule.placement.chain else ordered(compute, schedule.stage[there], reduce, ending),
        rule=schedule.steps.rule or "stash" if schedule.steps else "",  # where nothing crosses, all rules are equal
    )


def _instants(times: Timeline, producer: Column, reduced: Ints) -> Column:
    """Return computes, messages and reductions in one global order by time, messages before computes.

    If an operation takes no time and a message would precede its producer, the turn in which computes ran decides, and
    messages follow their producer.
    """
    count = (len(times.start), len(producer), len(reduced))
    which = np.repeat(np.array([COMPUTE, MESSAGE, REDUCE], dtype=np.int8), count)
    time = np.concatenate([times.start, times.end[producer], times.end[reduced]])
    if np.any(times.end == times.start):
        turn = np.concatenate([times.turn, times.turn[producer], times.turn[reduced]])
        return np.lexsort(((which - COMPUTE) % 3, turn, time)).astype(PLACE)
    if 4 * (int(time.max(initial=0)) + 1) * len(time) >= 2**63:
        return np.lexsort((which, time)).astype(PLACE)
    time *= 4  # in place, since these are large
    time += which
    time *= len(time)
    time += np.arange(len(time), dtype=PLACE)
    time.sort()
    return np.asarray(np.remainder(time, max(1, len(time)), out=time), dtype=PLACE)


def _laid_out(rank: Ints, order: Column, count: list[int], ranks: int) -> tuple[Column, Column, Ints]:
    """Return the rows of all parts by rank, in the order of their instants; the ranks; and the offsets by rank.

    A message and a SYNC have a row in two parts, at one instant. rank: the rank of each row, overwritten.
    """
    first = np.cumsum([0, *count], dtype=PLACE)
    order[order >= first[2]] += first[2] - first[1]
    order = np.concatenate([order, np.arange(first[4], first[5]), np.arange(first[6], first[7])], dtype=PLACE)
    sides = np.stack([order, order + np.where(order < first[2], count[1], count[4]).astype(PLACE)], axis=1).reshape(-1)
    bits, key = len(sides).bit_length(), np.empty(first[-1], dtype=np.int64)  # rank, instant, side
    key[order] = np.arange(0, len(sides), 2)
    for one in (1, 4):
        key[first[one + 1] : first[one + 2]] = key[first[one] : first[one + 1]] + 1
    rank <<= bits
    key += rank
    key.sort()
    start = np.searchsorted(key, np.arange(ranks + 1) << bits)
    key &= (1 << bits) - 1
    row = sides[key]
    key >>= 1
    return row, key.astype(PLACE), start


def _locals(schedule: Schedule) -> tuple[Column, Ints, Column]:
    """Return the REDUCE_GRADs, and the STEPs inside: their kinds, the operations that they follow, their stages."""
    steps = schedule.steps
    if steps is None:
        at = _last_backward(schedule)
        return np.full(len(at), Op.REDUCE_GRAD, dtype=np.int8), at, schedule.stage[at]
    after = np.maximum(steps.at - 1, np.minimum(schedule.start[steps.rank], len(schedule) - 1))
    weights, wide = np.flatnonzero(makes(schedule.op, Result.WEIGHTS)), len(schedule) + 1
    keys = np.sort(schedule.stage[weights].astype(np.int64) * wide + weights)
    last = np.searchsorted(keys, steps.stage * wide + steps.at) - 1
    at = np.where(last >= 0, np.append(keys, 0)[last] - steps.stage * wide, -1)
    at = np.where(at >= 0, at, after)
    kinds = np.repeat([Op.REDUCE_GRAD, Op.STEP], len(steps)).astype(np.int8)
    return kinds, np.concatenate([at, after]), np.tile(steps.stage, 2)


def _last_backward(schedule: Schedule) -> Ints:
    """Return the last W or B of each stage on each rank."""
    at = np.flatnonzero(makes(schedule.op, Result.WEIGHTS))[::-1]
    key = schedule.rank[at].astype(np.int64) * (int(schedule.stage.max(initial=0)) + 1) + schedule.stage[at]
    _, first = np.unique(key, return_index=True)
    return at[first]


_OF_CONSUMER = {
    role: np.array([next((x for x in role if x.kind.result is op.kind.result), -1) for op in COMPUTES], dtype=np.int8)
    for role in (SENDS, RECEIVES)
}
"""By kind of compute: the instruction that sends or receives the result that it takes."""


def _syncs(schedule: Schedule) -> Column:
    """Return stage and two ranks of each SYNC, stages ascending; none for a forward-only schedule."""
    synced = schedule.placement.bidirectional and not schedule.forward_only
    trained = np.flatnonzero(schedule.placement.wants[Result.WEIGHTS] & synced).tolist()
    pairs = [(stage, *pair) for stage in trained for pair in schedule.placement.meetings(stage)]
    return np.array(pairs, dtype=PLACE).reshape(-1, 3)
