"""Refusals of trainers whose engines have lists of instructions of their own: DeepSpeed's, and Primus's.

They keep each stage on one rank, hand an activation to the next stage alone, train every stage, and know some kinds of
instruction. Their writers refuse the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesched.diagnostics import Diagnostic, Label
from pipesched.model.columns import among, computes
from pipesched.model.features import COPIES, EMPTY_RANKS, FORWARD_ONLY, FROZEN, SKIPS, SLICES, UNEVEN_COSTS, Consumer
from pipesched.model.ops import Op
from pipesched.model.schedule import Program, Schedule

MESSAGES = (Op.SEND_F, Op.RECV_F, Op.SEND_B, Op.RECV_B)
ITS_OWN = (Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.STEP)
"""What such a trainer does by itself, when a rank has run its list."""
WAITS = (Op.WAIT_SEND_F, Op.WAIT_SEND_B)
"""They wait for what has ended already, where a send ends with its receive."""

INSTEAD = "emit it with `--target stream`, which pipesched's own runtime runs"
KNOWS = (EMPTY_RANKS, UNEVEN_COSTS)
BECAUSE = {
    COPIES: "there a stage is on one rank",
    SKIPS: "there a stage hands its activation to the next stage alone",
    SLICES: "there each microbatch is for itself",
    FROZEN: "there every stage sends a gradient to the stage before it",
    FORWARD_ONLY: "there a step ends with the optimizer",
}
HELPS = {COPIES: f"{INSTEAD}; or use a schedule with one copy of each stage"}


@dataclass(frozen=True)
class Engine:
    """The runtime of a trainer. target: its row of TARGETS. batches: it posts messages together."""

    consumer: Consumer
    target: str
    batches: bool

    def limits(self, schedule: Schedule, program: Program | None) -> Iterator[Diagnostic]:
        """PS814, each feature that a schedule, or the program that its file gives, has and the engine lacks."""
        yield from self.consumer.refusals(schedule)
        if program is not None:
            yield from self._unknown(schedule, program)

    def _unknown(self, schedule: Schedule, program: Program) -> Iterator[Diagnostic]:
        """The first instruction of a program that it does not know, in a batch, or on another communicator."""
        known = among(program.op, (*MESSAGES, *ITS_OWN, *WAITS)) | computes(program.op)
        help = f"`pipesched order FILE | pipesched emit - --target {self.target}` makes its messages anew"
        refused = {
            "it has no such instruction": ~known,
            "it posts each message by itself": (program.group >= 0) & (not self.batches),
            "it has one communicator": program.communicator != 0,
        }
        for why, which in refused.items():
            for index in np.flatnonzero(which)[:1].tolist():
                place = f"rank {int(program.rank[index])}, step {program.step(index)}"
                labels = (Label(program.origin.place(index).span, place),)
                yield self.consumer.refusal(schedule, f"its program has {program[index]}", why, help, labels)
