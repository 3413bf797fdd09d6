"""Which operation depends on the result of which.

    F(s) <- F(s-1)      I(s), B(s) <- I(s+1) or B(s+1)      W(s) <- I(s)
    F(0) <- nothing     the last stage's I, B <- its own F

These are the rows of `model.ops`. Each operation has one producer, so the dependency graph is the order of the ranks
and a single column. Producers on other ranks cost a message; those on the same rank must only come earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from pipesched.model.columns import Bools, Ints, among, makes
from pipesched.model.ops import COMPUTES, Op, Result
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Dependencies:
    """made: of each result, where that of (stage, microbatch) is made first, -1 if nowhere, shape (stages *
    microbatches,). producer: the operation that each one depends on, -1 if there is none or it is missing. crosses:
    whether the producer is on another rank. valid: whether stage and microbatch are in range.
    """

    made: Mapping[Result, Ints]
    producer: Ints
    crosses: Bools
    valid: Bools

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """The dependency column of a schedule; O(operations)."""
        stages, microbatches = schedule.stages, schedule.microbatches
        stage, microbatch = schedule.stage.astype(np.int64), schedule.microbatch.astype(np.int64)
        valid = (stage >= 0) & (stage < stages) & (microbatch >= 0) & (microbatch < microbatches)
        key = np.where(valid, stage * microbatches + microbatch, 0)
        made = {}
        for result in Result:
            at = np.flatnonzero(makes(schedule.op, result) & valid)[::-1]
            made[result] = np.full(stages * microbatches, -1, dtype=np.int64)
            made[result][key[at]] = at
        producer = np.full(len(schedule), -1, dtype=np.int64)
        for (taken, of, own), kinds in _ALIKE.items():
            alike = valid & among(schedule.op, kinds)
            inner = alike & (stage + of >= 0) & (stage + of < stages) if of else alike
            producer[inner] = made[taken][key[inner] + of * microbatches]
            if own is not None:
                last = alike & ~inner
                producer[last] = made[own][key[last]]
        crosses = (producer >= 0) & (schedule.rank[producer] != schedule.rank)
        return cls(made, producer, crosses, valid)


_ALIKE: dict[tuple[Result, int, Result | None], list[Op]] = {}
"""The kinds of compute by what they take."""
for _op in COMPUTES:
    _ALIKE.setdefault((_op.result, _op.kind.of, _op.kind.own), []).append(_op)
