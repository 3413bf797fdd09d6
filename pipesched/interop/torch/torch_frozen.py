"""Adds the backwards of frozen stages to an order, since torch's loader requires a B of every stage.

    frozen, a trained stage before it      its I becomes a B, in which torch finds no weight that needs a gradient
    frozen, no trained stage before it     a B is added on its rank, after the last backward of its microbatch

In torch, a B of the second kind only frees the output of its F, and takes no time. The order of all other operations
does not change, so the schedule still finishes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import makes
from pipesched.model.lists import Chosen
from pipesched.model.ops import Op, Result
from pipesched.model.schedule import Schedule


def with_backwards(schedule: Schedule, times: Timeline) -> Schedule:
    """Return the order with a B for every stage, none frozen. times: the timeline of `schedule`, which finishes."""
    placement = schedule.placement
    frozen = np.isin(schedule.stage, placement.frozen)
    op = np.where(frozen & (schedule.op == Op.I), Op.B, schedule.op).astype(schedule.op.dtype)
    stages = np.flatnonzero(~placement.wants[Result.GRADIENT])
    backward = np.flatnonzero(makes(schedule.op, Result.GRADIENT))
    backward = backward[np.argsort(times.end[backward], kind="stable")]
    last = np.full(placement.microbatches, -1, dtype=np.int64)
    last[schedule.microbatch[backward]] = backward  # the last backward of each microbatch
    stage, microbatch = (x.ravel() for x in np.meshgrid(stages[::-1], np.arange(placement.microbatches), indexing="ij"))
    after = last[microbatch]
    rank = placement.table[stage, microbatch]
    where = np.empty(len(stage), dtype=np.int64)
    for number, (source, home) in enumerate(zip(after.tolist(), rank.tolist(), strict=True)):
        low, high = int(schedule.start[home]), int(schedule.start[home + 1])
        there = low + int(np.searchsorted(times.start[low:high], times.end[source], side="left"))
        where[number] = max(there, source + 1) if int(schedule.rank[source]) == home else there
    order = np.lexsort((np.arange(len(where)), times.end[after], rank, where))
    where, stage, microbatch, rank = where[order], stage[order], microbatch[order], rank[order]
    added = np.searchsorted(np.sort(rank), np.arange(schedule.ranks + 1))
    at = np.insert(np.arange(len(schedule)), where, -1)
    return replace(
        schedule,
        placement=replace(placement, frozen=()),
        op=np.insert(op, where, Op.B),
        stage=np.insert(schedule.stage, where, stage),
        microbatch=np.insert(schedule.microbatch, where, microbatch),
        second=np.insert(schedule.second, where, values=False),
        start=schedule.start + added,
        origin=Chosen(schedule.origin, at),
    )
