"""A stage has at most two copies, since SYNC sums two; and every rank has something to do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.limited import notes, some
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.schedule import Schedule


def check_placement(schedule: Schedule) -> Iterator[Diagnostic]:
    """PS604 for each stage on three ranks or more, in a schedule that trains; PS902 for a rank without operations."""
    yield from _copies(schedule)
    for rank, more in some(np.flatnonzero(np.diff(schedule.start) == 0).tolist()):
        yield Diagnostic(
            Code.IDLE_RANK,
            f"rank {rank} has nothing to do",
            (),
            notes(f"there are {schedule.ranks} ranks, 0 .. {schedule.ranks}", more),
            "place a stage on it, or use fewer ranks",
        )


def _copies(schedule: Schedule) -> Iterator[Diagnostic]:
    if schedule.forward_only or schedule.placement.routes < 3:
        return
    copies = {stage: schedule.placement.copies(stage) for stage in range(schedule.stages)}
    for stage, more in some([stage for stage, ranks in copies.items() if len(ranks) > 2]):
        ranks = ", ".join(map(str, copies[stage]))
        yield Diagnostic(
            Code.COPIES,
            f"stage {stage} has {len(copies[stage])} copies, on ranks {ranks}",
            (),
            notes("SYNC sums the gradients of two copies of a stage", more),
            "place each stage on at most two ranks",
        )
