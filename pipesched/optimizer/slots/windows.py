"""Windows: searches for a shorter order that keeps a known order's slots outside a time window.

    before the window     every slot starts as in the known order
    after it              as in the known order, as many ticks earlier as the order is to be shorter

If two routes mirror each other, a search for mirrored orders has only half as many decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np

from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.optimizer.proof.slot_terms import Question, Stage
from pipesched.optimizer.proof.slots import SlotClauses
from pipesched.optimizer.verdict import Terms
from pipesched.schedule_analysis import Analysis

Slot: TypeAlias = tuple[Stage | None, bool, Stage | None, Op | None]
"""A `Kind` without times: the stage of the F, True if this F runs again, and the stage and kind of the other part."""
Slots: TypeAlias = Mapping[tuple[int, int], Slot]
"""The slots of a schedule, by rank and start in ticks."""


@dataclass
class Window:
    """Clauses, with added clauses that restrict the orders to a window."""

    clauses: SlotClauses
    more: list[list[int]]
    variables: int

    def lists(self) -> Iterator[list[int]]:
        """Yield all clauses."""
        return chain(self.clauses.lists(), self.more)


def kept_slots(schedule: Schedule, terms: Terms) -> tuple[Slots, int]:
    """Return the slots of a schedule and the makespan, in ticks."""
    asked, made = Question(terms), Analysis(schedule, terms.costs, terms.release)
    found: dict[tuple[int, int], Slot] = {}
    route_of, key = schedule.placement.route_of, schedule.key()
    again = set(key[schedule.op == Op.R].tolist())
    for head in np.flatnonzero(~schedule.joined).tolist():
        joined = head + 1 < len(schedule) and bool(schedule.joined[head + 1])
        parts = (head, head + 1) if joined else (head,)
        stages = [(int(route_of[schedule.microbatch[x]]), int(schedule.stage[x])) for x in parts]
        op = Op(int(schedule.op[parts[-1]]))
        runs_again = int(key[head]) in again
        slot: Slot = (stages[0], runs_again, stages[1], op) if joined else (None, False, stages[0], op)
        start = int(made.timeline.start[head]) // asked.tick
        found[int(schedule.rank[head]), start] = (stages[0], runs_again, None, None) if op is Op.F else slot
    return found, made.timeline.makespan // asked.tick


def fixed(clauses: SlotClauses, known: tuple[Slots, int], low: int, high: int) -> list[list[int]]:
    """Return clauses for: outside low .. high, the slots are those of `known` (see `kept_slots`)."""
    slots, last = known
    shift, made = last - clauses.until, list[list[int]]()
    for rank, at_once in enumerate(clauses.slots):
        for t, kinds in enumerate(at_once):
            if not low <= t < high:
                slot = slots.get((rank, t if t < low else t + shift))
                made += [[x if slot == kind[:4] else -x] for kind, x in kinds.items()]
    return made


def is_mirrored(asked: Question) -> bool:
    """Return True if the ranks of two routes mirror each other, with equal caps and microbatch counts."""
    if asked.routes != [0, 1] or asked.count[0, 0] != asked.count[1, 0] or len(set(asked.cap)) > 1:
        return False
    return all(asked.rank[1, s] == asked.ranks - 1 - asked.rank[0, s] for s in range(asked.stages))


def mirror(clauses: SlotClauses) -> list[list[int]]:
    """Return clauses for: each rank always runs the mirror image of the opposite rank's slot."""

    def other(q: Stage | None) -> Stage | None:
        return None if q is None else (1 - q[0], q[1])

    made, ranks = list[list[int]](), clauses.asked.ranks
    for rank in range(ranks // 2):
        for one, two in zip(clauses.slots[rank], clauses.slots[ranks - 1 - rank], strict=True):
            for kind, x in one.items():
                y = two[kind._replace(forward=other(kind.forward), backward=other(kind.backward))]
                made += [[-x, y], [x, -y]]
    return made
