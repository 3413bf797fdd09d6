"""Checks that no rank holds more activations than its cap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pipesched.analysis.holdings import Memory
from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Diagnostic, Label
from pipesched.model.numbers import shown
from pipesched.model.schedule import Schedule

LISTED = 12
RANKS = 3


def check_memory(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS501 for the ranks that exceed their caps the most; caps are in the unit of `analysis.holdings`."""
    memory, caps = subject.analysis.memory, subject.caps
    for rank, more in furthest(memory.peak, caps):
        first, top, most = memory.first_over(rank, caps[rank]), memory.peak_at[rank], shown(memory.peak[rank])
        live = memory.live(top)
        yield Diagnostic(
            CheckCode.OVER_CAP,
            f"rank {rank} holds {most} activations; its cap is {shown(caps[rank])}",
            places(memory.schedule, first, top, f"{shown(memory.at(first))} are held", f"{most} are held"),
            notes(
                f"held at the peak (stage.microbatch): {listed(live)}",
                _uneven(memory, live),
                f"release rule {memory.release.name}",
                more,
            ),
            "run a backward before the next forward, or raise the cap",
        )


def furthest(peaks: Sequence[Fraction | int], caps: Sequence[Fraction]) -> Iterator[tuple[int, str]]:
    """Yield the ranks that exceed their caps the most; ties are listed in rank order."""
    over = [peak - cap for peak, cap in zip(peaks, caps, strict=True)]
    return limited(sorted((rank for rank, more in enumerate(over) if more > 0), key=lambda rank: -over[rank]), RANKS)


def places(schedule: Schedule, first: int, top: int, held: str, most: str) -> tuple[Label, ...]:
    """Return labels where a rank first exceeds its cap and where it reaches its peak, with the live activations."""
    said = f"{schedule[first]} is the first to exceed the cap: {held}"
    if first == top:
        return (label(schedule, first, f"{said}, which is the peak"),)
    return label(schedule, first, said), label(schedule, top, f"the peak: {most}")


def listed(live: Sequence[tuple[int, int]]) -> str:
    others = f" and {len(live) - LISTED} more" if len(live) > LISTED else ""
    return " ".join(f"{stage}.{microbatch}" for stage, microbatch in live[:LISTED]) + others


def _uneven(memory: Memory, live: Sequence[tuple[int, int]]) -> str:
    """Return a note on the stages whose M is not 1, per microbatch if M differs between microbatches."""
    if memory.sizes.even:
        sizes = {f"on stage {stage}": memory.sizes.at(stage, 0) for stage in sorted({stage for stage, _ in live})}
    else:
        sizes = {f"of {stage}.{microbatch}": memory.sizes.at(stage, microbatch) for stage, microbatch in live}
    uneven = [f"{shown(size)} {where}" for where, size in sizes.items() if size != 1]
    others = " and others" if len(uneven) > LISTED else ""
    return f"M, the memory of one F: {', '.join(uneven[:LISTED])}{others}" if uneven else ""
