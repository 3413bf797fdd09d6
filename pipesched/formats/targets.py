"""TARGETS: a row for every form in which an order is written; extensions add rows.

    name       ending  contents                                          for
    stream     .json   every instruction, see emit/README.md             the runtime of pipesched, and yours

Output for a runtime is verified first; a target that is not `judged` writes even an order with errors. A writer is
imported on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from pipesched.extension import Lazy, Target, rows
from pipesched.support.record import Record

if TYPE_CHECKING:
    from pipesched.analysis.timeline import Timeline
    from pipesched.model.costs import Costs
    from pipesched.model.numbers import Value
    from pipesched.model.schedule import Program, Schedule
    from pipesched.model.torch_versions import TorchVersion

    Order: TypeAlias = Schedule | Program


class Head(Record):
    """The parts of a file other than its order: parameters, documentation, given costs, statements of extensions."""

    parameters: Mapping[str, Value] = field(default_factory=dict)
    documentation: str = ""
    costs: Costs | None = None
    statements: tuple[str, ...] = ()


class Writer(ABC):
    """Writes an order, one rank at a time."""

    @abstractmethod
    def require(self, schedule: Schedule, program: Program | None) -> None:
        """Raise PipeschedError, PS814, if the form cannot express the order."""

    @abstractmethod
    def pieces(self, order: Order, head: Head) -> Iterator[str]:
        """Return the text, one rank at a time."""

    def by_rank(self, order: Order, head: Head) -> Iterator[str]:
        """Return each rank's own file: its piece of the text, unless other text surrounds the ranks."""
        return self.pieces(order, head)

    def settings(self, order: Order, path: str, version: TorchVersion) -> list[str]:
        """Return lines for the user: settings for the program that reads the file."""
        return []

    def actions(self, program: Program, version: TorchVersion) -> Program:
        """Return a lowered program with the actions of the target's own runtime."""
        return program

    def completed(self, schedule: Schedule, timeline: Timeline) -> Schedule:
        """Return the order with the operations that the target requires in addition to those in the file."""
        return schedule


ROWS = (
    Target(
        "stream",
        "every instruction as JSON, see emit/README.md",
        ".json",
        Lazy("formats.stream_write:STREAM"),
        messages=True,
        steps=True,
    ),
)


def targets() -> dict[str, Target]:
    """Return all targets by name."""
    return {row.name: row for row in sorted((*ROWS, *rows(Target)), key=lambda row: row.place)}


def writer(target: str) -> Writer:
    """Return the writer of a target."""
    made = targets()[target].writer.load()
    assert isinstance(made, Writer)
    return made
