"""Rules of torch's runtime, in every version, on the compute order; torch checks only some of them.

    stages are a chain        each stage passes its activation to the next one
    a stage has one rank      `_validate_schedule` refuses a second row with the stage: DualPipe, Chimera
    there is a backward       the loader expects one for every stage and microbatch, even in a file for evaluation
    after frozen stages       the input of that stage needs no gradient, so torch's split backward leaves its weights
    the first trained stage   without a gradient
    runs full backwards
    the last stage runs       torch appends each loss to a list after the forward of the last stage, and the backward of
    its forwards in the       microbatch i takes the i-th entry:
    order 0, 1, 2, …              forwards 1, 0     losses [loss of 1, loss of 0]     B0 starts from the loss of 1
    every rank has a stage    a rank's stages are taken from its row

A file is reported (PS804, PS806, PS814, PS819, PS901, PS903); a schedule to be emitted for torch is refused (PS814,
PS819). Source: `_validate_schedule`, `_maybe_compute_loss` and `_maybe_get_loss` of
``torch.distributed.pipelining.schedules``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes, rows
from pipesched.common.features import (
    COPIES,
    EMPTY_RANKS,
    FORWARD_ONLY,
    FROZEN,
    OVERLAP,
    SKIPS,
    SLICES,
    UNEVEN_COSTS,
    Consumer,
    stages_on_several_ranks,
)
from pipesched.diagnostics import AnyCode, Code, Diagnostic
from pipesched.interop.codes import InteropCode
from pipesched.model.columns import among
from pipesched.model.ops import COMPUTES, SHAPES, Op, Result
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import ACTIONS, NEWEST

_INSTEAD = "emit it with `--target stream`, which pipesched's own runtime runs"
_LISTED = 8  # most stages that a message names

TORCH_CSV = Consumer(
    "torch's runtime",
    "run",
    Code.TARGET,
    [op for op in COMPUTES if op in ACTIONS],
    (OVERLAP, FROZEN, UNEVEN_COSTS),
    help=_INSTEAD,
    because={
        COPIES: "in torch a stage is on one rank only; its loader refuses a stage that occurs in a second row",
        SKIPS: "in torch a stage sends its activation only to the next stage",
        SLICES: "in torch each microbatch is a separate sequence",
        FROZEN: "in torch, frozen stages also have a B, and gradients are sent to them",
        FORWARD_ONLY: "torch's loader requires a backward of every stage for each microbatch",
        EMPTY_RANKS: "torch determines the stages of a rank from its row",
    },
    helps={
        COPIES: f"{_INSTEAD}; or use a schedule with one copy of each stage, such as DualPipeV or ZB-V",
        SKIPS: "merge the stages that a skip spans into one",
        FROZEN: "`--target torch-csv` writes that B, and leaves the messages to torch",
        EMPTY_RANKS: f"place a stage on every rank, or {_INSTEAD}",
    },
)
TORCH_COMMS = replace(TORCH_CSV, knows=(OVERLAP, UNEVEN_COSTS))


def check_torch_order(x: Subject) -> Iterator[Diagnostic]:
    """Yield PS804, PS814, PS819 and PS903, and PS806 if the user named torch, otherwise PS901."""
    schedule, program = x.analysis.schedule, x.analysis.own
    order = schedule if program is None else program
    yield from _last_stage(order)
    yield from _behind_frozen(schedule)
    yield from _no_chain(schedule)
    yield from _several_ranks(order, InteropCode.TORCH_TWO_RANKS if x.explicit else InteropCode.TWO_RANKS)
    if schedule.forward_only and len(schedule):
        yield Diagnostic(
            InteropCode.FORWARD_ONLY,
            "the schedule has no backward: torch's loader refuses the file",
            (),
            ("it expects one backward per stage and microbatch, even in a file for inference",),
            "for inference, give torch a file with backwards, and call eval() on its schedule",
        )


def check_torch_target(schedule: Schedule, program: Program | None, *, messages: bool) -> Iterator[Diagnostic]:
    """Yield PS814 if torch's runtime cannot run the schedule, PS819 if it would train a stage wrongly.

    program: the file's own messages, None to have them placed. messages: whether the written file contains messages.
    """
    yield from (TORCH_COMMS if messages else TORCH_CSV).refusals(schedule)
    yield from _behind_frozen(schedule)
    if program is not None:
        yield from _batches(program)
        if bool(among(program.op, SHAPES).any()):
            why, note = "it sends shapes", "torch's runtime derives the shapes of a step from its first microbatch"
            yield TORCH_COMMS.refusal(schedule, why, note, "use `--target torch-csv` to emit only compute operations")


def _no_chain(schedule: Schedule) -> Iterator[Diagnostic]:
    if not schedule.placement.chain:
        yield TORCH_CSV.refusal(schedule, schedule.placement.skip, TORCH_CSV.because[SKIPS], TORCH_CSV.helps[SKIPS])


def _several_ranks(order: Program | Schedule, code: AnyCode) -> Iterator[Diagnostic]:
    """Report the stages that are on several ranks, in one finding."""
    shared = stages_on_several_ranks(order)
    if not shared:
        return
    stages = list(shared)
    what = f"stage {stages[0]} is" if len(stages) == 1 else f"{len(stages)} stages ({_listed(stages)}) are"
    yield Diagnostic(
        code,
        f"{what} on several ranks: torch's runtime refuses the file",
        tuple(label(order, i, f"stage {stages[0]} computes here") for i in shared[stages[0]]),
        ("torch assigns every stage to one rank: the first one whose row contains the stage",),
        "DualPipeV and ZB-V keep each stage on one rank, so torch can run them; two routes need a runtime that "
        "supports copies of stages",
    )


def _last_stage(order: Program | Schedule) -> Iterator[Diagnostic]:
    """Report, on each rank, the first forward of the last stage that runs after the forward of a later microbatch."""
    last = order.placement.stages - 1
    forward = np.flatnonzero((order.op == Op.F) & (order.stage == last))
    rank, microbatch = order.rank[forward], order.microbatch[forward]
    down = np.flatnonzero((rank[1:] == rank[:-1]) & (microbatch[1:] < microbatch[:-1]))
    first = down[np.unique(rank[down], return_index=True)[1]]
    for (index, before), more in limited(rows(forward[first + 1], forward[first])):
        place = int(np.count_nonzero((forward < index) & (rank == order.rank[index])))
        late, early = int(order.microbatch[before]), int(order.microbatch[index])
        yield Diagnostic(
            InteropCode.TORCH_LAST_STAGE,
            f"the last stage runs microbatch {early} after microbatch {late}: torch pairs losses with microbatches by "
            "position, so gradients are silently wrong",
            (
                label(order, index, f"its loss is taken as the loss of microbatch {place}"),
                label(order, before, f"microbatch {late} runs before it"),
            ),
            notes(
                f"torch takes the i-th computed loss as the loss of microbatch i, in every version up to {NEWEST}", more
            ),
            f"run the forwards of stage {last} in the order 0, 1, 2, …",
        )


def _behind_frozen(schedule: Schedule) -> Iterator[Diagnostic]:
    """Report the first I of each trained stage that has only frozen stages before it."""
    placement = schedule.placement
    wants = placement.wants
    for stage in range(placement.stages) if placement.frozen else ():
        before = placement.read(stage)
        halves = np.flatnonzero((schedule.op == Op.I) & (schedule.stage == stage))
        if wants[Result.WEIGHTS][stage] and before and not wants[Result.GRADIENT][list(before)].any() and len(halves):
            yield Diagnostic(
                InteropCode.TORCH_FROZEN,
                f"stage {stage} is the first trained stage, and its backward is split: torch leaves its weights "
                "without a gradient",
                (
                    label(
                        schedule,
                        int(halves[0]),
                        ("its input does not require a gradient, so W does not compute a gradient"),
                    ),
                ),
                ("torch 2.13 and 2.15 raise no error; full backwards are correct",),
                f"replace the I and W of stage {stage} by B",
            )


def _batches(program: Program) -> Iterator[Diagnostic]:
    at = np.flatnonzero((program.group >= 0) | (program.communicator != 0))
    if len(at):
        yield Diagnostic(
            Code.TARGET,
            f"torch's CSV cannot express {program[int(at[0])]}: it supports only one communicator, and no batches",
            (label(program, int(at[0]), "the first such message"),),
            (f"{len(at):,} messages are in batches or on another communicator",),
            "`--target torch-csv` leaves the messages to torch",
        )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_LISTED])) + (", …" if len(numbers) > _LISTED else "")
