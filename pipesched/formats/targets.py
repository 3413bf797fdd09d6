"""TARGETS: everything that is written for a runtime, a row each.

    name         ending  holds                                                  for
    stream       .json   every instruction, as emit/README.md has it            the runtime of pipesched, and yours
    torch-csv    .csv    the computes                                           torchtitan, NeMo AutoModel
    torch-comms  .csv    torch's sends, receives, sharding and reductions too   a runtime of torch of one version
    deepspeed    .py     a PipeSchedule, and what makes the engine use it       DeepSpeed's PipelineEngine

A row imports what it needs when it is asked: the command line lists the rows and loads nothing. To add a target is to
add its writer in `formats/` and its row here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from pipesched.diagnostics import PipeschedError
from pipesched.support.safe import safe

if TYPE_CHECKING:
    from pipesched.model.schedule import Program, Schedule
    from pipesched.model.torch_versions import TorchVersion

    Order: TypeAlias = Schedule | Program


@dataclass(frozen=True)
class Target(ABC):
    """What is written.

    title: for the help text. ending: of its files. messages: whether sends and receives are in it. torch: whether it is
    for torch, of a version. blocks: whether its sends wait for their receives, whatever model is asked for.
    """

    name: str
    title: str
    ending: str
    messages: bool
    torch: ClassVar[bool] = False
    blocks: ClassVar[bool] = False

    @abstractmethod
    def require(self, schedule: Schedule, program: Program | None) -> None:
        """Raises PipeschedError: PS814, what it cannot say."""

    @abstractmethod
    def pieces(self, order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
        """The text, a rank at a time."""

    @abstractmethod
    def by_rank(self, order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
        """Each rank's own file."""

    def settings(self, order: Order, path: str, version: TorchVersion) -> list[str]:
        """What its reader must know."""
        return []


@dataclass(frozen=True)
class Stream(Target):
    """The published form."""

    def require(self, schedule: Schedule, program: Program | None) -> None:
        from pipesched.formats import stream_write

        stream_write.require_words(schedule.placement, program)

    def pieces(self, order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
        from pipesched.formats import stream_write

        made = stream_write.pieces(cast("Program", order), parameters)
        return (safe(piece, "json") for piece in made)

    def by_rank(self, order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
        from pipesched.formats import stream_write

        made = stream_write.by_rank(cast("Program", order), parameters)
        return (safe(piece, "json") for piece in made)


class Torch(Target):
    """torch's CSV, a row a rank."""

    torch = True

    def require(self, schedule: Schedule, program: Program | None) -> None:
        from pipesched.interop.torch.torch_order import check_torch_target

        if found := [*check_torch_target(schedule, program, messages=self.messages)]:
            raise PipeschedError(found)

    def pieces(self, order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
        from pipesched.formats import torch_csv

        return torch_csv.pieces(order)

    by_rank = pieces

    def settings(self, order: Order, path: str, version: TorchVersion) -> list[str]:
        from pipesched.interop.torch import torch_trainer

        if self.messages:
            return torch_trainer.comms_settings(order.placement, version)
        return torch_trainer.settings(order, path)


@dataclass(frozen=True)
class Trainer(Target):
    """The instructions of a trainer's own engine. writer: the module that writes them."""

    blocks = True
    writer: Callable[[], Any]

    def require(self, schedule: Schedule, program: Program | None) -> None:
        if found := [*self.writer().refused(schedule, program)]:
            raise PipeschedError(found)

    def pieces(self, order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
        return cast("Iterator[str]", self.writer().pieces(order))

    def by_rank(self, order: Order, parameters: Mapping[str, int]) -> Iterator[str]:
        return cast("Iterator[str]", self.writer().by_rank(order))

    def settings(self, order: Order, path: str, version: TorchVersion) -> list[str]:
        return cast("list[str]", self.writer().settings(order, path))


def _deepspeed() -> ModuleType:
    from pipesched.interop.targets import deepspeed_write

    return deepspeed_write


_COMPUTES = "the computes, as torchtitan and NeMo AutoModel load them; their settings go to stderr"
_DEEPSPEED = "a Python module that makes DeepSpeed's pipeline engine run it, of one stage a rank"
_COMMS = "torch's sends, receives, sharding and reductions too, for --torch-version"
ROWS = (
    Stream("stream", "every instruction, as JSON: emit/README.md", ".json", messages=True),
    Torch("torch-csv", _COMPUTES, ".csv", messages=False),
    Torch("torch-comms", _COMMS, ".csv", messages=True),
    Trainer("deepspeed", _DEEPSPEED, ".py", messages=True, writer=_deepspeed),
)

TARGETS: Mapping[str, Target] = {row.name: row for row in ROWS}
