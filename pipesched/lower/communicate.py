"""Schedule -> Program: every message is sent and received at one global instant.

The schedule has been list-scheduled once (`analysis.timeline`). All events are put into one global order,

    a compute    at its start
    a message    at the end of its producer, before the computes that start then

and each message writes its SEND on one rank and its RECV on the other at that place of the order. A rank's list is
what it gets, in order. Contracting each message to one point, the global order orders all of them, so the program
finishes under rendezvous, hence under every model; both ends of a channel see the same sequence of messages, so they
match by position. It fails only if the compute order itself is a cycle. (Compare torch's `_add_send_recv`.)

    REDUCE_GRAD   after the last W or B of a stage, and the messages of that instant
    SYNC          for the trained stages with copies, ascending, at the end: rendezvous of two of them after another
    STEP          last
"""

from __future__ import annotations

import numpy as np

from pipesched.analysis.dependencies import Dependencies, Edges
from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import Column, Ints, among, makes
from pipesched.model.lists import Chosen
from pipesched.model.ops import COMPUTES, RECEIVES, SENDS, Op, Result
from pipesched.model.schedule import Program, Schedule

MESSAGE, REDUCE, COMPUTE = 0, 1, 2  # what comes first among the events of one instant

Entries = tuple[Column, ...]
"""Instructions to be put in order, as columns: rank, op, stage, microbatch, peer, second, source and event. `event`
numbers the instant; the two ends of a message share it."""

_TYPES = (np.int32, np.int8, np.int32, np.int32, np.int32, np.bool_, np.int32, np.int64)


def communicate(schedule: Schedule, dependencies: Dependencies, times: Timeline) -> Program:
    """Lower a schedule whose timeline is finished; O(n log n) in the number of operations."""
    found = dependencies.messages()
    consumer, producer = found.consumer, found.producer
    reduced = _last_backward(schedule)
    count = (len(schedule), len(consumer), len(reduced))
    which = np.repeat(np.array([COMPUTE, MESSAGE, REDUCE], dtype=np.int8), count)
    time = np.concatenate([times.start, times.end[producer], times.end[reduced]])
    if np.any(times.end == times.start):
        turn = np.concatenate([times.turn, times.turn[producer], times.turn[reduced]])
        event = _causal_instants(time, turn, which)
    else:
        event = _instants(time, which)
    computes, messages, reductions = np.split(event, np.cumsum(count[:2]))
    size = len(event)
    parts = [
        _computes(schedule, computes),
        *_messages(schedule, producer, consumer, messages),
        _entries(schedule.rank[reduced], Op.REDUCE_GRAD, schedule.stage[reduced], source=reduced, event=2 * reductions),
        *_endings(schedule, size),
    ]
    rank, op, stage, microbatch, peer, second, source, event = _sorted(parts)
    return Program(
        schedule.name,
        schedule.placement,
        op,
        stage,
        microbatch,
        peer=peer,
        group=np.broadcast_to(np.int32(-1), len(op)),
        communicator=np.broadcast_to(np.int32(0), len(op)),
        second=second,
        start=np.searchsorted(rank, np.arange(schedule.ranks + 1)).astype(np.int64),
        origin=Chosen(schedule.origin, source),
        clock=event,
        other=None if schedule.placement.chain else _other_ends(schedule, found, messages, op, event),
    )


def _sorted(parts: list[Entries]) -> Entries:
    """All parts, by rank, then by instant. One packed sort, then a column at a time."""
    key = np.concatenate([(part[0].astype(np.int64) << 40) | part[-1] for part in parts])
    order = np.argsort(key, kind="stable").astype(np.int32)
    del key
    return tuple(np.concatenate(columns)[order] for columns in zip(*parts, strict=True))


def _instants(time: Ints, which: Column) -> Ints:
    """The place of every event in one global order: by time, messages before the computes that start then."""
    if int(time.max(initial=0)) < 2**60:
        return _places(np.argsort(4 * time + which, kind="stable"))
    return _places(np.lexsort((which, time)))


def _causal_instants(time: Ints, turn: Ints, which: Column) -> Ints:
    """Instants of messages where an operation takes no time and a message would precede its producer.

    The turn in which computes ran decides, and messages follow their producer.
    """
    return _places(np.lexsort(((which - COMPUTE) % 3, turn, time)))


def _places(order: Ints) -> Ints:
    """The inverse of a permutation."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


def _last_backward(schedule: Schedule) -> Ints:
    """The last W or B of each stage on each rank."""
    at = np.flatnonzero(makes(schedule.op, Result.WEIGHTS))[::-1]
    key = schedule.rank[at].astype(np.int64) * (int(schedule.stage.max(initial=0)) + 1) + schedule.stage[at]
    _, first = np.unique(key, return_index=True)
    return at[first]


def _entries(
    rank: Column,
    op: Column | Op,
    stage: Column,
    *,
    event: Column,
    microbatch: Column | int = -1,
    peer: Column | int = -1,
    second: Column | bool = False,
    source: Column | int = -1,
) -> Entries:
    row = (rank, op, stage, microbatch, peer, second, source, event)
    return tuple(np.broadcast_to(np.asarray(x, dtype=t), len(rank)) for x, t in zip(row, _TYPES, strict=True))


def _computes(schedule: Schedule, event: Ints) -> Entries:
    """The operations; the second part of a pair stays behind the first."""
    second = np.flatnonzero(schedule.joined)
    event = 2 * event
    event[second] = event[second - 1] + 1
    return _entries(
        schedule.rank,
        schedule.op,
        schedule.stage,
        microbatch=schedule.microbatch,
        second=schedule.second,
        source=np.arange(len(schedule)),
        event=event,
    )


def _messages(schedule: Schedule, producer: Ints, consumer: Ints, event: Ints) -> list[Entries]:
    """A SEND where the producer is and a RECV where the consumer is; both carry the stage of their own rank."""
    source, target = schedule.rank[producer], schedule.rank[consumer]
    microbatch = schedule.microbatch[producer]
    sends, receives = (_OF_CONSUMER[role][schedule.op[consumer]] for role in (SENDS, RECEIVES))
    common = {"microbatch": microbatch, "source": producer, "event": 2 * event}
    return [
        _entries(source, sends, schedule.stage[producer], peer=target, **common),
        _entries(target, receives, schedule.stage[consumer], peer=source, **{**common, "source": consumer}),
    ]


def _other_ends(schedule: Schedule, found: Edges, messages: Ints, op: Column, event: Ints) -> Column:
    """The stage at the other end of every message that has one to choose; -1 of other instructions."""
    ends = np.full((2, 1 + int(event.max(initial=0)) // 2), -1, dtype=np.int32)
    ends[:, messages] = schedule.stage[found.consumer], schedule.stage[found.producer]
    used, made_by = ends[:, event // 2]
    return np.asarray(np.where(among(op, SENDS), used, made_by))


_OF_CONSUMER = {
    role: np.array([next((x for x in role if x.kind.result is op.kind.result), -1) for op in COMPUTES])
    for role in (SENDS, RECEIVES)
}
"""By kind of compute: what sends or receives the result that it takes."""


def _endings(schedule: Schedule, size: int) -> list[Entries]:
    """SYNC of the replicated stages in ascending order, then STEP; nothing for a forward-only schedule."""
    if schedule.forward_only:
        return []
    trained = np.flatnonzero(schedule.placement.wants[Result.WEIGHTS]).tolist()
    pairs = [(stage, *pair) for stage in trained for pair in schedule.placement.meetings(stage)]
    everywhere, nowhere = np.arange(schedule.ranks), np.full(schedule.ranks, -1)
    step = _entries(everywhere, Op.STEP, nowhere, event=np.full(schedule.ranks, 2 * (size + len(pairs))))
    if not pairs:
        return [step]
    stage, low, high = np.array(pairs).T
    event = 2 * (size + np.arange(len(pairs)))
    return [
        _entries(low, Op.SYNC, stage, peer=high, event=event),
        _entries(high, Op.SYNC, stage, peer=low, event=event),
        step,
    ]
