"""torch gives every stage one rank.

`_validate_schedule` maps a stage to the row in which it finds it, and refuses a second row. Schedules with two routes
(DualPipe, Chimera) hold two copies of every stage, so no version of torch runs them; other runtimes do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.place import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.ops import Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule


def check_two_ranks(order: Program | Schedule, *, error: bool) -> Iterator[Diagnostic]:
    """One finding for all stages that compute on several ranks; a warning unless torch was asked for."""
    compute = np.flatnonzero(order.op <= Op.B)
    stage, rank = order.stage[compute].astype(np.int64), order.rank[compute]
    homes, first = np.unique(stage * order.ranks + rank, return_index=True)
    stages, count = np.unique(homes // order.ranks, return_counts=True)
    twice = stages[count > 1]
    if not len(twice):
        return
    at = np.sort(compute[first[homes // order.ranks == twice[0]]])
    yield Diagnostic(
        Code.TORCH_TWO_RANKS if error else Code.TWO_RANKS,
        f"{_listed(twice.tolist())} on several ranks: torch's runtime refuses the file",
        tuple(label(order, int(i), f"stage {int(twice[0])} computes here") for i in at),
        ("torch gives every stage one rank, the row in which it finds it first",),
        "DualPipeV and ZB-V keep each stage on one rank, and torch runs them; "
        "two routes need a runtime that knows copies of stages",
    )


def _listed(stages: list[int]) -> str:
    if len(stages) == 1:
        return f"stage {stages[0]} is"
    shown = ", ".join(map(str, stages[:8])) + (", …" if len(stages) > 8 else "")
    return f"{len(stages)} stages ({shown}) are"
