"""Checks the data flow: the order on each rank, and cycles in which compute orders wait for each other.

    F before its I or B;  I before its W;  R, O and L after the F or O, and before the I or B;
    producer before consumer on the same rank                                            PS305
    slices of a sequence: F in order, I and B in reverse                                 PS305
    the parts of an overlap pair do not depend on each other                             PS307
    no cycle of ranks in which each waits for a later operation of the next              PS306

A cycle of compute operations does not involve messages, so buffering cannot resolve it. The timeline stops at the
cycle.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.analysis.dependencies import Dependencies, between_slices
from pipesched.analysis.standstill import compute_cycle
from pipesched.analysis.timeline import paired
from pipesched.check.checks import Subject
from pipesched.check.findings import by_statement, label, limited, notes, rows
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.extension import explained
from pipesched.model.columns import Ints, among, makes
from pipesched.model.costs import PAIRS
from pipesched.model.ops import COMPUTES, COPIED, FOR_BACKWARDS, MAKERS, SAME, Compute, Result, overlap
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis


def check_dataflow(subject: Subject) -> Iterator[Diagnostic]:
    """Yield findings with the codes PS305, PS306 and PS307."""
    made = subject.analysis
    yield from check_order(made.schedule, made.dependencies)
    yield from _overlaps(made.schedule)
    yield from _cycle(made)


def check_order(schedule: Schedule, dependencies: Dependencies) -> Iterator[Diagnostic]:
    """Yield PS305 for operations that run before their producers."""
    found: dict[int, int] = {}
    at = np.flatnonzero(dependencies.valid & among(schedule.op, _OF_ACTIVATIONS))
    key = schedule.key(at)
    for result in (Result.ACTIVATION, *FOR_BACKWARDS):
        if schedule.has(MAKERS[result]):
            _late(schedule, at, dependencies.made[result][key], found)
    _late(schedule, np.arange(len(schedule)), dependencies.producer, found)
    if len(dependencies.further):
        _late(schedule, dependencies.further.consumer, dependencies.further.producer, found)
    for at, before in between_slices(schedule, dependencies):
        _late(schedule, at, before, found)
    for (i, needed), more in by_statement(sorted(found.items()), schedule):
        op, producer = schedule[i], schedule[needed]
        yield Diagnostic(
            CheckCode.ORDER,
            f"{op} runs before {producer} on rank {int(schedule.rank[i])}, but needs it",
            (label(schedule, i, f"needs {producer}"), label(schedule, needed, f"{producer} runs only here")),
            notes(_why(op, producer), more),
            f"put {producer} before {op}",
        )


_OF_ACTIVATIONS = [op for op in COMPUTES if op.kind.own is Result.ACTIVATION]
"""The kinds that use the activation of their own stage and microbatch."""


def _late(schedule: Schedule, at: Ints, before: Ints, found: dict[int, int]) -> None:
    """Record in `found` the operations whose producer comes later on the same rank."""
    behind = np.flatnonzero(before > at)
    at, before = at[behind], before[behind]
    late = schedule.rank[before] == schedule.rank[at]
    for i, needed in rows(at[late], before[late]):
        found.setdefault(i, needed)


def _why(op: Compute, producer: Compute) -> str:
    if op.stage == producer.stage and op.microbatch != producer.microbatch:
        return "a slice attends to earlier slices of its sequence, and gets gradients from later ones"
    if Result.RECOMPUTED in producer.op.kind.makes:
        return "a backward uses the activations that R recomputes"
    if producer.op.copy:
        out, back = next(pair for pair in COPIED.items() if producer.op in pair)
        return f"an activation is offloaded by {out.name}, loaded back by {back.name}, and then used by the backward"
    if op.op.kind.of == SAME:
        return f"{op.op.name} uses the {op.op.result.words}s that {producer.op.name} stores"
    if op.stage == producer.stage and op.op.kind.own in producer.op.kind.makes:
        return "a backward uses the activations of its forward"
    return "both stages are on this rank, which runs its list in order and cannot wait for a later result"


def _overlaps(schedule: Schedule) -> Iterator[Diagnostic]:
    """Yield findings on pairs of kinds that cannot overlap, and on second parts that depend on the first part."""
    yield from _torn(schedule)
    second = np.flatnonzero(schedule.joined)
    if not len(second):
        return
    kinds = np.any([paired(schedule, key)[second] for key in PAIRS], axis=0)
    own = schedule.stage[second - 1] == schedule.stage[second]
    alike = makes(schedule.op[second - 1], Result.ACTIVATION) | own
    dependent = alike & (schedule.microbatch[second - 1] == schedule.microbatch[second])
    for (i, _), more in by_statement(rows(*(x[dependent | ~kinds] for x in (second, second - 1))), schedule):
        first, part = schedule[i - 1], schedule[i]
        if not overlap(first.op, part.op):
            what, why = f"{first} and {part} overlap", "an overlap pair is an F with a B, I or W, or an I with a W"
        else:
            what = f"{first} and {part} overlap, but {part} depends on {first}"
            why = "a microbatch's backward starts after its whole forward, and a W after the I of its stage"
        yield Diagnostic(
            CheckCode.OVERLAP_DEPENDENT,
            what,
            (label(schedule, i - 1, "the two parts run at the same time"),),
            notes(why, more),
            "overlap operations of different microbatches",
        )


def _torn(schedule: Schedule) -> Iterator[Diagnostic]:
    for i, more in limited(np.flatnonzero(schedule.second & ~schedule.joined).tolist()):
        what = f"{schedule[i]} is the second part of an overlap pair, but nothing on rank {int(schedule.rank[i])}"
        here = (label(schedule, i, "this is the first operation on its rank"),)
        yield Diagnostic(CheckCode.OVERLAP_DEPENDENT, f"{what} precedes it", here, notes(more), "put an F before it")


def _cycle(made: Analysis) -> Iterator[Diagnostic]:
    schedule = made.schedule
    cycle = compute_cycle(schedule, made.dependencies, made.timeline)
    if not cycle:
        return
    labels: list[Label] = []
    for part, producer in cycle:
        awaited = f"{schedule[producer]}, which rank {int(schedule.rank[producer])} runs at step"
        labels.append(label(schedule, part, f"{schedule[part]} waits for {awaited} {schedule.step(producer)}"))
    ranks = [str(int(schedule.rank[part])) for part, _ in cycle]
    found = Diagnostic(
        Code.COMPUTE_CYCLE,
        f"the compute orders of ranks {', '.join(ranks[:-1])} and {ranks[-1]} wait for each other",
        tuple(labels),
        ("this deadlocks under every communication model, with any order of messages",),
        "on one of these ranks, run the awaited operation before the operation that waits",
    )
    yield from explained("cycle", [found], schedule, cycle)
