"""torch's CSV, written: one row a rank, one cell an action, nothing else.

    compute_only     0F0,0F1,0B0,0B1                                from a Schedule
    compute_comms    0UNSHARD,0F0,0SEND_F0,…,0REDUCE_GRAD,0RESHARD  from a Program (`lower.torch_actions`)

An overlap pair is one cell, ``(3F0;3B1)OVERLAP_F_B``. There are no bubbles: torch needs none, and a program has none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.formats import numbered
from pipesched.model.ops import Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule


def pieces(order: Schedule | Program) -> Iterator[str]:
    """The rows, a rank at a time. SYNC and STEP are no actions of torch: who has them lowers them first."""
    for rank in range(order.ranks):
        yield _row(order, rank)


def _row(order: Schedule | Program, rank: int) -> str:
    here = slice(int(order.start[rank]), int(order.start[rank + 1]))
    op, microbatch = order.op[here], order.microbatch[here]
    kinds, kind = numbered.distinct(op, numbered.parts(op, order.second[here]), order.stage[here])
    number = np.where(microbatch >= 0, microbatch, -1)
    return numbered.write([_cell(*row) for row in kinds], kind, number).removesuffix(",") + "\n"


def _cell(op: int, part: int, stage: int) -> tuple[str, str]:
    """What stands before and after the microbatch."""
    name = f"{stage}{Op(op).name}"
    if part == numbered.FIRST:
        return f"({name}", ";"
    return name, ")OVERLAP_F_B," if part == numbered.SECOND else ","
