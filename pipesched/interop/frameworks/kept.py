"""Checks a framework's buffers: a microbatch must not be put into a buffer before the previous one was taken out.

    ForwardPass(0)  F0.0     output buffer 0 holds microbatch 0 from here
    ForwardPass(0)  F0.1     overwritten by microbatch 1, which B0.0 then takes   PS865
    BackwardPass(0) B0.0     to here

An engine whose instructions name a buffer reads the buffer's latest value. It may have a single buffer for the losses,
or for the received gradients, of all microbatches: then the B of each microbatch must run before the next loss or
gradient arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes
from pipesched.diagnostics import Diagnostic
from pipesched.interop.codes import InteropCode
from pipesched.model.schedule import Program, Schedule

Kept = tuple[str, int, int, int, int, int, int]
"""The span during which a buffer holds a microbatch: buffer, stage and microbatch; then, for the first and the last
instruction that uses it, the position among the stage's instructions and among the rank's words."""


@dataclass(frozen=True)
class Keeping:
    """For each rank, the spans during which the framework's buffers hold microbatches."""

    by_rank: Sequence[Sequence[Kept]] = ()


def check(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS865 for a framework's schedule."""
    return check_kept(subject.analysis.own or subject.analysis.schedule, subject.of(Keeping).by_rank)


def check_kept(order: Program | Schedule, kept: Sequence[Sequence[Kept]]) -> Iterator[Diagnostic]:
    """Yield PS865 for the first microbatch on each rank that overwrites another one. kept: as in `Keeping`."""
    for rank, spans in enumerate(kept):
        ordered = sorted(spans, key=lambda one: (one[1], one[0], one[3]))
        early = [(one, then) for one, then in pairwise(ordered) if one[:2] == then[:2] and then[3] < one[5]]
        early.sort(key=lambda pair: pair[1][3])
        for (one, then), more in limited(early, 1):
            yield _finding(order, rank, one, then, ordered, more)


def _finding(
    order: Program | Schedule, rank: int, one: Kept, then: Kept, spans: Sequence[Kept], more: str
) -> Diagnostic:
    (place, stage, microbatch, *_, last), (_, _, late, _, first, *_) = one, then
    begin = int(order.start[rank])
    kind, numbered, _ = place.partition(" buffer ")
    if numbered:
        alike = [x for x in spans if x[1] == stage and x[0].startswith(kind + numbered)]
        most = max(sum(x[3] <= y[3] < x[5] for x in alike) for y in alike)
        help = f"stage {stage} has up to {most} microbatches at once: it needs {most} buffers"
    else:
        help = f"run the backward of each microbatch before {place} of the next one, or keep {place} of each separately"
    return Diagnostic(
        InteropCode.KEPT,
        f"rank {rank} puts microbatch {late} into {place} of stage {stage}, which still holds microbatch {microbatch}",
        (
            label(order, begin + first, f"microbatch {late} is put there"),
            label(order, begin + last, f"but microbatch {microbatch} is only taken out here"),
        ),
        notes(f"{place} holds only one microbatch at a time, the latest", more),
        help,
    )
