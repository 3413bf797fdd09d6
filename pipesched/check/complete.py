"""Checks that every operation runs once, in range, on its rank, and that every rank has operations.

    one F                     of each (stage, microbatch)
    one B, or one I and one W
    no backward at all        the schedule is forward-only, and its report says so
    frozen stages             F, and I if an earlier stage is trained; no other operations
    R, O and L                anywhere, if there is a backward; an L for each O, and not both R and O

Operations are counted by one bincount over stage * microbatches + microbatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.check.checks import Subject
from pipesched.check.findings import by_statement, label, labels, limited, notes, rows
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.model.columns import Bools, among
from pipesched.model.numbers import interval
from pipesched.model.ops import COMPUTES, COPIED, FOR_BACKWARDS, MAKERS, Op, Result
from pipesched.model.schedule import Schedule

REQUIRED = {
    Op.F: "without it, the loss is never computed, and later stages wait for it",
    Op.B: "without it, the microbatch adds no gradient",
    Op.W: "without it, the weights get no gradient from the microbatch",
    Op.I: "without it, earlier stages get no gradient",
}
"""For each kind that every stage and microbatch must run, as a whole or in parts: the consequence if it is missing."""

LISTED = 8  # most microbatches that a message names


def check_complete(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS301 for missing operations, PS302 for duplicates, PS303 for operations on a rank other than their
    stage's, PS304 for operations out of range, PS310 for needless operations of frozen stages, PS311 for offloading
    combined with recomputation.
    """
    schedule, dependencies = subject.analysis.schedule, subject.analysis.dependencies
    runs = schedule.placement.table.reshape(-1) >= 0 if schedule.placement.left_out else None
    if whole(schedule, dependencies, runs):
        return
    yield from _range(schedule, dependencies)
    yield from _rank(schedule, dependencies)
    yield from _frozen(schedule, dependencies)
    yield from _twice(schedule, dependencies)
    yield from _missing(schedule, dependencies)
    yield from _copied(schedule, dependencies)


def whole(schedule: Schedule, dependencies: Dependencies, there: Bools | None = None) -> bool:
    """Return True if a quick test shows that no stage is frozen, nothing is recomputed or copied, and nothing is wrong:
    there are as many F, I, W and B as needed, and all the needed ones are present.

    there: for each stage and microbatch, whether the microbatch runs the stage, shape (stages * microbatches,); by
    default, every microbatch runs every stage.
    """
    there = np.ones(schedule.stages * schedule.microbatches, dtype=np.bool_) if there is None else there
    wanted, each = int(np.count_nonzero(there)), [Result.ACTIVATION, Result.GRADIENT, Result.WEIGHTS]
    counts = {result: sum(schedule.counts[op] for op in makers) for result, makers in MAKERS.items()}
    each = each[:1] if schedule.forward_only else each
    if counts != dict.fromkeys(Result, 0) | dict.fromkeys(each, wanted) or schedule.placement.frozen:
        return False
    if not dependencies.valid.all() or any((dependencies.made[result][there] < 0).any() for result in each):
        return False
    return bool((schedule.placement.table[schedule.stage, schedule.microbatch] == schedule.rank).all())


def _range(schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    outside = np.flatnonzero(~dependencies.valid)
    for i, more in limited(outside.tolist()):
        op = schedule[i]
        what = f"stages are {interval(0, schedule.stages)}, microbatches {interval(0, schedule.microbatches)}"
        yield Diagnostic(
            Code.OUT_OF_RANGE, f"{op} is out of range: {what}", (label(schedule, i, "no such operation"),), notes(more)
        )


def _rank(schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    inside = np.flatnonzero(dependencies.valid)
    held = schedule.placement.table[schedule.stage[inside], schedule.microbatch[inside]]
    wrong = inside[held != schedule.rank[inside]]
    for i, more in limited(wrong.tolist()):
        op, rank = schedule[i], int(schedule.rank[i])
        home = int(schedule.placement.table[op.stage, op.microbatch])
        there = int(dependencies.made[Result.ACTIVATION][op.stage * schedule.microbatches + op.microbatch])
        there = there if schedule.rank[there] == home else -1
        yield Diagnostic(
            CheckCode.WRONG_RANK,
            f"{op} runs on rank {rank}, but stage {op.stage} is on rank {home} for microbatch {op.microbatch}"
            if home >= 0
            else f"{op} runs on rank {rank}, but microbatch {op.microbatch} skips stage {op.stage}",
            labels(schedule, (i, f"runs on rank {rank}"), (there, f"its stage is here, on rank {home}")),
            notes(more),
            f"move it to rank {home}: activations, gradients and parameters of the stage are there"
            if home >= 0
            else "remove it",
        )


def _frozen(schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    """Yield findings on needless backward operations of frozen stages."""
    placement = schedule.placement
    if not placement.frozen:
        return
    at = np.flatnonzero(dependencies.valid)
    unwanted = at[placement.wanted[schedule.op[at], schedule.stage[at]] != schedule.op[at]]
    for (i,), more in by_statement(rows(unwanted), schedule):
        op = schedule[i]
        trained_before = bool(placement.wants[Result.GRADIENT][op.stage])
        why = "its weights get no gradient" if trained_before else "no earlier stage is trained, so it gets no gradient"
        help = f"write I{op.stage}.{op.microbatch}" if op.op.parts and trained_before else f"leave {op} out"
        yield Diagnostic(
            CheckCode.FROZEN,
            f"{op} runs, but stage {op.stage} is frozen: {why}",
            (label(schedule, i, "nothing needs it"),),
            notes(f"a frozen stage runs {'F and I' if trained_before else 'only F'}", more),
            f"{help}, or train the stage",
        )


def _twice(schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    """Yield findings on operations that run twice, and on each B that repeats an I or W of its stage and microbatch."""
    found: list[tuple[int, int, str]] = []
    for op in COMPUTES:
        at = np.flatnonzero((schedule.op == op) & dependencies.valid)[::-1]
        first = np.full(schedule.stages * schedule.microbatches, -1, dtype=np.int64)
        first[schedule.key(at)] = at  # for equal keys the last one is kept
        for kinds, how in ((op,), "again"), (op.parts, f"after {op.name} did the same work"):
            alike = np.flatnonzero(among(schedule.op, kinds) & dependencies.valid)
            earlier = first[schedule.key(alike)]
            twice = (earlier >= 0) & (earlier != alike)
            found += [(i, j, how) for i, j in rows(alike[twice], earlier[twice])]
    for (i, before, how), more in by_statement(sorted(found), schedule):
        here = labels(schedule, (i, f"runs here {how}"), (before, "already runs here"))
        name = schedule[before] if how == "again" else f"{schedule[i]} and {schedule[before]}"
        what = f"{name} runs twice" if how == "again" else f"{name} both run"
        op = Op(int(schedule.op[i]))
        enough = op.kind.makes[0] in FOR_BACKWARDS
        help = (
            f"keep one: one {op.name} is enough"
            if enough
            else "keep one: each microbatch must add its gradient only once"
        )
        yield Diagnostic(CheckCode.TWICE, what, here, notes(more), help)


def _missing(schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    for op, why in REQUIRED.items():
        lacks = _lacks(schedule, dependencies, op)
        if schedule.placement.left_out:
            lacks &= schedule.placement.table.reshape(-1) >= 0
        if op.backward and schedule.forward_only:
            lacks &= np.any([dependencies.made[result] >= 0 for result in FOR_BACKWARDS], axis=0)
        name = f"{op.name} (or {' and '.join(part.name for part in op.parts)})" if op.parts else op.name
        holes = np.flatnonzero(lacks)
        stages, rank_of = holes // schedule.microbatches, schedule.placement.table.reshape(-1)[holes].astype(np.int64)
        _, first, group = np.unique(stages * (schedule.ranks + 1) + rank_of, return_index=True, return_inverse=True)
        for hole, more in limited(np.sort(first).tolist(), 3):
            stage, rank = int(stages[hole]), int(rank_of[hole])
            where = f" on rank {rank}" if rank >= 0 else ""
            microbatches = (holes[group == group[hole]] % schedule.microbatches).tolist()
            never = op in (Op.B, Op.W) and len(microbatches) == schedule.microbatches > 1
            yield Diagnostic(
                CheckCode.MISSING,
                f"stage {stage} never runs {name} of {_listed(microbatches)}{where}",
                _near(schedule, dependencies, int(holes[hole])),
                notes(why, more),
                f"add the {op.name} of stage {stage}, microbatch {microbatches[0]}{where and ','}{where}"
                + (" and the others" if len(microbatches) > 1 else "")
                + (", or declare the stage frozen" if never else ""),
            )


def _copied(schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    """Yield findings on copies to the host without a copy back, or vice versa, and on activations freed in two ways."""
    ways = [(op, dependencies.made[op.kind.makes[0]]) for op in (*COPIED, *MAKERS[Result.RECOMPUTED])]
    for op, out in ways[: len(COPIED)]:
        back = dependencies.made[COPIED[op].kind.makes[0]]
        note = f"{op.name} is a {op.kind.words}, and {COPIED[op].name} a {COPIED[op].kind.words}"
        for found, other, lacks, why, where in (
            (out, back, COPIED[op], "is offloaded, but the backward needs it", "between it and its I or B"),
            (back, out, op, "was never offloaded", "before it"),
        ):
            for (i,), more in by_statement(rows(found[(found >= 0) & (other < 0)]), schedule):
                name = f"{lacks.name}{schedule[i].stage}.{schedule[i].microbatch}"
                yield Diagnostic(
                    CheckCode.MISSING,
                    f"{schedule[i]} runs, but {name} never does",
                    (label(schedule, i, f"its activation {why}"),),
                    notes(note, more),
                    f"add {name} {where}, or leave {schedule[i]} out",
                )
    for (op, out), (second, again) in combinations(ways, 2):
        both, does = np.flatnonzero((out >= 0) & (again >= 0)), "offloaded again" if second in COPIED else "recomputed"
        keep = [" and ".join(x.name for x in (one, COPIED.get(one)) if x is not None) for one in (op, second)]
        for (i, j), more in by_statement(rows(out[both], again[both]), schedule):
            yield Diagnostic(
                CheckCode.BOTH_WAYS,
                f"{schedule[i]} and {schedule[j]} both run: the activation is both offloaded and {does}",
                labels(schedule, (i, "is offloaded"), (j, f"is {does}")),
                notes("only a kept activation can be offloaded, and only once", more),
                f"keep {keep[0]}, or {keep[1]}",
            )


def _lacks(schedule: Schedule, dependencies: Dependencies, op: Op) -> Bools:
    """Return a mask by (stage, microbatch): True where this kind is missing, and so is a B that could replace it."""
    wants, m = schedule.placement.wants, schedule.microbatches

    def missing(op: Op) -> Bools:
        lacks = [np.repeat(wants[result], m) & (dependencies.made[result] < 0) for result in op.kind.makes]
        return np.asarray(np.all(lacks, axis=0))

    return np.asarray(np.all([missing(op), *(~missing(whole) for whole in COMPUTES if op in whole.parts)], axis=0))


def _listed(microbatches: list[int]) -> str:
    """Return text such as ``microbatch 7``, ``microbatches 1, 3, 4`` or ``12 microbatches: 1, 3, 4, …``."""
    if len(microbatches) == 1:
        return f"microbatch {microbatches[0]}"
    shown = ", ".join(map(str, microbatches[:LISTED]))
    if len(microbatches) <= LISTED:
        return f"microbatches {shown}"
    return f"{len(microbatches)} microbatches: {shown}, …"


def _near(schedule: Schedule, dependencies: Dependencies, key: int) -> tuple[Label, ...]:
    """Return a label at the backward, or else at the F, of the same stage and microbatch, if there is one."""
    backward, forward = (int(dependencies.made[result][key]) for result in (Result.GRADIENT, Result.ACTIVATION))
    return labels(schedule, (backward, "its backward runs here"), (forward, "its F runs here"))[:1]


def check_placement(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS902 for a rank without operations.

    Ranks are counted up to the last rank with a stage; p may be larger if a formula leaves later ranks without a stage.
    """
    schedule = subject.analysis.schedule
    asked = schedule.parameters.get("p", 0)
    if isinstance(asked, int) and asked > schedule.ranks:
        behind = " or after it" if asked > schedule.ranks + 1 else ""
        yield Diagnostic(
            CheckCode.IDLE_RANK,
            f"no stage is on rank {schedule.ranks}{behind}; p is {asked}",
            (),
            (f"the bubble and the unit of peaks refer to {schedule.ranks} ranks, {interval(0, schedule.ranks)}",),
            f"place a stage on rank {schedule.ranks} too: a range excludes its end, so `0 .. p` means p ranks",
        )
    for rank, more in limited(np.flatnonzero(np.diff(schedule.start) == 0).tolist()):
        yield Diagnostic(
            CheckCode.IDLE_RANK,
            f"rank {rank} has nothing to do",
            (),
            notes(f"there are {schedule.ranks} ranks, {interval(0, schedule.ranks)}", more),
            f"{'give it operations' if schedule.placement.chunks(rank) else 'place a stage on it'}, or use fewer ranks",
        )
