"""Writes orders (`formats.order_text`) quickly: words are made per kind of instruction, then joined per rank."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from pipesched.formats.rows import other_stage
from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.ops import COMPUTES, Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule

PRODUCER = {Op.SEND_F: "F", Op.RECV_F: "F", Op.SEND_B: "B", Op.RECV_B: "B", Op.WAIT_SEND_F: "F", Op.WAIT_SEND_B: "B"}
"""The letter of the operation that made a message; for gradients B, whether B or I made it."""

MESSAGE = {Op.SEND_F: ("send", ">"), Op.SEND_B: ("send", ">"), Op.RECV_F: ("recv", "<"), Op.RECV_B: ("recv", "<")}

STAGE_WORDS = {
    Op.REDUCE_GRAD: "reduce",
    Op.WAIT_REDUCE_GRAD: "wait",
    Op.UNSHARD: "unshard",
    Op.RESHARD: "reshard",
}


def write(schedule: Schedule) -> str:
    """The compute order, one line a rank."""
    words = np.empty(len(schedule), dtype=object)
    _computes(words, schedule.op, schedule.stage, schedule.microbatch, schedule.second)
    return _lines(words, schedule.start)


def write_program(program: Program) -> str:
    """Every instruction, one line a rank."""
    words = np.empty(len(program), dtype=object)
    _computes(words, program.op, program.stage, program.microbatch, program.second)
    for op in Op:
        if not op.compute:
            at = np.flatnonzero(program.op == op)
            words[at] = _instructions(op)(program, at)
    if bool(np.any(program.group >= 0)):
        _bracket(words, program)
    return _lines(words, program.start)


def _lines(words: Column, start: Ints) -> str:
    """Words begin with what separates them from the one before."""
    cut = start.tolist()
    rows = (words[low:high].tolist() for low, high in pairwise(cut))
    return "".join(f"rank {rank}:{''.join(row)}\n" for rank, row in enumerate(rows))


def _computes(words: Column, op: Column, stage: Column, microbatch: Column, second: Bools) -> None:
    for letter in COMPUTES:
        for joined in (False, True):
            at = np.flatnonzero((op == letter) & (second == joined))
            head = ("+" if joined else " ") + letter.name
            words[at] = [f"{head}{s}.{i}" for s, i in zip(stage[at].tolist(), microbatch[at].tolist(), strict=True)]


def _instructions(op: Op) -> Callable[[Program, Ints], list[str]]:
    """How instructions of one kind are written."""
    if op in MESSAGE:
        return _messages
    if op in PRODUCER:
        return lambda program, at: [
            f" wait:{PRODUCER[op]}{s}.{i}"
            for s, i in zip(program.stage[at].tolist(), program.microbatch[at].tolist(), strict=True)
        ]
    if op in STAGE_WORDS:
        return lambda program, at: [f" {STAGE_WORDS[op]}:{s}" for s in program.stage[at].tolist()]
    if op is Op.SYNC:
        return lambda program, at: [
            f" sync:{s}={peer}" for s, peer in zip(program.stage[at].tolist(), program.peer[at].tolist(), strict=True)
        ]
    return lambda _, at: [" step"] * len(at)


def _messages(program: Program, at: Ints) -> list[str]:
    """Sends or receives of one kind."""
    if not len(at):
        return []
    op = Op(int(program.op[at[0]]))
    verb, arrow = MESSAGE[op]
    stage = program.stage[at] if op.send else other_stage(program.op[at], program.stage[at])
    head = f" {verb}:{PRODUCER[op]}"
    columns = zip(stage.tolist(), program.microbatch[at].tolist(), program.peer[at].tolist(), strict=True)
    words = [f"{head}{s}.{i}{arrow}{peer}" for s, i, peer in columns]
    for i in np.flatnonzero(program.communicator[at]).tolist():
        words[i] += f"@{int(program.communicator[at[i]])}"
    return words


def _bracket(words: Column, program: Program) -> None:
    """Brackets around each fused batch: neighbours of one rank with the same group."""
    group = np.where(program.group < 0, -1, program.group.astype(np.int64) * program.ranks + program.rank)
    edge = np.flatnonzero(np.diff(group, prepend=-1, append=-1))
    inside = np.append(group, -1)
    for i in edge.tolist():
        if i > 0 and inside[i - 1] >= 0:
            words[i - 1] += " )"
        if inside[i] >= 0:
            words[i] = f" ({words[i]}"
