"""TARGETS: every form in which an order is written, a row each.

    name         ending  holds                                                  for
    stream       .json   every instruction, as emit/README.md has it            the runtime of pipesched, and yours
    torch-csv    .csv    the computes                                           torchtitan, NeMo AutoModel
    torch-comms  .csv    torch's sends, receives, sharding and reductions too   a runtime of torch of one version
    deepspeed    .py     a PipeSchedule, and what makes the engine use it       DeepSpeed's PipelineEngine
    order        .txt    the computes, as words                                 people, scripts, `pipesched` again
    program      .txt    sends, receives and reductions too, as words           the same
    ps           .ps     the computes in the language, with loops               the same

The first four are for a runtime, so they are verified; the last three show what a file says, right or wrong.
A row imports what it needs when it is asked: the command line lists the rows and loads nothing. To add a target is to
add its writer in `formats/` and its row here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.model.numbers import Value, ranges, whole
from pipesched.support.safe import safe

if TYPE_CHECKING:
    from pipesched.model.costs import Costs
    from pipesched.model.schedule import Program, Schedule
    from pipesched.model.torch_versions import TorchVersion

    Order: TypeAlias = Schedule | Program


@dataclass(frozen=True)
class Head:
    """The words of a file beside its order: parameters, documentation, and costs where it gives them."""

    parameters: Mapping[str, Value] = field(default_factory=dict)
    documentation: str = ""
    costs: Costs | None = None


@dataclass(frozen=True)
class Target(ABC):
    """A form in which an order is written.

    title: for the help text. ending: of its files. messages: whether sends and receives are in it. torch: whether it is
    for torch, of a version. blocks: whether its sends wait for their receives, whatever model is asked for. judged:
    whether it is written of a good order alone.
    """

    name: str
    title: str
    ending: str
    messages: bool
    torch: ClassVar[bool] = False
    blocks: ClassVar[bool] = False
    judged: ClassVar[bool] = True

    @abstractmethod
    def require(self, schedule: Schedule, program: Program | None) -> None:
        """Raises PipeschedError: PS814, what it cannot say."""

    @abstractmethod
    def pieces(self, order: Order, head: Head) -> Iterator[str]:
        """The text, a rank at a time."""

    @abstractmethod
    def by_rank(self, order: Order, head: Head) -> Iterator[str]:
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

    def pieces(self, order: Order, head: Head) -> Iterator[str]:
        from pipesched.formats import stream_write

        made = stream_write.pieces(cast("Program", order), whole(head.parameters))
        return (safe(piece, "json") for piece in made)

    def by_rank(self, order: Order, head: Head) -> Iterator[str]:
        from pipesched.formats import stream_write

        made = stream_write.by_rank(cast("Program", order), whole(head.parameters))
        return (safe(piece, "json") for piece in made)


class Torch(Target):
    """torch's CSV, a row a rank."""

    torch = True

    def require(self, schedule: Schedule, program: Program | None) -> None:
        from pipesched.interop.torch.torch_order import check_torch_target

        if found := [*check_torch_target(schedule, program, messages=self.messages)]:
            raise PipeschedError(found)

    def pieces(self, order: Order, head: Head) -> Iterator[str]:
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

    def pieces(self, order: Order, head: Head) -> Iterator[str]:
        return cast("Iterator[str]", self.writer().pieces(order))

    def by_rank(self, order: Order, head: Head) -> Iterator[str]:
        return cast("Iterator[str]", self.writer().by_rank(order))

    def settings(self, order: Order, path: str, version: TorchVersion) -> list[str]:
        return cast("list[str]", self.writer().settings(order, path))


class Words(Target):
    """The order notation, a line a rank."""

    judged = False

    def require(self, schedule: Schedule, program: Program | None) -> None:
        if self.messages:
            from pipesched.formats import order_write

            order_write.require_names(schedule.placement)

    def pieces(self, order: Order, head: Head) -> Iterator[str]:
        from pipesched.formats import order_write

        return order_write.lines(order)

    by_rank = pieces

    def settings(self, order: Order, path: str, version: TorchVersion) -> list[str]:
        """Frozen stages, who reads whom, and slices: of the model, and in no word of an order."""
        placement = order.placement
        frozen = f"frozen: {ranges(placement.frozen)}" if placement.frozen else ""
        cut = f"every {placement.slices} microbatches are one sequence" if placement.slices > 1 else ""
        unsaid = [x for x in (frozen, "" if placement.chain else placement.skip, cut) if x]
        help = "with --frozen it can be read again" if unsaid == [frozen] else "`--target ps` keeps all"
        return [f"the notation of orders does not say: {'; '.join(unsaid)} ({help})"] if unsaid else []


class Language(Target):
    """A .ps file for this one size."""

    judged = False

    def require(self, schedule: Schedule, program: Program | None) -> None:
        """Nothing: the writer says where it meets what the language has no words for."""

    def pieces(self, order: Order, head: Head) -> Iterator[str]:
        from pipesched.lift import writer

        yield writer.write(cast("Schedule", order), documentation=head.documentation, costs=head.costs)

    def by_rank(self, order: Order, head: Head) -> Iterator[str]:
        raise fail(Code.USAGE, "a .ps file has the program of every rank", help="-o FILE.ps writes it")


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
    Words("order", "the computes of every rank, as words; of a wrong order too", ".txt", messages=False),
    Words("program", "its sends, receives and reductions too, likewise", ".txt", messages=True),
    Language("ps", "the computes in the language, with loops, likewise", ".ps", messages=False),
)

TARGETS: Mapping[str, Target] = {row.name: row for row in ROWS}
