"""Which operation needs the output of which.

    F(s) <- F(s-1)      I(s), B(s) <- I(s+1) or B(s+1)      W(s) <- I(s)
    F(0) <- nothing     the last stage's I, B <- its own F

One producer each, so the dependency graph is a single column beside the order of the ranks. Producers on other ranks
cost a message; those on the same rank must only stand earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from pipesched.model.columns import Bools, Ints
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Dependencies:
    """forward, backward, weight: where the F, the I or B, the W or B of (stage, microbatch) stands first, -1 if
    nowhere; shape (stages * microbatches,). producer: the operation that each one depends on, -1 if there is none or
    it is missing. crosses: whether the producer is on another rank. valid: whether stage and microbatch are in range.
    """

    forward: Ints
    backward: Ints
    weight: Ints
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
        size = stages * microbatches

        def first(*ops: Op) -> Ints:
            chosen = np.zeros(len(schedule), dtype=np.bool_)
            for op in ops:
                chosen |= schedule.op == op
            at = np.flatnonzero(chosen & valid)[::-1]
            table = np.full(size, -1, dtype=np.int64)
            table[key[at]] = at
            return table

        forward, backward, weight = first(Op.F), first(Op.I, Op.B), first(Op.W, Op.B)
        producer = np.full(len(schedule), -1, dtype=np.int64)
        inner = valid & (schedule.op == Op.F) & (stage > 0)
        producer[inner] = forward[key[inner] - microbatches]
        back = valid & ((schedule.op == Op.I) | (schedule.op == Op.B))
        inner = back & (stage < stages - 1)
        producer[inner] = backward[key[inner] + microbatches]
        last = back & (stage == stages - 1)
        producer[last] = forward[key[last]]
        split = valid & (schedule.op == Op.W)
        producer[split] = backward[key[split]]
        crosses = (producer >= 0) & (schedule.rank[producer] != schedule.rank)
        return cls(forward, backward, weight, producer, crosses, valid)
