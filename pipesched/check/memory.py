"""No rank holds more activations than its cap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pipesched.analysis.holdings import Memory
from pipesched.check.limited import notes, some
from pipesched.check.place import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.numbers import shown

LISTED = 12
RANKS = 3


def check_memory(memory: Memory, caps: Sequence[Fraction]) -> Iterator[Diagnostic]:
    """PS501 for the first ranks over their caps; caps in the unit of `analysis.holdings`, one a rank."""
    ranks = [rank for rank, (peak, cap) in enumerate(zip(memory.peak, caps, strict=True)) if peak > cap]
    for rank, more in some(ranks, RANKS):
        yield _over(memory, rank, caps[rank], more)


def _over(memory: Memory, rank: int, cap: Fraction, more: str) -> Diagnostic:
    schedule, peak = memory.schedule, shown(memory.peak[rank])
    first, top = memory.first_over(rank, cap), memory.peak_at[rank]
    held = f"{schedule[first]} is the first over the cap, {shown(memory.at(first))} are held"
    labels = [label(schedule, first, held + (", which is the peak" if first == top else ""))]
    if first != top:
        labels.append(label(schedule, top, f"the peak: {peak} are held"))
    live = memory.live(top)
    listed = " ".join(f"{stage}.{microbatch}" for stage, microbatch in live[:LISTED])
    others = f" and {len(live) - LISTED} more" if len(live) > LISTED else ""
    return Diagnostic(
        Code.OVER_CAP,
        f"rank {rank} holds {peak} activations; its cap is {shown(cap)}",
        tuple(labels),
        notes(
            f"held at the peak (stage.microbatch): {listed}{others}",
            _uneven(memory, sorted({stage for stage, _ in live})),
            f"release rule {memory.release.name}",
            more,
        ),
        "run a backward before the next forward, or raise the cap",
    )


def _uneven(memory: Memory, stages: Sequence[int]) -> str:
    """What M is on those of the stages that are not even."""
    uneven = [f"{shown(memory.size(stage))} on stage {stage}" for stage in stages if memory.size(stage) != 1]
    others = " and others" if len(uneven) > LISTED else ""
    return f"M, what one F holds: {', '.join(uneven[:LISTED])}{others}" if uneven else ""
