"""Lowers a Schedule to a Program: every message is sent and received at one global instant.

The schedule has been list-scheduled once (`analysis.timeline`). All events are put in one global order:

    a compute operation    at its start
    a message              at the end of its producer, before the operations that start at that time

Each message adds its SEND to one rank and its RECV to the other at its place in the order. The list of a rank is
everything added to it, in order. If each message is contracted to a point, the points are totally ordered, so the
program finishes under rendezvous, hence under every model; both ends of a channel see the same sequence of messages, so
they match by position. Lowering fails only if the compute order itself has a cycle. (Compare torch's `_add_send_recv`.)

    REDUCE_GRAD   after the last W or B of a stage, or the last before a STEP inside, and after that instant's messages
    SYNC          for the trained stages with copies, ascending, at the end: pairwise rendezvous in turn
    STEP          last, or after the operation that it follows in the order
"""

from __future__ import annotations

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import PLACE, Column, Ints, constant, makes, small
from pipesched.model.lists import Chosen
from pipesched.model.ops import COMPUTES, RECEIVES, SENDS, Op, Result
from pipesched.model.schedule import Program, Schedule

MESSAGE, REDUCE, COMPUTE = 0, 1, 2  # precedence among the events of one instant


def communicate(schedule: Schedule, dependencies: Dependencies, times: Timeline) -> Program:
    """Lower a schedule in whose timeline every operation runs, in O(n log n) for n operations.

    The instructions are first collected as rows, part by part: operations, sends, receives, reductions, both sides of
    SYNCs, and STEPs. Each row before the SYNCs comes from an operation, its source.
    """
    found, (local, reduced, of), syncs = dependencies.messages(), _locals(schedule), _syncs(schedule)
    stages, low, high = syncs.T
    steps = np.arange(0 if schedule.forward_only or schedule.steps else schedule.ranks)
    size, messages = len(schedule), len(found)
    computes, endings = np.arange(size, dtype=PLACE), np.full(2 * len(syncs) + len(steps), -1, dtype=PLACE)
    sources = (found.producer, found.consumer, reduced)
    rank = np.concatenate([schedule.rank, *(schedule.rank[at] for at in sources), low, high, steps], dtype=np.int64)
    start = np.append(0, np.bincount(rank, minlength=schedule.ranks).cumsum())
    row, clock = _laid_out(rank, _instants(times, found.producer, reduced), size, messages, len(syncs))
    del rank  # frees much memory
    source, last = np.concatenate([computes, *sources, endings], dtype=PLACE)[row], row - (size + 2 * messages)
    late = (last >= 0).nonzero()[0]
    stage, microbatch = (x[source].astype(np.int32, copy=False) for x in (schedule.stage, schedule.microbatch))
    stage[late] = np.concatenate([of, stages, stages, endings[: len(steps)]])[last[late]]
    microbatch[late] = -1
    there = np.concatenate([found.consumer, found.producer])
    none = np.full(size + len(reduced), -1, dtype=np.int32)

    def ends(of: Column, *endings: Column) -> Column:
        """Return a column with values for messages and for the last instructions, and -1 for all other instructions."""
        return np.concatenate([none[:size], of[there], none[size:], *endings], dtype=np.int32)[row]

    taken = schedule.op[found.consumer]
    sends, receives = (_OF_CONSUMER[role][taken] for role in (SENDS, RECEIVES))
    rest = np.append(local, np.repeat(_ENDINGS, [2 * len(syncs), len(steps)]))
    return Program(
        schedule.name,
        schedule.placement,
        np.concatenate([schedule.op, sends, receives, rest], dtype=np.int8)[row],
        stage,
        microbatch,
        peer=ends(schedule.rank, high, low, endings[: len(steps)]),
        group=constant(np.int32(-1), len(row)),
        communicator=constant(np.int32(0), len(row)),
        second=(row < size) & schedule.second[source] if schedule.second.any() else constant(np.False_, len(row)),
        start=start,
        origin=Chosen(schedule.origin, source),
        clock=clock,
        other=None if schedule.placement.chain else ends(schedule.stage, endings),
        rule=schedule.steps.rule or "stash" if schedule.steps else "",  # where nothing crosses, all rules are equal
    )


def _instants(times: Timeline, producer: Column, reduced: Ints) -> Column:
    """Return the places of operations, messages and reductions in one global order by time, messages before operations.

    If operations take no time, so that a message could precede its producer, events are ordered by the turn in which
    the timeline placed each operation, with messages after operations.
    """
    count = (len(times.start), len(producer), len(reduced))
    time = np.concatenate([times.start, times.end[producer], times.end[reduced]])
    place, bits = np.arange(len(time), dtype=PLACE), len(time).bit_length()
    if (turns := np.any(times.end == times.start)) or 4 * (int(time.max(initial=0)) + 1) << bits >= 2**63:
        which = np.repeat(np.array([COMPUTE, MESSAGE, REDUCE], dtype=np.int8), count)
        turn = np.concatenate([times.turn, times.turn[producer], times.turn[reduced]])
        order = np.lexsort(((which - COMPUTE) % 3, turn, time) if turns else (which, time))
    else:
        time *= 4  # in place, since these are large
        time[: count[0]] += COMPUTE
        time[count[0] + count[1] :] += REDUCE
        time <<= bits
        time += place
        time.sort(kind="stable")  # the column consists of ascending runs, which a stable sort merges
        order = np.bitwise_and(time, (1 << bits) - 1, out=time)
    found = np.empty_like(place)
    found[order] = place
    return found


def _laid_out(rank: Ints, instant: Column, size: int, messages: int, syncs: int) -> tuple[Column, Column]:
    """Return the rows of all parts by rank, ordered by instant, and the instants.

    A message or a SYNC has a row in each of two parts, at one instant; SYNCs and STEPs come after all others. rank: the
    rank of each row, overwritten.
    """
    bits, later = len(rank).bit_length(), np.arange(len(instant), len(rank) - messages - syncs)
    rank <<= bits
    rank += np.concatenate([instant[: size + messages], instant[size:], later[:syncs], later])
    row = rank.argsort(kind="stable").astype(PLACE)
    rank &= (1 << bits) - 1
    return row, rank[row].astype(PLACE)


def _locals(schedule: Schedule) -> tuple[Column, Ints, Column]:
    """Return the REDUCE_GRADs and the STEPs inside the order: kinds, preceding operations, and stages."""
    steps = schedule.steps
    if steps is None or not len(schedule):
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
    at = makes(schedule.op, Result.WEIGHTS).nonzero()[0]
    key = schedule.rank[at].astype(np.int64) * (int(schedule.stage.max(initial=0)) + 1) + schedule.stage[at]
    order = small(key).argsort(kind="stable")
    key = key[order]
    return np.asarray(at[order[np.append(key[1:] != key[:-1], True)[: len(key)]]])


_ENDINGS = np.array([Op.SYNC, Op.STEP], dtype=np.int8)
_OF_CONSUMER = {
    role: np.array([next((x for x in role if x.kind.result is op.kind.result), -1) for op in COMPUTES], dtype=np.int8)
    for role in (SENDS, RECEIVES)
}
"""For each kind of compute, the instruction that sends or receives its input."""


def _syncs(schedule: Schedule) -> Column:
    """Return the stage and the two ranks of each SYNC, by stage; none for a forward-only schedule."""
    synced = schedule.placement.bidirectional and not schedule.forward_only
    trained = np.flatnonzero(schedule.placement.wants[Result.WEIGHTS] & synced).tolist()
    pairs = [(stage, *pair) for stage in trained for pair in schedule.placement.meetings(stage)]
    return np.array(pairs, dtype=PLACE).reshape(-1, 3)
