"""What torch's runtime cannot run at all, whatever its version.

    two copies of a stage      a stage has one rank                                DualPipe, Chimera
    no backward                every stage must have m backwards                   forward-only schedules
    a rank without stages      the rank of a row is its number                     idle ranks
    fused batches              each message is posted by itself                    of an order's own messages

Source: `_validate_schedule` of ``torch.distributed.pipelining.schedules``, all versions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.place import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule

_INSTEAD = "`--target stream`, which pipesched's own runtime runs"


def check_torch_target(schedule: Schedule, program: Program | None) -> Iterator[Diagnostic]:
    """PS814; `program` where its own messages are to be kept."""
    yield from _two_copies(schedule)
    yield from _no_backward(schedule)
    yield from _idle(schedule)
    if program is not None:
        yield from _fused(program)


def _two_copies(schedule: Schedule) -> Iterator[Diagnostic]:
    both = [s for s in range(schedule.stages) if len(schedule.placement.copies(s)) > 1]
    if both:
        ranks = " and ".join(map(str, schedule.placement.copies(both[0])))
        yield Diagnostic(
            Code.TARGET,
            f"torch's runtime cannot run {schedule.name}: stage {both[0]} lives on ranks {ranks}",
            (),
            ("in torch a stage lives on one rank only; its loader refuses a stage on a second row",),
            f"emit it with {_INSTEAD}; or use a schedule with one copy of each stage, as DualPipeV and ZB-V have",
        )


def _no_backward(schedule: Schedule) -> Iterator[Diagnostic]:
    if len(schedule) and schedule.forward_only:
        yield Diagnostic(
            Code.TARGET,
            f"torch's runtime cannot run {schedule.name}: it has no backward",
            (),
            (f"torch's loader asks for {schedule.microbatches} backwards of every stage",),
            f"emit it with {_INSTEAD}",
        )


def _idle(schedule: Schedule) -> Iterator[Diagnostic]:
    idle = np.flatnonzero(np.diff(schedule.start) == 0).tolist()
    if idle:
        shown = ", ".join(map(str, idle[:8])) + (", …" if len(idle) > 8 else "")
        yield Diagnostic(
            Code.TARGET,
            f"torch's runtime cannot run {schedule.name}: no stage is on rank {shown}",
            (),
            ("torch builds the stages of a rank from its row",),
            f"place a stage on every rank, or emit it with {_INSTEAD}",
        )


def _fused(program: Program) -> Iterator[Diagnostic]:
    at = np.flatnonzero((program.group >= 0) | (program.communicator != 0))
    if len(at):
        yield Diagnostic(
            Code.TARGET,
            f"torch's CSV cannot say {program[int(at[0])]}: it has no fused batches and one communicator",
            (label(program, int(at[0]), "the first such message"),),
            (f"{len(at):,} messages are in batches or on another communicator",),
            "`--target torch-csv` leaves the messages to torch",
        )
