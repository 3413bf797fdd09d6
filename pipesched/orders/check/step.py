"""Checks that every rank runs STEP once, with all its gradients, and that the copies of a stage use summed gradients.

    … 0B3  0REDUCE_GRAD  0SYNC>3  3SYNC>3  STEP        rank 0 of DualPipe; rank 3 has the same with >0

    SYNC    once at each of two copies, of the same stage at both ends, after its REDUCE_GRAD          PS605
            among four copies: 0 with 1, 2 with 3, then 0 with 2, 1 with 3; eight: likewise
    STEP    once on every rank, after all of its backwards, REDUCE_GRADs and SYNCs                      PS606
    no REDUCE_GRAD, SYNC or STEP in a forward-only program, which has no gradient                 PS607

A program without STEP and SYNC leaves both to its caller, as torch's files do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipesched.analysis.pairing import pair
from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes, repeats, rows
from pipesched.diagnostics import Diagnostic, Label
from pipesched.model.columns import Ints, among
from pipesched.model.ops import BACKWARDS, MAKERS, Op, Result
from pipesched.model.schedule import Program
from pipesched.orders.codes import OrdersCode

_BEFORE_SYNC = (*MAKERS[Result.WEIGHTS], Op.REDUCE_GRAD)
_BEFORE_STEP = (*_BEFORE_SYNC, Op.SYNC)
_OF_TRAINING = (Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.SYNC, Op.STEP)


def check_step(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS605, PS606, PS607; nothing for a program that leaves the STEP to its caller."""
    program = subject.own
    syncs, steps = np.flatnonzero(program.op == Op.SYNC), np.flatnonzero(program.op == Op.STEP)
    if not np.any(among(program.op, BACKWARDS)):
        yield from _forward_only(program)
        return
    if not (len(syncs) or len(steps)) or subject.analysis.schedule.steps:
        return
    yield from _odd(program, syncs)
    yield from _out_of_turn(program, syncs)
    yield from _crossed(program, syncs)
    yield from _counts(program, syncs)
    yield from _early(program, syncs, _BEFORE_SYNC, program.stage.astype(np.int64) * program.ranks + program.rank)
    if len(steps):
        yield from _steps(program, steps)


def _forward_only(program: Program) -> Iterator[Diagnostic]:
    for i, more in limited(np.flatnonzero(among(program.op, _OF_TRAINING)).tolist()):
        yield Diagnostic(
            OrdersCode.ONLY_TRAINING,
            f"{program[i]} on rank {int(program.rank[i])}, but the program is forward-only: there is no gradient",
            (label(program, i, "nothing can be reduced or applied"),),
            notes(more),
            "remove it, or add the backwards",
        )


def _mates(program: Program, stage: int, rank: int) -> list[int]:
    """Return the ranks of the copies with which this copy syncs, in order; frozen stages have no gradients to sum."""
    trained = 0 <= stage < program.placement.stages and stage not in program.placement.frozen
    pairs = program.placement.meetings(stage) if trained else []
    return [sum(pair) - rank for pair in pairs if rank in pair]


def _finding(program: Program, index: int, what: str, more: str, help: str, *rest: Label) -> Diagnostic:
    x = program[index]
    name = "STEP" if x.op is Op.STEP else f"the SYNC of stage {x.stage}"
    code = OrdersCode.STEP if x.op is Op.STEP else OrdersCode.SYNC
    message = f"{name} on rank {int(program.rank[index])} {what}"
    return Diagnostic(code, message, (label(program, index, str(x)), *rest), notes(more), help)


def _odd(program: Program, syncs: Ints) -> Iterator[Diagnostic]:
    """Yield findings on SYNCs of a stage that does not have copies on these two ranks."""
    mates = {i: _mates(program, int(program.stage[i]), int(program.rank[i])) for i in syncs.tolist()}
    for i, more in limited([i for i in mates if program.peer[i] not in mates[i]]):
        where = f"the other copy is on rank {mates[i][0]}" if mates[i] else "the stage has no other copy"
        where = f"its partners are on ranks {', '.join(map(str, mates[i]))}" if len(mates[i]) > 1 else where
        where = "the stage is frozen" if int(program.stage[i]) in program.placement.frozen else where
        yield _finding(program, i, f"names rank {int(program.peer[i])} as its peer, but {where}", more, "remove it")


def _out_of_turn(program: Program, syncs: Ints) -> Iterator[Diagnostic]:
    """Yield findings on SYNCs of four or more copies in a wrong order, which would add gradients twice."""
    turns: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for i in syncs.tolist():
        stage, rank = int(program.stage[i]), int(program.rank[i])
        mates = _mates(program, stage, rank)
        if int(program.peer[i]) in mates:
            turns.setdefault(stage, {}).setdefault(rank, []).append((mates.index(int(program.peer[i])), i))
    others = [(met, there) for of in turns.values() for met in [next(iter(of.values()))] for there in of.values()]
    found = [
        next((i, j) for (x, i), (y, j) in zip(there, met, strict=True) if x != y)
        for met, there in others
        if sorted(x for x, _ in there) == sorted(x for x, _ in met) and [x for x, _ in there] != [x for x, _ in met]
    ]
    for (i, j), more in limited(found):
        what = f"is out of order: rank {int(program.rank[j])} syncs with the other copies in a different order"
        yield _finding(program, i, what, more, "make all copies sync in the same order", label(program, j, "in turn"))


def _crossed(program: Program, syncs: Ints) -> Iterator[Diagnostic]:
    """Yield findings on SYNCs of two ranks that pair (the i-th with the i-th) but have different stages."""
    partner = pair(program).partner[syncs]
    met = (partner > syncs) & (program.stage[partner] != program.stage[syncs])
    for (i, j), more in limited(rows(syncs[met], partner[met])):
        what = (
            f"pairs with the SYNC of stage {int(program.stage[j])} on rank {int(program.rank[j])}: it adds the wrong "
            "gradients"
        )
        met_here = label(program, j, f"{program[j]} pairs with it here")
        yield _finding(program, i, what, more, "put the SYNCs of both ranks in the same order of stages", met_here)


def _counts(program: Program, syncs: Ints) -> Iterator[Diagnostic]:
    """Yield findings on copies that do not SYNC exactly once with each partner."""
    seen: dict[tuple[int, int, int], list[int]] = {}
    for i in syncs.tolist():
        seen.setdefault((int(program.stage[i]), int(program.rank[i]), int(program.peer[i])), []).append(i)
    again = [(spots[1], spots[0]) for spots in seen.values() if len(spots) > 1]
    for (i, before), more in limited(again):
        yield _finding(
            program, i, "repeats a SYNC, so it adds the sums again", more, "keep one", label(program, before, "first")
        )
    copies = [(s, r) for s in range(program.placement.stages) for r in program.placement.copies(s)]
    meetings = [(s, r, mate) for s, r in copies for mate in _mates(program, s, r)]
    for (stage, rank, mate), more in limited([x for x in meetings if x not in seen]):
        yield Diagnostic(
            OrdersCode.SYNC,
            f"stage {stage} has a copy on rank {rank} and one on rank {mate}, but no SYNC on rank {rank}"
            + (f" with rank {mate}" if len(program.placement.copies(stage)) > 2 else ""),
            _last(program, rank, "the list ends"),
            notes("the copies then step with different gradients and diverge", more),
            f"add the SYNC of stage {stage} before STEP",
        )


def _last(program: Program, rank: int, text: str) -> tuple[Label, ...]:
    low, high = int(program.start[rank]), int(program.start[rank + 1])
    return (label(program, high - 1, text),) if high > low else ()


def _early(program: Program, at: Ints, kinds: Sequence[Op], key: Ints) -> Iterator[Diagnostic]:
    """Yield findings on SYNCs or STEPs before the last instruction of the given kinds that has the same key."""
    late = np.flatnonzero(among(program.op, kinds))
    last = dict(zip(key[late].tolist(), late.tolist(), strict=True))  # of equal keys the last one remains
    found = [(i, last.get(of, -1)) for i, of in rows(at, key[at])]
    for (i, after), more in limited([(i, j) for i, j in found if j > i]):
        what = f"comes before {program[after]}, which must come first"
        here = label(program, after, str(program[after]))
        yield _finding(program, i, what, more, f"put it after {program[after]}", here)


def _steps(program: Program, steps: Ints) -> Iterator[Diagnostic]:
    """Yield findings on ranks without exactly one STEP at the end."""
    for rank, more in limited(np.setdiff1d(np.arange(program.ranks), program.rank[steps]).tolist()):
        help = "end the list of every rank with STEP, or remove all STEPs so that the caller runs the optimizer"
        what = f"rank {rank} has no STEP, but other ranks do: its weights do not change"
        yield Diagnostic(OrdersCode.STEP, what, _last(program, rank, "the list ends"), notes(more), help)
    for (i, before), more in limited(repeats(steps, program.rank[steps])):
        yield _finding(program, i, "is its second", more, "keep the last", label(program, before, "already here"))
    yield from _early(program, steps, _BEFORE_STEP, program.rank)
