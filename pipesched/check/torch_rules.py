"""What torch's runtime needs and does not check, or checks with a bare assertion on one rank.

    actions      the actions of that version, and since 2.15 a wait for every send and reduction
    last stage   forwards in the order 0, 1, 2, …, because losses are a list
    sharding     computes between UNSHARD and RESHARD
    two ranks    a stage has one rank
    backward     there is one: torch's loader counts it for every microbatch

A file of computes alone gets its other actions from torch's own lowering, so the first and third do not apply to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesched.check.torch_actions import check_actions
from pipesched.check.torch_last_stage import check_last_stage
from pipesched.check.torch_sharding import check_sharding
from pipesched.check.torch_two_ranks import check_two_ranks
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.model.torch_versions import TorchVersion


def check_torch(
    program: Program | None, schedule: Schedule, *, version: TorchVersion, fsdp: bool, explicit_version: bool
) -> Iterator[Diagnostic]:
    """The rules of torch's runtime, of one version.

    program: None for a file of computes alone. fsdp: whether stages are sharded although no action of the file says so.
    explicit_version: whether the user named the version, and so the target; else a stage on two ranks is a warning.
    """
    order: Program | Schedule = program if program is not None else schedule
    yield from check_last_stage(order)
    yield from check_two_ranks(order, error=explicit_version)
    if schedule.forward_only and len(schedule):
        yield Diagnostic(
            Code.FORWARD_ONLY,
            "no backward at all: torch's loader refuses the file",
            (),
            ("it counts one backward of every stage for each microbatch, whatever the file is for",),
            "for inference give torch a file with backwards, and call its schedule's eval()",
        )
    if program is not None:
        yield from check_sharding(program, version=version, fsdp=fsdp)
        yield from check_actions(program, version=version)
