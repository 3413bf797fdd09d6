"""A program computes with what it has received, and sends what it has computed.

    RECV_F before its F, RECV_B before its I or B, unless the stage next to it is on the same rank      PS308
    SEND_F after its F, SEND_B after its I or B                                                          PS309

torch's runtime asserts both, on one rank, while the others wait for the time-out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.check.findings import label, limited, notes, rows
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.columns import NEIGHBOUR, Column, Ints, among, computes
from pipesched.model.ops import MAKERS, RECEIVES, SENDS, USERS, Instruction, Op
from pipesched.model.schedule import Program, Schedule


def check_handover(program: Program, schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    """PS308, PS309. `schedule` is the compute order of the same program."""
    index = np.flatnonzero(computes(program.op))  # of each operation of the schedule, its index in the program
    stages, microbatches = schedule.stages, schedule.microbatches
    at = np.flatnonzero((program.stage >= 0) & (program.stage < stages) & (program.microbatch >= 0))
    at = at[program.microbatch[at] < microbatches]
    size = stages * microbatches
    needed = dependencies.messages()
    other = program.stage + NEIGHBOUR[program.op] if program.other is None else program.other
    names, known = _names(schedule.stage[needed.producer], schedule.stage[needed.consumer], stages)

    def first(found: Ints, key: Ints, size: int) -> Ints:
        """By key the first of these instructions; len(program) where there is none."""
        table = np.full(size, len(program), dtype=np.int64)
        table[key[::-1]] = found[::-1]
        return table

    for receive, send in zip(RECEIVES, SENDS, strict=True):
        here = at[program.op[at] == receive]
        pair, _ = _names(other[here], program.stage[here], stages, known)
        here, pair = here[pair >= 0], pair[pair >= 0]
        received = first(here, pair * microbatches + program.microbatch[here], len(known) * microbatches)
        which = among(schedule.op[needed.consumer], USERS[receive.result]) & (not receive.kind.shape)
        where = received[names[which] * microbatches + schedule.microbatch[needed.consumer[which]]]
        yield from _unreceived(
            program, schedule, index, needed.producer[which], needed.consumer[which], received=where, op=receive
        )
        makers = at[among(program.op[at], MAKERS[send.result])]
        made = first(makers, program.key(makers), size)
        yield from _unproduced(program, np.flatnonzero(program.op == send), made, microbatches, size)


def _names(source: Column, target: Column, stages: int, known: Ints | None = None) -> tuple[Ints, Ints]:
    """A number for each pair of stages, -1 for one that is not known, and the pairs that are; by default all are."""
    pair = source.astype(np.int64) * stages + target
    known = np.unique(pair) if known is None else known
    if not len(known):
        return np.full(len(pair), -1, dtype=np.int64), known
    number = np.minimum(np.searchsorted(known, pair), len(known) - 1)
    return np.where(known[number] == pair, number, -1), known


def _unreceived(
    program: Program, schedule: Schedule, index: Ints, producers: Ints, users: Ints, received: Ints, op: Op
) -> Iterator[Diagnostic]:
    elsewhere = program.rank[np.minimum(received, len(program) - 1)] != schedule.rank[users]
    late = elsewhere | (received > index[users])
    for (user, producer, where), more in limited(rows(users[late], producers[late], received[late])):
        compute, made = schedule[user], schedule[producer]
        other = -1 if made.stage == compute.stage + op.kind.of else made.stage
        name = str(Instruction(op, compute.stage, compute.microbatch, other=other))
        labels = [label(program, int(index[user]), f"its input is not received: {name} is missing before it")]
        if where < len(program):
            labels.append(label(program, where, "it is received only here"))
        yield Diagnostic(
            Code.NOT_RECEIVED,
            f"{compute} needs {made} of rank {int(schedule.rank[producer])}, which is not received before it",
            tuple(labels),
            notes(more),
            f"put {name} before it",
        )


def _unproduced(program: Program, sends: Ints, made: Ints, microbatches: int, size: int) -> Iterator[Diagnostic]:
    stage, microbatch = program.stage[sends].astype(np.int64), program.microbatch[sends]
    inside = (stage >= 0) & (stage * microbatches < size) & (microbatch >= 0) & (microbatch < microbatches)
    where = np.where(inside, made[np.where(inside, stage * microbatches + microbatch, 0)], len(program))
    here = (where < len(program)) & (program.rank[np.minimum(where, len(program) - 1)] == program.rank[sends])
    wrong = ~here | (where > sends)
    for (send, computed), more in limited(rows(sends[wrong], where[wrong])):
        labels = [label(program, send, "sends what is not computed yet")]
        if computed < len(program):
            labels.append(label(program, computed, "computed here"))
        yield Diagnostic(
            Code.NOT_PRODUCED,
            f"{program[send]} on rank {int(program.rank[send])} sends what this rank has not computed before it",
            tuple(labels),
            notes(more),
            "send after the operation that makes the value",
        )
