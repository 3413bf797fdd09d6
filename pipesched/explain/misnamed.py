"""One slip of the pen makes many findings: the single operation, or the letter, without which nothing is wrong.

    rank 2: … 1F1 …     F1.1 runs on rank 2; it runs twice; F2.1 never runs; …      write 2F1
    rank 1: F1.9 …      ten microbatches, of which stage 0 lacks eight, stage 1 …   write F1.1

Left out, a misnamed operation leaves an order that lacks exactly one, and that one on its rank, other in one thing:
letter, stage or microbatch. Nothing is said that was not tried: with the right name every operation runs once, in an
order that ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.check.findings import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis

LARGEST = 20_000  # operations of an order in which a slip is looked for
TRIED = 24  # operations that are tried
MANY = 3  # findings from which on they are one


@dataclass(frozen=True)
class _Slip:
    """An operation and its right name; makespan, descents: by which of several a person would have meant."""

    index: int
    right: Compute
    makespan: int
    descents: int


def one_slip(schedule: Schedule, found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The one finding in place of these, if one slip explains all of them; of two, both, and how to mend them."""
    if len(found) < 2 or len(schedule) > LARGEST or not len(schedule) or schedule.placement.frozen:
        return []
    if (wrong := _letters(schedule)) is not None:
        help = "zero-bubble papers call the backward for the input B; here it is I, and B is both: write I for every B"
        return [replace(_at(found, schedule, wrong) or found[0], notes=(), help=help)]
    slips = sorted(_slips(schedule), key=lambda slip: (slip.makespan, slip.descents, slip.index))
    best = [_finding(schedule, slip, found) for slip in slips[:1]]
    if len(found) >= MANY or not best:
        return best
    return [replace(x, help=best[0].help) if x is _at(found, schedule, slips[0].index) else x for x in found]


def _finding(schedule: Schedule, slip: _Slip, found: Sequence[Diagnostic]) -> Diagnostic:
    op, here = schedule[slip.index], label(schedule, slip.index, f"on rank {int(schedule.rank[slip.index])}")
    first = _at(found, schedule, slip.index)
    code, message = (first.code, first.message) if first else (Code.OUT_OF_RANGE, _alone(schedule, slip.index))
    right = _as_written(slip.right, here.span.text if here.span else str(op))
    return Diagnostic(
        code, message, (here,), (), f"write {right}: then every operation runs once, in an order that ends"
    )


def _alone(schedule: Schedule, index: int) -> str:
    op = schedule[index]
    alone = np.count_nonzero(schedule.microbatch == op.microbatch) == 1
    what = f"microbatch {op.microbatch}" if alone else f"stage {op.stage}"
    return f"{op} is the only operation of {what}"


def _as_written(op: Compute, text: str) -> str:
    """The operation in the notation of the file: torch's ``2F1``, or ``F2.1``."""
    return f"{op.stage}{op.op.name}{op.microbatch}" if re.match(r"\d", text) else str(op)


def _at(found: Sequence[Diagnostic], schedule: Schedule, index: int) -> Diagnostic | None:
    """The first finding at an operation."""
    span = schedule.origin.place(index).span
    return next((d for d in found if span is not None and d.labels and d.labels[0].span == span), None)


def _letters(schedule: Schedule) -> int | None:
    """The first W of an order in which B means I: with I for every B nothing is wrong."""
    op = schedule.op
    if np.any(op == Op.I) or not np.any(op == Op.W) or not np.any(op == Op.B):
        return None
    meant = replace(schedule, op=np.where(op == Op.B, Op.I, op).astype(op.dtype))
    return int(np.argmax(op == Op.W)) if _ends(meant) is not None else None


def _slips(schedule: Schedule) -> Iterator[_Slip]:
    """Every operation that may be misnamed, with the name that makes the order right."""
    for index in _suspects(schedule)[:TRIED].tolist():
        rest = np.ones(len(schedule), dtype=np.bool_)
        rest[index] = False
        right = _lacking(schedule, rest)
        if right is not None and _differ(schedule[index], right) == 1:
            mended = _renamed(schedule, index, right, rest)
            makespan = None if mended is None else _ends(mended)
            if mended is not None and makespan is not None:
                yield _Slip(index, replace(right, second=False), makespan, _descents(mended))


def _suspects(schedule: Schedule) -> Ints:
    """Operations that run twice, on another rank than most of their stage, or alone with their number."""
    op, stage, microbatch = (x.astype(np.int64) for x in (schedule.op, schedule.stage, schedule.microbatch))
    kind = np.where(op == Op.B, Op.I, op)
    _, same, count = np.unique(np.stack([kind, stage, microbatch]), axis=1, return_inverse=True, return_counts=True)
    twice = count[same.reshape(-1)] > 1
    few = [np.bincount(x)[x] == 1 for x in (stage, microbatch)]
    on = np.zeros((int(stage.max()) + 1, schedule.ranks), dtype=np.int64)
    np.add.at(on, (stage, schedule.rank), 1)
    return np.flatnonzero(twice | few[0] | few[1] | (on.argmax(axis=1)[stage] != schedule.rank))


def _lacking(schedule: Schedule, rest: Bools) -> Compute | None:
    """The one operation that the others lack, if they are all else: each once, each stage on one rank."""
    op, stage, microbatch = schedule.op[rest], schedule.stage[rest].astype(np.int64), schedule.microbatch[rest]
    if not len(op) or (int(stage.max()) + 1) * (int(microbatch.max()) + 1) > len(op):
        return None
    size = int(microbatch.max()) + 1
    places = (int(stage.max()) + 1) * size
    key = stage * size + microbatch
    f, i, w, b = (np.bincount(key[op == kind], minlength=places) for kind in (Op.F, Op.I, Op.W, Op.B))
    if max(f.max(), i.max(), w.max(), b.max()) > 1 or np.any((b > 0) & (i + w > 0)):
        return None
    none = (b == 0) & (i == 0) & (w == 0)
    holes = ((Op.F, f == 0), (Op.B, none), (Op.W, (b == 0) & (i > 0) & (w == 0)), (Op.I, (b == 0) & (i == 0) & (w > 0)))
    lacking = [(kind, int(at)) for kind, hole in holes for at in np.flatnonzero(hole)[:2]]
    if len(lacking) != 1:
        return None
    return Compute(lacking[0][0], *divmod(lacking[0][1], size))


def _differ(a: Compute, b: Compute) -> int:
    return (a.op is not b.op) + (a.stage != b.stage) + (a.microbatch != b.microbatch)


def _renamed(schedule: Schedule, index: int, right: Compute, rest: Bools) -> Schedule | None:
    """The order with the right name; None where a stage is then on two ranks."""
    columns = {name: getattr(schedule, name).copy() for name in ("op", "stage", "microbatch")}
    for name, value in (("op", right.op), ("stage", right.stage), ("microbatch", right.microbatch)):
        columns[name][index] = value
    stages, microbatches = int(columns["stage"].max()) + 1, int(columns["microbatch"].max()) + 1
    rank_of: Column = np.full(stages, -1, dtype=np.int32)
    rank_of[columns["stage"]] = schedule.rank
    if np.any(rank_of[columns["stage"]] != schedule.rank):
        return None
    placement = Placement(rank_of[None, :], np.zeros(microbatches, dtype=np.int32), schedule.ranks, ("",))
    return replace(schedule, placement=placement, **columns)


def _ends(schedule: Schedule) -> int | None:
    """The makespan of an order in which nothing is wrong."""
    made = Analysis(schedule)
    complete = check_complete(schedule, made.dependencies)
    wrong = [*complete, *check_dataflow(schedule, made.dependencies, made.timeline)]
    return None if wrong else made.timeline.makespan


def _descents(schedule: Schedule) -> int:
    """How often a kind of operation of a stage goes back to an earlier microbatch."""
    order = np.lexsort((np.arange(len(schedule)), schedule.stage, schedule.op))
    same = (np.diff(schedule.op[order]) == 0) & (np.diff(schedule.stage[order]) == 0)
    return int(np.count_nonzero(same & (np.diff(schedule.microbatch[order]) < 0)))
