"""How many messages a rank has in hand, by list order, without a clock.

    RECV_F0  RECV_F1  F0  RECV_F2  F1  F2        received and not yet used      1 2 1 2 1 0
    F0  F1  SEND_F0  F2  SEND_F1  SEND_F2        made and not yet sent          1 2 1 2 1 0

A message is used by the F, I or B of its stage and microbatch, and made by the one it is sent after. The buffers of
these messages come on top of the peak of `analysis.memory`.

A lowering sends a message as soon as it is made and receives it as soon as it is sent, so what a rank has in hand there
follows from when the operations run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import Ints, running_sum
from pipesched.model.ops import MAKERS, RECEIVES, SENDS, USERS, Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class InHand:
    """Most messages in hand, and the instruction after which a rank has them first, -1 where it has none; by rank."""

    most: tuple[int, ...]
    at: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Buffers:
    """received: and not yet used. unsent: made and not yet sent."""

    received: InHand
    unsent: InHand


def buffers(program: Program) -> Buffers:
    """What the lists of a program say; O(instructions). A message that is never used stays in hand."""
    received, unsent = (np.zeros(len(program), dtype=np.int64) for _ in range(2))
    for op in (*SENDS, *RECEIVES):
        assert op.kind.result is not None
        computes = (MAKERS if op.send else USERS)[op.kind.result]
        message = np.flatnonzero(program.op == op)
        compute = _first(program, computes, message)
        if op.receive:
            received[message] += 1
            np.subtract.at(received, compute[compute > message], 1)
        else:
            made = (compute >= 0) & (compute < message)
            np.add.at(unsent, compute[made], 1)
            unsent[message[made]] -= 1
    return Buffers(_most(program, received), _most(program, unsent))


def _first(program: Program, computes: tuple[Op, ...], message: Ints) -> Ints:
    """Where the stage and microbatch of each message has one of the computes first on the message's rank, or -1."""
    at = np.flatnonzero(np.isin(program.op, computes))[::-1]
    wide = int(program.microbatch.max(initial=0)) + 2
    high = int(program.stage.max(initial=0)) + 2

    def key(index: Ints) -> Ints:
        home = program.rank[index].astype(np.int64) * high + program.stage[index] + 1
        return np.asarray(home * wide + program.microbatch[index] + 1)

    known, first = np.unique(key(at)[::-1], return_index=True)
    if not len(known):
        return np.full(len(message), -1, dtype=np.int64)
    wanted = key(message)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, at[::-1][first[place]], -1)


def _most(program: Program, change: Ints) -> InHand:
    total = running_sum(change, program.start)
    most, at = [], []
    for low, high in zip(program.start[:-1].tolist(), program.start[1:].tolist(), strict=True):
        top = low + int(np.argmax(total[low:high])) if high > low else -1
        most.append(max(int(total[top]), 0) if top >= 0 else 0)
        at.append(top if most[-1] else -1)
    return InHand(tuple(most), tuple(at))


def lowered(schedule: Schedule, dependencies: Dependencies, times: Timeline) -> tuple[int, ...]:
    """Most messages received and not yet used, by rank, where each arrives at the end of its producer.

    What arrives when another is used arrives first, as in `lower.communicate`.
    """
    consumer = np.flatnonzero(dependencies.crosses)
    rank = np.concatenate([schedule.rank[consumer]] * 2)
    change = np.repeat(np.array([1, -1]), len(consumer))
    when = np.concatenate([times.end[dependencies.producer[consumer]], times.start[consumer]])
    order = np.lexsort((-change, when, rank))
    start = np.searchsorted(rank[order], np.arange(schedule.ranks + 1))
    total = running_sum(change[order], start)
    return tuple(int(total[low:high].max(initial=0)) for low, high in pairwise(start.tolist()))
