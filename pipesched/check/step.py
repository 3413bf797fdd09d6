"""Every rank steps once, with all of its gradients, and copies of a stage step with the sum of theirs.

    … 0B3  0REDUCE_GRAD  0SYNC>3  3SYNC>3  STEP        rank 0 of DualPipe, and on rank 3 the same with >0

    SYNC    once at each of the two copies, of the same stage at both ends, after its REDUCE_GRAD      PS605
    STEP    once on every rank, after all of its backwards, REDUCE_GRADs and SYNCs                      PS606
    none of REDUCE_GRAD, SYNC and STEP in a forward-only program, which has no gradient                 PS607

A program without any STEP or SYNC leaves both to its caller, as torch's files do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.analysis.pairing import pair
from pipesched.check.findings import label, limited, notes, repeats, rows
from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.model.columns import Ints, among
from pipesched.model.ops import BACKWARDS, MAKERS, Op, Result
from pipesched.model.program import Program

_BEFORE_SYNC = (*MAKERS[Result.WEIGHTS], Op.REDUCE_GRAD)
_BEFORE_STEP = (*_BEFORE_SYNC, Op.SYNC)
_OF_TRAINING = (Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.SYNC, Op.STEP)


def check_step(program: Program) -> Iterator[Diagnostic]:
    """PS605, PS606, PS607; nothing for a program that leaves the step to its caller."""
    syncs, steps = np.flatnonzero(program.op == Op.SYNC), np.flatnonzero(program.op == Op.STEP)
    if not np.any(among(program.op, BACKWARDS)):
        yield from _forward_only(program)
        return
    if not (len(syncs) or len(steps)):
        return
    yield from _odd(program, syncs)
    yield from _crossed(program, syncs)
    yield from _counts(program, syncs)
    yield from _early(program, syncs)
    if len(steps):
        yield from _steps(program, steps)


def _forward_only(program: Program) -> Iterator[Diagnostic]:
    for i, more in limited(np.flatnonzero(np.isin(program.op, _OF_TRAINING)).tolist()):
        yield Diagnostic(
            Code.ONLY_TRAINING,
            f"{program[i]} on rank {int(program.rank[i])}, but the program is forward-only: there is no gradient",
            (label(program, i, "nothing to reduce or to step with"),),
            notes(more),
            "remove it, or add the backwards",
        )


def _mate(program: Program, stage: int, rank: int) -> int:
    """The rank of the other copy, or -1; what is frozen has no gradients to sum."""
    trained = 0 <= stage < program.placement.stages and stage not in program.placement.frozen
    copies = program.placement.copies(stage) if trained else ()
    others = [copy for copy in copies if copy != rank]
    return others[0] if rank in copies and len(others) == 1 else -1


def _finding(program: Program, index: int, what: str, more: str, help: str, *rest: Label) -> Diagnostic:
    x = program[index]
    name = "STEP" if x.op is Op.STEP else f"the SYNC of stage {x.stage}"
    code = Code.STEP if x.op is Op.STEP else Code.SYNC
    message = f"{name} on rank {int(program.rank[index])} {what}"
    return Diagnostic(code, message, (label(program, index, str(x)), *rest), notes(more), help)


def _odd(program: Program, syncs: Ints) -> Iterator[Diagnostic]:
    """SYNCs of what has no two copies, or not these."""
    mates = {i: _mate(program, int(program.stage[i]), int(program.rank[i])) for i in syncs.tolist()}
    for i, more in limited([i for i in mates if mates[i] != program.peer[i]]):
        where = f"its other copy is on rank {mates[i]}" if mates[i] >= 0 else "there is no other copy of it"
        where = "the stage is frozen" if int(program.stage[i]) in program.placement.frozen else where
        yield _finding(program, i, f"is with rank {int(program.peer[i])}, but {where}", more, "remove it")


def _crossed(program: Program, syncs: Ints) -> Iterator[Diagnostic]:
    """The i-th SYNCs of two ranks meet, whatever their stages are."""
    partner = pair(program).partner[syncs]
    met = (partner > syncs) & (program.stage[partner] != program.stage[syncs])
    for (i, j), more in limited(rows(syncs[met], partner[met])):
        what = (
            f"meets that of stage {int(program.stage[j])} on rank {int(program.rank[j])}: it adds the wrong gradients"
        )
        met_here = label(program, j, f"{program[j]} meets it here")
        yield _finding(program, i, what, more, "put the SYNCs in one order on both ranks, by stage", met_here)


def _counts(program: Program, syncs: Ints) -> Iterator[Diagnostic]:
    """Each copy that has a mate once."""
    seen: dict[tuple[int, int], list[int]] = {}
    for i in syncs.tolist():
        seen.setdefault((int(program.stage[i]), int(program.rank[i])), []).append(i)
    again = [(spots[1], spots[0]) for spots in seen.values() if len(spots) > 1]
    for (i, before), more in limited(again):
        yield _finding(
            program, i, "is its second: it sums the sums again", more, "keep one", label(program, before, "first")
        )
    copies = [(s, r) for s in range(program.placement.stages) for r in program.placement.copies(s)]
    lost = [(s, r) for s, r in copies if _mate(program, s, r) >= 0 and (s, r) not in seen]
    for (stage, rank), more in limited(lost):
        yield Diagnostic(
            Code.SYNC,
            f"stage {stage} has a copy on rank {rank} and one on rank {_mate(program, stage, rank)}, "
            f"but no SYNC on rank {rank}",
            _last(program, rank, "the list ends"),
            notes("the copies step with different gradients, and drift apart", more),
            f"add the SYNC of stage {stage} before STEP",
        )


def _last(program: Program, rank: int, text: str) -> tuple[Label, ...]:
    low, high = int(program.start[rank]), int(program.start[rank + 1])
    return (label(program, high - 1, text),) if high > low else ()


def _early(program: Program, syncs: Ints) -> Iterator[Diagnostic]:
    """SYNCs before the last W, B or REDUCE_GRAD of their stage on their rank."""
    late = np.flatnonzero(np.isin(program.op, _BEFORE_SYNC))
    key = program.stage[late].astype(np.int64) * program.ranks + program.rank[late]
    last = dict(zip(key.tolist(), late.tolist(), strict=True))  # of repeated keys the last one stays
    found = [(i, last.get(int(program.stage[i]) * program.ranks + int(program.rank[i]), -1)) for i in syncs.tolist()]
    for (i, after), more in limited([(i, j) for i, j in found if j > i]):
        help = f"put it after {program[after]}"
        what = f"comes before {program[after]}, which must come first"
        yield _finding(program, i, what, more, help, label(program, after, str(program[after])))


def _steps(program: Program, steps: Ints) -> Iterator[Diagnostic]:
    """Once on every rank, last."""
    ranks = program.rank[steps].tolist()
    for rank, more in limited(sorted(set(range(program.ranks)) - set(ranks))):
        help = "end the list of every rank with STEP, or leave all of them to the caller"
        what = f"rank {rank} has no STEP, and others do: its weights stay as they are"
        yield Diagnostic(Code.STEP, what, _last(program, rank, "the list ends"), notes(more), help)
    again, first = repeats(program.rank[steps])
    for (i, before), more in limited(rows(steps[again], steps[first])):
        yield _finding(program, i, "is its second", more, "keep the last", label(program, before, "already here"))
    late = np.flatnonzero(np.isin(program.op, _BEFORE_STEP))
    last = dict(zip(program.rank[late].tolist(), late.tolist(), strict=True))
    early = [(i, last.get(rank, -1)) for i, rank in zip(steps.tolist(), ranks, strict=True)]
    for (i, after), more in limited([(i, j) for i, j in early if j > i]):
        help = "put it at the end"
        yield _finding(
            program, i, f"comes before {program[after]}", more, help, label(program, after, "comes after it")
        )
