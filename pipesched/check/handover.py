"""A program computes with what it has received, and sends what it has computed.

    RECV_F before its F, RECV_B before its I or B, unless the stage next to it is on the same rank      PS308
    SEND_F after its F, SEND_B after its I or B                                                          PS309

torch's runtime asserts both, on one rank, while the others wait for the time-out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.check.findings import label, limited, notes
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.columns import Ints, among, computes
from pipesched.model.ops import MAKERS, RECEIVES, SENDS, USERS, Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule


def check_handover(program: Program, schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    """PS308, PS309. `schedule` is the compute order of the same program."""
    index = np.flatnonzero(computes(program.op))  # of each operation of the schedule, its index in the program
    stages, microbatches = schedule.stages, schedule.microbatches
    at = np.flatnonzero((program.stage >= 0) & (program.stage < stages) & (program.microbatch >= 0))
    at = at[program.microbatch[at] < microbatches]
    size = stages * microbatches

    def first(ops: Iterable[Op]) -> Ints:
        """Where (stage, microbatch) has one of the ops first; len(program) if nowhere."""
        chosen = at[among(program.op[at], ops)][::-1]
        table = np.full(size, len(program), dtype=np.int64)
        table[program.stage[chosen].astype(np.int64) * microbatches + program.microbatch[chosen]] = chosen
        return table

    for receive, send in zip(RECEIVES, SENDS, strict=True):
        users = np.flatnonzero(among(schedule.op, USERS[receive.result]) & dependencies.crosses)
        made = first(MAKERS[send.result])
        yield from _unreceived(program, schedule, dependencies, index, users, first([receive]), receive)
        yield from _unproduced(program, np.flatnonzero(program.op == send), made, microbatches, size)


def _unreceived(
    program: Program, schedule: Schedule, dependencies: Dependencies, index: Ints, users: Ints, received: Ints, op: Op
) -> Iterator[Diagnostic]:
    key = schedule.stage[users].astype(np.int64) * schedule.microbatches + schedule.microbatch[users]
    first = received[key]
    elsewhere = program.rank[np.minimum(first, len(program) - 1)] != schedule.rank[users]
    late = elsewhere | (first > index[users])
    for (user, where), more in limited(list(zip(users[late].tolist(), first[late].tolist(), strict=True))):
        compute = schedule[user]
        name = f"{compute.stage}{op.name}{compute.microbatch}"
        labels = [label(program, int(index[user]), f"its input is not received: {name} is missing before it")]
        if where < len(program):
            labels.append(label(program, where, "it is received only here"))
        source = int(schedule.rank[dependencies.producer[user]])
        yield Diagnostic(
            Code.NOT_RECEIVED,
            f"{compute} needs {schedule[int(dependencies.producer[user])]} of rank {source}, "
            "which is not received before it",
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
    for (send, computed), more in limited(list(zip(sends[wrong].tolist(), where[wrong].tolist(), strict=True))):
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
