"""No rank holds more activations than its cap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pipesched.analysis.memory import Memory
from pipesched.check.place import label
from pipesched.diagnostics import Code, Diagnostic

LISTED = 12


def check_memory(memory: Memory, caps: Sequence[Fraction]) -> Iterator[Diagnostic]:
    """PS501 for each rank over its cap; caps in the unit of `analysis.memory`, one a rank."""
    schedule = memory.schedule
    for rank, (peak, cap) in enumerate(zip(memory.peak, caps, strict=True)):
        if peak <= cap:
            continue
        over, top = memory.first_over(rank, cap), memory.peak_at[rank]
        live = memory.live(top)
        shown = " ".join(f"{stage}.{microbatch}" for stage, microbatch in live[:LISTED])
        more = f" and {len(live) - LISTED} more" if len(live) > LISTED else ""
        yield Diagnostic(
            Code.OVER_CAP,
            f"rank {rank} holds {peak} activations; its cap is {cap}",
            (
                label(schedule, over, f"{schedule[over]} is the first over the cap: {memory.at(over)} are held"),
                label(schedule, top, f"the peak: {peak} are held"),
            ),
            (f"held at the peak (stage.microbatch): {shown}{more}", f"release rule {memory.release.name}"),
            "run a backward before the next forward, or raise the cap",
        )
