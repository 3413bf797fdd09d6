"""Orders of slots: converts a model of the clauses to a schedule."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection
from typing import TypeAlias

import numpy as np

from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.optimizer.proof.slot_terms import Kind, Stage
from pipesched.optimizer.proof.slots import SlotClauses

Pending: TypeAlias = dict[tuple[Op, Stage], deque[int]]
"""For each kind and stage, the microbatches whose W or R has not run yet, oldest first."""


def schedule_of(clauses: SlotClauses, true: Collection[int], placement: Placement, name: str) -> Schedule:
    """Return the schedule that a model describes: the slots of each rank, in the order of their starts."""
    orders: list[list[Compute]] = []
    of_route = [np.flatnonzero(placement.route_of == route) for route in range(placement.routes)]
    for slots in clauses.slots:
        next_one: Counter[tuple[Op, Stage]] = Counter()
        pending: Pending = defaultdict(deque)
        ran = (kind for at_once in slots for kind, x in at_once.items() if x in true)
        orders.append([each for kind in ran for each in _row(kind, next_one, pending, of_route)])
    return Schedule.from_orders(orders, placement, name)


def _row(
    kind: Kind, following: Counter[tuple[Op, Stage]], pending: Pending, of_route: list[np.ndarray]
) -> list[Compute]:
    """Return the operations of a slot: the next F, the next I or B of a stage, or the oldest W or R that is pending."""
    made = []
    if (q := kind.forward) is not None:
        i = following[Op.F, q]
        made.append(Compute(Op.F, q[1], int(of_route[q[0]][i])))
        following[Op.F, q] += 1
        if kind.again:
            pending[Op.R, q].append(i)
    if (q := kind.backward) is not None and kind.op is not None:
        if kind.op in (Op.W, Op.R):
            i = pending[kind.op, q].popleft()
        else:
            i = following[Op.I, q]
            following[Op.I, q] += 1
            if kind.op is Op.I:
                pending[Op.W, q].append(i)
        made.append(Compute(kind.op, q[1], int(of_route[q[0]][i]), kind.forward is not None))
    return made
