"""The last stage runs its forwards in the order 0, 1, 2, ….

torch appends each loss to a list when the forward of the last stage is done, and the backward of microbatch i takes
the i-th entry. The place in the list is the only name that a loss has:

    forwards 1, 0     losses [loss of 1, loss of 0]     B0 starts from the loss of 1

Source: `_maybe_compute_loss` and `_maybe_get_loss` of ``torch.distributed.pipelining.schedules``, all versions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.limited import notes, some
from pipesched.check.place import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.ops import Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.model.torch_versions import NEWEST


def check_last_stage(order: Program | Schedule) -> Iterator[Diagnostic]:
    """The first forward of the last stage, on each rank that has it, that comes after a later microbatch."""
    last = order.placement.stages - 1
    forward = np.flatnonzero((order.op == Op.F) & (order.stage == last))
    rank, microbatch = order.rank[forward], order.microbatch[forward]
    down = np.flatnonzero((rank[1:] == rank[:-1]) & (microbatch[1:] < microbatch[:-1]))
    first = down[np.unique(rank[down], return_index=True)[1]]
    found = zip(forward[first + 1].tolist(), forward[first].tolist(), strict=True)
    for (index, before), more in some(list(found)):
        place = int(np.count_nonzero((forward < index) & (rank == order.rank[index])))
        yield _tell(order, index, before, place, more)


def _tell(order: Program | Schedule, index: int, before: int, place: int, more: str) -> Diagnostic:
    late, early = int(order.microbatch[before]), int(order.microbatch[index])
    return Diagnostic(
        Code.TORCH_LAST_STAGE,
        f"the last stage runs microbatch {early} after microbatch {late}: torch pairs losses with microbatches by "
        "position, so gradients are silently wrong",
        (
            label(order, index, f"its loss is taken for the one of microbatch {place}"),
            label(order, before, f"microbatch {late} runs before it"),
        ),
        notes(f"torch looks up the loss of microbatch i as the i-th one computed, in every version to {NEWEST}", more),
        f"run the forwards of stage {int(order.stage[index])} in the order 0, 1, 2, …",
    )
