"""Checks that each rank computes only with data that it has received, and sends only data that it has computed.

    RECV_F before its F, RECV_B before its I or B, unless the producer is on the same rank               PS308
    SEND_F after its F, SEND_B after its I or B                                                          PS309

If either rule is violated, torch's runtime fails an assertion on one rank, and the other ranks wait for a timeout.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.checks import Subject
from pipesched.check.findings import labels, limited, notes, rows
from pipesched.diagnostics import Diagnostic
from pipesched.model.columns import NEIGHBOUR, Bools, Column, Ints, among, computes, first_of
from pipesched.model.ops import RECEIVES, SENDS, USERS, Instruction, Op
from pipesched.model.schedule import Program, Schedule
from pipesched.orders.codes import OrdersCode


def check_handover(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS308, PS309."""
    program, schedule, dependencies = subject.own, subject.analysis.schedule, subject.analysis.dependencies
    none, rank = len(program), np.append(program.rank, -1)
    index = np.append(np.flatnonzero(computes(program.op)), none)  # by operation of the schedule; -1 means none
    stages, microbatches, needed = schedule.stages, schedule.microbatches, dependencies.messages()
    inside = (program.stage >= 0) & (program.stage < stages)
    inside &= (program.microbatch >= 0) & (program.microbatch < microbatches)
    other = program.stage + NEIGHBOUR[program.op] if program.other is None else program.other

    def key(source: Column, reader: Column, microbatch: Column) -> Ints:
        return np.asarray((source.astype(np.int64) * stages + reader) * microbatches + microbatch)

    def late(first: Ints, then: Ints) -> Bools:
        return np.asarray((rank[first] != rank[then]) | (first > then))

    for receive, send in zip(RECEIVES, SENDS, strict=True):
        which = among(schedule.op[needed.consumer], USERS[receive.result]) & (not receive.kind.shape)
        producer, user = needed.producer[which], needed.consumer[which]
        wanted = key(schedule.stage[producer], schedule.stage[user], schedule.microbatch[user])
        at = np.flatnonzero(inside & (program.op == receive))
        received = first_of(key(other[at], program.stage[at], program.microbatch[at]), at, wanted, none)
        wrong = late(received, index[user])
        found = rows(*(column[wrong] for column in (user, producer, index[user], received)))
        yield from _unreceived(program, schedule, receive, found)
        sends = np.flatnonzero(program.op == send)
        made = np.full(len(sends), none)
        made[inside[sends]] = index[dependencies.made[send.result][program.key(sends[inside[sends]])]]
        wrong = late(made, sends)
        yield from _unproduced(program, rows(sends[wrong], made[wrong]))


def _unreceived(program: Program, schedule: Schedule, op: Op, found: list[tuple[int, ...]]) -> Iterator[Diagnostic]:
    """Yield PS308. found: for each missing input, its user, its producer, the user's instruction, the late receive."""
    for (user, producer, runs, received), more in limited(found):
        compute, made = schedule[user], schedule[producer]
        other = -1 if made.stage == compute.stage + op.kind.of else made.stage
        name = str(Instruction(op, compute.stage, compute.microbatch, other=other))
        missing = f"its input is not received: {name} is missing before it"
        yield Diagnostic(
            OrdersCode.NOT_RECEIVED,
            f"{compute} needs the result of {made} on rank {int(schedule.rank[producer])}, which has not arrived yet",
            labels(program, (runs, missing), (received, "it is received only here")),
            notes(more),
            f"put {name} before it",
        )


def _unproduced(program: Program, found: list[tuple[int, ...]]) -> Iterator[Diagnostic]:
    """Yield PS309. found: a send that precedes the computation of its value, and the instruction that computes it."""
    for (send, computed), more in limited(found):
        yield Diagnostic(
            OrdersCode.NOT_PRODUCED,
            f"{program[send]} on rank {int(program.rank[send])} sends a value that this rank has not computed yet",
            labels(program, (send, "the value is not computed yet"), (computed, "computed here")),
            notes(more),
            "move the send after the operation that makes the value",
        )
