"""Equality of two schedules' orders: equal placements, and equal operations slot by slot."""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import COMPUTES
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule


def same_place(a: Placement, b: Placement) -> bool:
    """Return True if two placements have the same stages on the same ranks, and the same routes and stage inputs."""
    return np.array_equal(a.rank_of, b.rank_of) and np.array_equal(a.route_of, b.route_of) and a.reads == b.reads


def same_order(a: Schedule, b: Schedule) -> bool:
    """Return True if two schedules have the same order on the same placement."""
    return (
        same_place(a.placement, b.placement) and np.array_equal(a.start, b.start) and np.array_equal(keys(a), keys(b))
    )


def keys(schedule: Schedule) -> Ints:
    """Pack each operation, and whether it shares the slot of the previous operation, into one number."""
    stage = schedule.stage.astype(np.int64)
    return ((stage * (1 << 26) + schedule.microbatch) * len(COMPUTES) + schedule.op) * 2 + schedule.joined
