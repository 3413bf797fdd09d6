"""Where an operation comes from: found only when somebody asks.

A million operations carry no spans. The schedule keeps what is needed to find the place of the one operation that
a diagnostic points at: a line of a .ps file with the loop bindings, a cell of a CSV file, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pipesched.model.columns import Column
from pipesched.source import Span


@dataclass(frozen=True, slots=True)
class Place:
    """A span, and the bindings under which it made the operation (``k = 5, i = 2``, or empty)."""

    span: Span | None = None
    bindings: str = ""


class Origin(Protocol):
    """Finds the place of the i-th operation (or instruction), counted over all ranks."""

    def place(self, index: int) -> Place: ...


@runtime_checkable
class Sited(Protocol):
    """An origin in which few spans make many operations, so that the places of all are told at once."""

    def sited(self) -> tuple[Column, Sequence[Span]]:
        """The index of each operation's span, shape (operations,), and the spans."""
        ...


class Nowhere:
    """The origin of what was built by a program: no place at all."""

    def place(self, index: int) -> Place:
        del index
        return Place()
