"""What torch's runtime needs of the order of compute, in every version, and does not check or meets with an assertion.

    stages are a chain        each stage hands its activation to the next one
    a stage has one rank      `_validate_schedule` refuses a second row with the stage: DualPipe, Chimera
    there is a backward       the loader counts one of every stage for each microbatch, whatever the file is for
    behind frozen stages      of a stage whose input asks for no gradient a split backward finds none of the weights
    the first trained stage
    runs full backwards
    the last stage runs       torch appends each loss to a list when the forward of the last stage is done, and the
    its forwards in the       backward of microbatch i takes the i-th entry:
    order 0, 1, 2, …              forwards 1, 0     losses [loss of 1, loss of 0]     B0 starts from the loss of 1
    every rank has a stage    the rank of a row is its number

A file is reported (PS804, PS806, PS814, PS819, PS901, PS903); a schedule to be emitted for torch is refused (PS814,
PS819).
Source: `_validate_schedule`, `_maybe_compute_loss` and `_maybe_get_loss` of ``torch.distributed.pipelining.schedules``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipesched.check.findings import label, limited, notes, rows
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.columns import among, computes
from pipesched.model.numbers import ranges
from pipesched.model.ops import SHAPES, Op, Result
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import ACTIONS, NEWEST

_INSTEAD = "`--target stream`, which pipesched's own runtime runs"
_LISTED = 8  # stages or ranks that a message names


def check_torch_order(schedule: Schedule, program: Program | None, *, explicit: bool) -> Iterator[Diagnostic]:
    """PS804, PS806 or PS901, PS814, PS819, PS903. explicit: the user named torch, so two ranks are an error."""
    order = schedule if program is None else program
    yield from _last_stage(order)
    yield from _behind_frozen(schedule)
    yield from _no_chain(schedule)
    yield from _several_ranks(order, Code.TORCH_TWO_RANKS if explicit else Code.TWO_RANKS)
    if schedule.forward_only and len(schedule):
        yield Diagnostic(
            Code.FORWARD_ONLY,
            "no backward at all: torch's loader refuses the file",
            (),
            ("it counts one backward of every stage for each microbatch, whatever the file is for",),
            "for inference give torch a file with backwards, and call its schedule's eval()",
        )


def check_torch_target(schedule: Schedule, program: Program | None, *, messages: bool) -> Iterator[Diagnostic]:
    """PS814, what torch's runtime cannot run; PS819, what it trains wrong.

    program: where its own messages are to be kept. messages: they are written, these or others.
    """
    if shared := stages_on_several_ranks(schedule):
        stage, at = next(iter(shared.items()))
        yield _refused(
            schedule,
            f"stage {stage} is on ranks {' and '.join(str(int(schedule.rank[i])) for i in at)}",
            "in torch a stage is on one rank only; its loader refuses a stage on a second row",
            f"emit it with {_INSTEAD}; or use a schedule with one copy of each stage, as DualPipeV and ZB-V have",
        )
    yield from _no_chain(schedule)
    if len(unknown := np.flatnonzero(~among(schedule.op, ACTIONS))):
        names = " and ".join(Op(op).name for op in np.unique(schedule.op[unknown]).tolist())
        yield _refused(schedule, f"it runs {names}", "torch knows no such operation", f"emit it with {_INSTEAD}")
    yield from _behind_frozen(schedule)
    if messages and schedule.placement.frozen:
        stages = ranges(schedule.placement.frozen)
        why, note = (
            f"it has frozen stages: {stages}",
            "torch sends gradients to frozen stages too, which have a B there",
        )
        yield _refused(schedule, why, note, "`--target torch-csv` has that B, and leaves the messages to torch")
    if len(schedule) and schedule.forward_only:
        asks = f"torch's loader asks for {schedule.microbatches} backwards of every stage"
        yield _refused(schedule, "it has no backward", asks, f"emit it with {_INSTEAD}")
    if idle := np.flatnonzero(np.diff(schedule.start) == 0).tolist():
        help = f"place a stage on every rank, or emit it with {_INSTEAD}"
        yield _refused(
            schedule, f"no stage is on rank {_listed(idle)}", "torch builds the stages of a rank from its row", help
        )
    if program is not None:
        yield from _batches(program)
        if bool(among(program.op, SHAPES).any()):
            why, note = "it sends shapes", "torch's runtime knows the shapes of a step from its first microbatch"
            yield _refused(schedule, why, note, "emit its computes alone: `--target torch-csv`")


def _no_chain(schedule: Schedule) -> Iterator[Diagnostic]:
    if not schedule.placement.chain:
        note = "in torch a stage hands its activation to the next stage, and to no other"
        yield _refused(schedule, schedule.placement.skip, note, "make one stage of those that a skip spans")


def stages_on_several_ranks(order: Program | Schedule) -> dict[int, list[int]]:
    """Of each stage that computes on several ranks the first operation on each of them, in the order of the list."""
    compute = np.flatnonzero(computes(order.op))
    homes, first = np.unique(
        order.stage[compute].astype(np.int64) * order.ranks + order.rank[compute], return_index=True
    )
    stage, at = homes // order.ranks, compute[first]
    stages, count = np.unique(stage, return_counts=True)
    return {int(s): np.sort(at[stage == s]).tolist() for s in stages[count > 1]}


def _several_ranks(order: Program | Schedule, code: Code) -> Iterator[Diagnostic]:
    """One finding for all such stages."""
    shared = stages_on_several_ranks(order)
    if not shared:
        return
    stages = list(shared)
    what = f"stage {stages[0]} is" if len(stages) == 1 else f"{len(stages)} stages ({_listed(stages)}) are"
    yield Diagnostic(
        code,
        f"{what} on several ranks: torch's runtime refuses the file",
        tuple(label(order, i, f"stage {stages[0]} computes here") for i in shared[stages[0]]),
        ("torch gives every stage one rank, the row in which it finds it first",),
        "DualPipeV and ZB-V keep each stage on one rank, and torch runs them; "
        "two routes need a runtime that knows copies of stages",
    )


def _last_stage(order: Program | Schedule) -> Iterator[Diagnostic]:
    """The first forward of the last stage, on each rank that has it, that comes after a later microbatch."""
    last = order.placement.stages - 1
    forward = np.flatnonzero((order.op == Op.F) & (order.stage == last))
    rank, microbatch = order.rank[forward], order.microbatch[forward]
    down = np.flatnonzero((rank[1:] == rank[:-1]) & (microbatch[1:] < microbatch[:-1]))
    first = down[np.unique(rank[down], return_index=True)[1]]
    for (index, before), more in limited(rows(forward[first + 1], forward[first])):
        place = int(np.count_nonzero((forward < index) & (rank == order.rank[index])))
        late, early = int(order.microbatch[before]), int(order.microbatch[index])
        yield Diagnostic(
            Code.TORCH_LAST_STAGE,
            f"the last stage runs microbatch {early} after microbatch {late}: torch pairs losses with microbatches by "
            "position, so gradients are silently wrong",
            (
                label(order, index, f"its loss is taken for the one of microbatch {place}"),
                label(order, before, f"microbatch {late} runs before it"),
            ),
            notes(
                f"torch looks up the loss of microbatch i as the i-th one computed, in every version to {NEWEST}", more
            ),
            f"run the forwards of stage {last} in the order 0, 1, 2, …",
        )


def _behind_frozen(schedule: Schedule) -> Iterator[Diagnostic]:
    """The first I of each stage that is trained behind frozen ones alone."""
    placement = schedule.placement
    wants = placement.wants
    for stage in range(placement.stages) if placement.frozen else ():
        before = placement.read(stage)
        halves = np.flatnonzero((schedule.op == Op.I) & (schedule.stage == stage))
        if wants[Result.WEIGHTS][stage] and before and not wants[Result.GRADIENT][list(before)].any() and len(halves):
            yield Diagnostic(
                Code.TORCH_FROZEN,
                f"stage {stage} is the first that is trained, and its backward is split: torch leaves its weights "
                "without a gradient",
                (label(schedule, int(halves[0]), "its input asks for no gradient, so W finds nothing to do"),),
                ("nothing is raised, in torch 2.13 and 2.15; with full backwards it is right",),
                f"write B for the I and W of stage {stage}",
            )


def _batches(program: Program) -> Iterator[Diagnostic]:
    at = np.flatnonzero((program.group >= 0) | (program.communicator != 0))
    if len(at):
        yield Diagnostic(
            Code.TARGET,
            f"torch's CSV cannot say {program[int(at[0])]}: it has no fused batches and one communicator",
            (label(program, int(at[0]), "the first such message"),),
            (f"{len(at):,} messages are in batches or on another communicator",),
            "`--target torch-csv` leaves the messages to torch",
        )


def _refused(schedule: Schedule, why: str, note: str, help: str) -> Diagnostic:
    return Diagnostic(Code.TARGET, f"torch's runtime cannot run {schedule.name}: {why}", (), (note,), help)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_LISTED])) + (", …" if len(numbers) > _LISTED else "")
