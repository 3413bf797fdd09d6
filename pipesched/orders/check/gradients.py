"""Checks that the gradients of each stage are reduced exactly once, after they are complete.

    0B0  0B1  …  0B(m-1)  0REDUCE_GRAD       the loss is the mean over m microbatches, so this divides by m,
                                             and sums over the data-parallel copies

Without a reduction, a stage's gradients remain m times too large, and parameters sharded by FSDP get no gradients. A
second reduction divides again. A reduction before the last W or B misses the later gradients.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes, repeats, rows
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Diagnostic
from pipesched.model.columns import Ints, makes
from pipesched.model.ops import Op, Result
from pipesched.model.schedule import Program
from pipesched.orders.codes import OrdersCode


def check_gradients(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS601 for a missing reduction, PS602 for a second one, PS603 for an early one, PS303 for a wrong rank."""
    program = subject.own
    if subject.analysis.schedule.forward_only or subject.analysis.schedule.steps:
        return
    done = _last_backward(program)
    reductions = np.flatnonzero(program.op == Op.REDUCE_GRAD)
    key = _key(program, reductions)
    yield from _missing(program, np.setdiff1d(np.flatnonzero(done >= 0), key), done)
    own = done[key] >= 0
    yield from _elsewhere(program, reductions[~own])
    yield from _twice(program, reductions[own], key[own])
    early = own & (reductions < done[key])
    yield from _early(program, rows(reductions[early], done[key[early]]))


def _key(program: Program, index: Ints) -> Ints:
    """Return a key for the stage and the rank of each instruction."""
    return np.asarray(program.stage[index].astype(np.int64) * program.ranks + program.rank[index])


def _last_backward(program: Program) -> Ints:
    """Return, for each key, the last W or B of a trained stage on that rank, otherwise its last I, otherwise -1."""
    last = np.full((int(program.stage.max(initial=-1)) + 1) * program.ranks, -1, dtype=np.int64)
    for mask in (makes(program.op, Result.GRADIENT), makes(program.op, Result.WEIGHTS)):
        index = np.flatnonzero(mask)
        last[_key(program, index)] = index  # for equal keys the last one is kept
    for stage in program.placement.frozen:
        last[stage * program.ranks : (stage + 1) * program.ranks] = -1
    return last


def _missing(program: Program, keys: Ints, done: Ints) -> Iterator[Diagnostic]:
    for key, more in limited(keys.tolist()):
        stage, rank = divmod(key, program.ranks)
        last, m = int(done[key]), program.placement.microbatches
        stay = f"stay {m} times too large" if m > 1 else "are not summed over data-parallel copies"
        yield Diagnostic(
            OrdersCode.NO_REDUCTION,
            f"stage {stage} has no REDUCE_GRAD on rank {rank}: its gradients {stay}",
            (label(program, last, f"the last backward of stage {stage}; this rank has no reduction"),),
            notes("with FSDP the gradients are never reduced, and the stage does not train", more),
            f"add {stage}REDUCE_GRAD after {program[last]}",
        )


def _elsewhere(program: Program, found: Ints) -> Iterator[Diagnostic]:
    for index, more in limited(found.tolist()):
        stage, rank = int(program.stage[index]), int(program.rank[index])
        yield Diagnostic(
            CheckCode.WRONG_RANK,
            f"rank {rank} reduces the gradients of stage {stage}, which "
            + ("is frozen" if stage in program.placement.frozen else "has no backward there"),
            (label(program, index, f"this rank has no gradient of stage {stage}"),),
            notes(more),
        )


def _twice(program: Program, reductions: Ints, key: Ints) -> Iterator[Diagnostic]:
    for (index, before), more in limited(repeats(reductions, key)):
        stage, m = int(program.stage[index]), program.placement.microbatches
        twice = f"divided by {m} twice" if m > 1 else "summed over data-parallel copies twice"
        yield Diagnostic(
            OrdersCode.REDUCED_TWICE,
            f"the gradients of stage {stage} are reduced twice, so they are {twice}",
            (label(program, index, "reduced again"), label(program, before, "reduced here already")),
            notes(more),
            f"keep only the REDUCE_GRAD that follows the last backward of stage {stage}",
        )


def _early(program: Program, found: list[tuple[int, ...]]) -> Iterator[Diagnostic]:
    for (index, last), more in limited(found):
        stage, between = int(program.stage[index]), slice(index, last + 1)
        late = int(np.count_nonzero(makes(program.op[between], Result.WEIGHTS) & (program.stage[between] == stage)))
        backwards = "the last backward" if late == 1 else f"the last {late} backwards"
        yield Diagnostic(
            OrdersCode.REDUCED_EARLY,
            f"the gradients of stage {stage} are reduced before {backwards} of the stage",
            (
                label(program, index, f"reduced here, before {late} of the stage's backwards"),
                label(program, last, "the last backward of the stage"),
            ),
            notes("gradients added after the reduction are neither divided nor summed over data-parallel copies", more),
            f"move {program[index]} after {program[last]}",
        )
