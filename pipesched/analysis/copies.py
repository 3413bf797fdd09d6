"""Copies of activations to host memory and back, which the engines of a rank run while it computes.

    rank   |F0 |F1 |F2     |O0 F3 ...              O ends with its copy, for which the rank waits
    out        |copy 0     |copy 1     |copy 2     starts after its F and the copy before it

    rank   |L0 B3          |B0                     L takes no time; the I or B of its microbatch waits for the copy
    in     |copy 0         |                       starts at L, after the copy before it

Each rank has one first-in, first-out engine per direction. O and L take no time on the rank and are not work.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.lists import Waits, together
from pipesched.model.columns import PLACE, Bools, Column, Ints, among
from pipesched.model.costs import Ticks
from pipesched.model.ops import COPIED, COPIES, Result
from pipesched.model.schedule import Schedule
from pipesched.support.record import Record


class Copies(Record):
    """The copies, grouped by engine, in the order in which they run.

    op: the O or L. after: the operation whose end lets a copy start. waits: the operation that waits for the copy. Both
    are -1 if there is none. first: whether the copy is the first on its engine. start, end: times in ticks, -1 for a
    copy that never runs.
    """

    op: Ints
    after: Ints
    waits: Ints
    first: Bools
    start: Ints
    end: Ints

    @classmethod
    def of(cls, schedule: Schedule, dependencies: Dependencies) -> Self | None:
        """Return the copies of a schedule, not yet timed; None if it has none."""
        op = np.flatnonzero(among(schedule.op, COPIES) & dependencies.valid)
        if not len(op):
            return None
        out = among(schedule.op[op], COPIED)
        back = dependencies.made[Result.GRADIENT][schedule.key(op)]
        after = np.where(out, _here(schedule, op, dependencies.producer[op], before=True), op)
        waits = np.where(out, op, _here(schedule, op, back, before=False))
        engine = 2 * schedule.rank[op].astype(np.int64) + ~out
        order = np.lexsort((after, engine))
        op, after, waits, engine = op[order], after[order], waits[order], engine[order]
        never = np.full(len(op), -1, dtype=np.int64)
        return cls(op, after, waits, np.diff(engine, prepend=-1) > 0, never, never)

    def joined(
        self, schedule: Schedule, ticks: Ticks, entry: Column, cost: Ints, cut: Ints, waits: Waits
    ) -> tuple[Ints, Ints, Waits]:
        """Return cost, cut and waits of the lists (`Lists`), extended by one list of copies per engine."""
        lengths = ticks.durations(schedule.op[self.op], schedule.stage[self.op], schedule.microbatch[self.op])
        own = len(cost) + np.arange(len(self.op), dtype=PLACE)
        begun, awaited = np.flatnonzero(self.after >= 0), np.flatnonzero(self.waits >= 0)
        both = (
            (own[begun], entry[self.after[begun]], np.zeros(len(begun), dtype=np.int64)),
            (entry[self.waits[awaited]], own[awaited], np.zeros(len(awaited), dtype=np.int64)),
        )
        engines = np.append(own[self.first][1:], len(cost) + len(own))
        return np.append(cost, lengths), np.append(cut, engines), together([waits, *both])


def _here(schedule: Schedule, op: Ints, other: Ints, *, before: bool) -> Ints:
    """Return `other`, or -1 unless it is on the rank of `op`, and before `op` (or, if not `before`, after it)."""
    right = (other >= 0) & (schedule.rank[other] == schedule.rank[op]) & ((other < op) if before else (other > op))
    return np.where(right, other, -1)
