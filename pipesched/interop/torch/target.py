"""Writes torch's CSV with one row per rank: only computes, or all actions of one version of torch's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipesched.analysis.timeline import Timeline
from pipesched.diagnostics import PipeschedError
from pipesched.formats.targets import Head, Writer
from pipesched.interop.torch import torch_trainer
from pipesched.interop.torch.torch_actions import torch_actions
from pipesched.interop.torch.torch_frozen import with_backwards
from pipesched.interop.torch.torch_order import check_torch_target
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import TorchVersion
from pipesched.orders import torch_csv


@dataclass(frozen=True)
class Torch(Writer):
    """The writer of torch's CSV. messages: with sends, receives, sharding and reductions."""

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
        """Add the backwards of frozen stages, which torch's runtime also requires."""
        return with_backwards(schedule, timeline) if schedule.placement.frozen else schedule


COMPUTES, COMMS = Torch(messages=False), Torch(messages=True)
