"""What the engine of a trainer cannot run that has lists of instructions of its own: DeepSpeed's, and Primus's.

They keep each stage on one rank, hand an activation to the next stage alone, train every stage, and know some kinds of
instruction. What one of them cannot run besides is in its writer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.model.columns import among, computes
from pipesched.model.numbers import ranges
from pipesched.model.ops import Op
from pipesched.model.schedule import Program, Schedule

MESSAGES = (Op.SEND_F, Op.RECV_F, Op.SEND_B, Op.RECV_B)
ITS_OWN = (Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.STEP)
"""What such a trainer does by itself, when a rank has run its list."""
WAITS = (Op.WAIT_SEND_F, Op.WAIT_SEND_B)
"""They wait for what has ended already, where a send ends with its receive."""

_INSTEAD = "emit it with `--target stream`, which pipesched's own runtime runs"


@dataclass(frozen=True)
class Engine:
    """What a trainer runs. title: in messages. target: its row of TARGETS. kinds: the operations of its lists. batches:
    whether it posts messages together.
    """

    title: str
    target: str
    kinds: Collection[Op]
    batches: bool

    def cannot(
        self, schedule: Schedule, why: str, note: str, help: str = _INSTEAD, labels: tuple[Label, ...] = ()
    ) -> Diagnostic:
        """PS814, with the reason."""
        return Diagnostic(Code.TARGET, f"{self.title} cannot run {schedule.name}: {why}", labels, (note,), help)

    def limits(self, schedule: Schedule, program: Program | None) -> Iterator[Diagnostic]:
        """PS814, what a schedule, or the program that its file gives, has and the engine has not."""
        placement = schedule.placement
        if placement.bidirectional:
            stage, homes = next((s, x) for s in range(schedule.stages) if len(x := placement.copies(s)) > 1)
            why = f"stage {stage} is on ranks {' and '.join(map(str, homes))}"
            help = f"{_INSTEAD}; or use a schedule with one copy of each stage"
            yield self.cannot(schedule, why, "there a stage is on one rank", help)
        if not placement.chain:
            yield self.cannot(schedule, placement.skip, "there a stage hands its activation to the next stage alone")
        if placement.slices > 1:
            why = f"every {placement.slices} microbatches are one sequence"
            yield self.cannot(schedule, why, "there each microbatch is for itself")
        if placement.frozen:
            why = f"it has frozen stages: {ranges(placement.frozen)}"
            yield self.cannot(schedule, why, "there every stage sends a gradient to the stage before it")
        if len(unknown := schedule.op[~among(schedule.op, self.kinds)]):
            names = " and ".join(Op(op).name for op in np.unique(unknown).tolist())
            known = " and ".join(op.name for op in self.kinds)
            yield self.cannot(schedule, f"it runs {names}", f"of the operations it has {known}")
        if len(schedule) and schedule.forward_only:
            yield self.cannot(schedule, "it has no backward", "there a step ends with the optimizer")
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
                yield self.cannot(schedule, f"its program has {program[index]}", why, help, labels)
