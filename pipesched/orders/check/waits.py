"""Checks that each WAIT completes a send or a reduction that is pending on its rank.

PS406   a WAIT for a send or a reduction that is not pending
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes
from pipesched.diagnostics import Diagnostic
from pipesched.model.columns import among, fresh, running_sum
from pipesched.model.ops import Op
from pipesched.orders.codes import OrdersCode

_AWAITED = {Op.WAIT_SEND_F: Op.SEND_F, Op.WAIT_SEND_B: Op.SEND_B, Op.WAIT_REDUCE_GRAD: Op.REDUCE_GRAD}


def check_waits(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS406; O(instructions log instructions). Each WAIT completes one send, or one reduction, of its rank."""
    program = subject.own
    waits = among(program.op, _AWAITED)
    if subject.for_torch or not waits.any():
        return
    index = np.flatnonzero(waits | among(program.op, _AWAITED.values()))
    awaited = np.array([_AWAITED.get(op, op) for op in Op])[program.op[index]]
    other = program.stage[index] if program.other is None else program.other[index]
    columns = (other, program.microbatch[index], program.stage[index], awaited, program.rank[index])
    order = np.lexsort((index, *columns))
    index, begins = index[order], fresh(*(column[order] for column in columns))
    under_way = running_sum(np.where(waits[index], -1, 1), np.append(np.flatnonzero(begins), len(index)))
    zero = np.cumsum(begins) * -(len(index) + 1)  # so far below earlier entries that their minimum is irrelevant here
    least = np.minimum.accumulate(np.minimum(under_way, 0) + zero)
    early = np.sort(index[least < np.minimum(np.append(0, least[:-1]), zero)])
    for i, more in limited(early.tolist()):
        x = program[i]
        name = str(x).replace("WAIT_", "")
        yield Diagnostic(
            OrdersCode.NOT_UNDER_WAY,
            f"{x} on rank {int(program.rank[i])} waits for a {name} that is not pending",
            (label(program, i, f"every earlier {name} already has its WAIT"),),
            notes(more),
            f"put it after its {name}, or remove it",
        )
