"""The first few of many findings, and how many more there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

SHOWN = 5


def some(found: Sequence[Item], shown: int = SHOWN) -> Iterator[tuple[Item, str]]:
    """Each of the first items, and a note beside the last one if more were left out."""
    for number, item in enumerate(found[:shown], start=1):
        left = len(found) - shown
        yield item, f"and {left} more of this kind" if number == shown and left > 0 else ""


def notes(*texts: str) -> tuple[str, ...]:
    """The notes that say something."""
    return tuple(text for text in texts if text)
