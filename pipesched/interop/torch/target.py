"""Writes torch's CSV with one row per rank: compute operations only, or all actions of one version of the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipesched.analysis.timeline import Timeline
from pipesched.diagnostics import PipeschedError
from pipesched.formats.targets import Head, Writer
from pipesched.interop.torch import torch_trainer
from pipesched.interop.torch.torch_actions import torch_actions
from pipesched.interop.torch.torch_order import check_torch_target
from pipesched.model.columns import makes
from pipesched.model.lists import Chosen
from pipesched.model.ops import Op, Result
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import TorchVersion
from pipesched.orders import torch_csv


@dataclass(frozen=True)
class Torch(Writer):
    """The writer of torch's CSV. messages: whether to also write sends, receives, sharding and reductions."""

    messages: bool

    def require(self, schedule: Schedule, program: Program | None) -> None:
        if found := [*check_torch_target(schedule, program, messages=self.messages)]:
            raise PipeschedError(found)

    def pieces(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        return torch_csv.pieces(order)

    def settings(self, order: Schedule | Program, path: str, version: TorchVersion) -> list[str]:
        if self.messages:
            return torch_trainer.comms_settings(order.placement, version)
        return torch_trainer.settings(order, path)

    def actions(self, program: Program, version: TorchVersion) -> Program:
        return torch_actions(program, version)

    def completed(self, schedule: Schedule, timeline: Timeline) -> Schedule:
        """Add backwards for the frozen stages, where torch's runtime also requires them."""
        return with_backwards(schedule, timeline) if schedule.placement.frozen else schedule


COMPUTES, COMMS = Torch(messages=False), Torch(messages=True)


def with_backwards(schedule: Schedule, times: Timeline) -> Schedule:
    """Return the order with a backward on every stage, as torch's loader requires, and no stage marked as frozen.

        frozen, a trained stage before it      its I becomes a B, in which torch finds no weight that needs a gradient
        frozen, no trained stage before it     a B is added on its rank, after the last backward of its microbatch

    In torch, a B of the second kind only frees the output of its F, and takes no time. The order of all other
    operations does not change. times: the timeline of `schedule`, which must finish.
    """
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
