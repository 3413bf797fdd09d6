"""Labels at operations and instructions: the rank, the step and the bindings."""

from __future__ import annotations

from pipesched.diagnostics import Label
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule


def label(where: Schedule | Program, index: int, text: str) -> Label:
    """``rank 0, step 9 (k = 5): waits until …`` at the place of an operation or instruction; steps count from 1."""
    place = where.origin.place(index)
    bindings = f" ({place.bindings})" if place.bindings else ""
    return Label(place.span, f"rank {int(where.rank[index])}, step {where.step(index)}{bindings}: {text}")
