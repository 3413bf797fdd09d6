"""How checks say what they find: labels at operations, the first few of a kind, notes that say something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from pipesched.diagnostics import Label
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule

Item = TypeVar("Item")

SHOWN = 5


def label(where: Schedule | Program, index: int, text: str) -> Label:
    """``rank 0, step 9 (k = 5): waits until …`` at the place of an operation or instruction; steps count from 1."""
    place = where.origin.place(index)
    bindings = f" ({place.bindings})" if place.bindings else ""
    return Label(place.span, f"rank {int(where.rank[index])}, step {where.step(index)}{bindings}: {text}")


def limited(found: Sequence[Item], shown: int = SHOWN) -> Iterator[tuple[Item, str]]:
    """Each of the first items, and a note with the last of them if more were left out."""
    for number, item in enumerate(found[:shown], start=1):
        left = len(found) - shown
        yield item, f"and {left} more of this kind" if number == shown and left > 0 else ""


def notes(*texts: str) -> tuple[str, ...]:
    """The notes that say something."""
    return tuple(text for text in texts if text)
