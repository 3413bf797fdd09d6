"""Targets: every form in which an order is written, a row each; the stream and the words are the core's.

    name         ending  holds                                                  for
    stream       .json   every instruction, as emit/README.md has it            the runtime of pipesched, and yours
    torch-csv    .csv    the computes                                           torchtitan, NeMo AutoModel
    torch-comms  .csv    torch's sends, receives, sharding and reductions too   a runtime of torch of one version
    deepspeed    .py     a PipeSchedule, and what makes the engine use it       DeepSpeed's PipelineEngine
    order        .txt    the computes, as words                                 people, scripts, `pipesched` again
    program      .txt    sends, receives and reductions too, as words           the same
    ps           .ps     the computes in the language, with loops               the same

The first four are for a runtime, so they are verified; the last three show what a file says, right or wrong. A writer
is imported when it is asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

from pipesched.extension import Lazy, Target, rows
from pipesched.model.numbers import Value, ranges, whole
from pipesched.support.safe import safe

if TYPE_CHECKING:
    from pipesched.analysis.timeline import Timeline
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


class Writer(ABC):
    """Writes an order, a rank at a time."""

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
        """Lines for a person: what its reader must know."""
        return []

    def actions(self, program: Program, version: TorchVersion) -> Program:
        """A lowered program with the actions of the target's own runtime."""
        return program

    def completed(self, schedule: Schedule, timeline: Timeline) -> Schedule:
        """An order with the operations that the target wants beside those of the file."""
        return schedule


class Stream(Writer):
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


@dataclass(frozen=True)
class Words(Writer):
    """The order notation, a line a rank; messages: with those."""

    messages: bool

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


STREAM, COMPUTES, ALL = Stream(), Words(messages=False), Words(messages=True)
ROWS = (
    Target(
        "stream",
        "every instruction, as JSON: emit/README.md",
        ".json",
        Lazy("formats.targets:STREAM"),
        messages=True,
    ),
    Target(
        "order",
        "the computes of every rank, as words; of a wrong order too",
        ".txt",
        Lazy("formats.targets:COMPUTES"),
        messages=False,
        judged=False,
        place=40,
    ),
    Target(
        "program",
        "its sends, receives and reductions too, likewise",
        ".txt",
        Lazy("formats.targets:ALL"),
        messages=True,
        judged=False,
        place=50,
    ),
)


def targets() -> dict[str, Target]:
    """All targets by name."""
    return {row.name: row for row in sorted((*ROWS, *rows(Target)), key=lambda row: row.place)}


def writer(target: str) -> Writer:
    """The writer of a target."""
    made = targets()[target].writer.load()
    assert isinstance(made, Writer)
    return made
