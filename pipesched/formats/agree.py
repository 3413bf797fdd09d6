"""A file of rows against its own size, and against what was said about it.

Stages and microbatches are counted, never declared: S is the largest stage that computes, plus one. So a slip in one
number would make the tables of all later passes as large as that number, and is found here, before any table is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats.rows import SPARE, Rows, rank_table
from pipesched.model.columns import Column
from pipesched.model.ops import Op
from pipesched.model.origin import Origin
from pipesched.model.placement import Placement
from pipesched.source import Span

SHOWN = 8
"""So many places of one kind are reported."""

_MANY = {"stage": "stages", "microbatch": "microbatches"}


def table_of(rows: Rows, origin: Origin) -> Column:
    """rank[stage, microbatch], after a look at its size."""
    placed = rows.placed
    if not len(placed):
        raise fail(
            Code.EMPTY,
            "the file has no computes and no messages",
            Label(origin.place(0).span, "nothing here runs a stage"),
            help="one row a rank, one cell an action, as in 0F0,0F1,0B0,0B1",
        )
    stage, microbatch = rows.stage[placed], rows.microbatch[placed]
    shape = int(stage.max()) + 1, int(microbatch.max()) + 1
    require_dense(rows, origin, shape)
    outside = np.flatnonzero(rows.stage >= shape[0])
    if len(outside):
        raise PipeschedError(_no_such_stage(rows, origin, int(i), shape[0]) for i in outside[:SHOWN])
    return rank_table(shape, [(stage, microbatch, rows.rank[placed])])


def require_dense(rows: Rows, origin: Origin, shape: tuple[int, int]) -> None:
    """Refuses numbers of stages and microbatches that the operations cannot possibly cover."""
    if shape[0] * shape[1] <= SPARE + 4 * len(rows.op):
        return
    last = int(rows.stage.max()), int(rows.microbatch.max())
    labels = _first(rows.stage, last[0], origin), _first(rows.microbatch, last[1], origin)
    raise fail(
        Code.OUT_OF_RANGE,
        f"{shape[0]:,} stages and {shape[1]:,} microbatches need {shape[0] * shape[1]:,} forwards, "
        f"but the file has {len(rows.op):,} operations",
        Label(labels[0], f"stage {last[0]}"),
        Label(labels[1], f"microbatch {last[1]}"),
        help="stages and microbatches count from 0 without gaps",
    )


def _no_such_stage(rows: Rows, origin: Origin, index: int, stages: int) -> Diagnostic:
    stage, op = int(rows.stage[index]), Op(int(rows.op[index]))
    return Diagnostic(
        Code.OUT_OF_RANGE,
        f"{op.name} of stage {stage}, but the file runs stages 0 to {stages - 1} only",
        (Label(origin.place(index).span, f"rank {int(rows.rank[index])}: no row computes stage {stage}"),),
    )


def _first(column: Column, value: int, origin: Origin) -> Span | None:
    """The first cell with that value in a column."""
    return origin.place(int(np.argmax(column == value))).span


def disagreements(
    rows: Rows,
    origin: Origin,
    inferred: Placement,
    stages: int | None,
    microbatches: int | None,
    placement: Sequence[int] | None,
) -> Iterator[Diagnostic]:
    """Where the file and what was said about it differ."""
    for what, column, here, given in (
        ("stage", rows.stage, inferred.stages, stages),
        ("microbatch", rows.microbatch, inferred.microbatches, microbatches),
    ):
        if given is not None and given != here:
            yield Diagnostic(
                Code.FILE_DISAGREES,
                f"the file has {here} {_MANY[what]}, but {given} were given",
                (Label(_first(column, here - 1, origin), f"its last {what} is {here - 1}"),),
            )
        else:
            yield from _gap(rows, origin, what, column)
    if placement is not None:
        yield from _misplaced(rows, origin, inferred.stages, placement)


def _gap(rows: Rows, origin: Origin, what: str, column: Column) -> Iterator[Diagnostic]:
    """A number that nothing bears although a later one is there: more often a slip in the later one."""
    present = np.unique(column[rows.placed])
    jump = np.flatnonzero(np.diff(present, prepend=-1) > 1)
    if not len(jump):
        return
    after = int(present[jump[0]])
    before = int(present[jump[0] - 1]) if jump[0] else -1
    missing = f"{what} {before + 1} is" if after - before == 2 else f"{_MANY[what]} {before + 1} to {after - 1} are"
    yield Diagnostic(
        Code.OUT_OF_RANGE,
        f"{what} {after} is in the file, but {missing} not",
        (Label(_first(column, after, origin), f"the first cell of {what} {after}"),),
        (),
        f"{_MANY[what]} count from 0 without gaps",
    )


def _misplaced(rows: Rows, origin: Origin, stages: int, placement: Sequence[int]) -> Iterator[Diagnostic]:
    """Computes on another rank than the one that was given for their stage: the first of each stage."""
    if len(placement) != stages:
        yield Diagnostic(
            Code.FILE_DISAGREES,
            f"the file has {stages} stages, but the placement names the ranks of {len(placement)}",
            (Label(_first(rows.stage, stages - 1, origin), f"its last stage is {stages - 1}"),),
        )
        return
    wrong = np.flatnonzero((rows.op <= Op.B) & (np.array(placement)[rows.stage] != rows.rank))
    for index in wrong[np.unique(rows.stage[wrong], return_index=True)[1]][:SHOWN].tolist():
        stage, rank = int(rows.stage[index]), int(rows.rank[index])
        yield Diagnostic(
            Code.FILE_DISAGREES,
            f"stage {stage} is on rank {rank} in the file, but rank {placement[stage]} was given",
            (Label(origin.place(index).span, f"row {rank + 1} is rank {rank}"),),
        )
