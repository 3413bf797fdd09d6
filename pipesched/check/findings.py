"""Helpers for checks: labels at operations, and limits on the number of similar findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from pipesched.diagnostics import Label
from pipesched.model.columns import Column, Ints
from pipesched.model.schedule import Program, Schedule

Item = TypeVar("Item")
Mistake = TypeVar("Mistake", bound=tuple[int | str, ...])

SHOWN = 5
LOOKED_AT = 10_000  # most findings whose places are compared


def label(where: Schedule | Program, index: int, text: str) -> Label:
    """Return a label such as ``rank 0, step 9 (k = 5): waits until …`` at an operation; steps count from 1."""
    place = where.origin.place(index)
    bindings = f" ({place.bindings})" if place.bindings else ""
    return Label(place.span, f"rank {int(where.rank[index])}, step {where.step(index)}{bindings}: {text}")


def labels(where: Schedule | Program, *said: tuple[int, str]) -> tuple[Label, ...]:
    """Return labels with these texts at these indices; indices out of range get no label."""
    return tuple(label(where, index, text) for index, text in said if 0 <= index < len(where))


def limited(found: Sequence[Item], shown: int = SHOWN) -> Iterator[tuple[Item, str]]:
    """Yield the first `shown` items, each with a note, which is empty or counts the omitted items."""
    for number, item in enumerate(found[:shown], start=1):
        left = len(found) - shown
        yield item, f"and {left} more of this kind" if number == shown and left > 0 else ""


def by_statement(found: Sequence[Mistake], where: Schedule | Program) -> Iterator[tuple[Mistake, str]]:
    """Yield the first mistake of each statement, with a note on its other mistakes, so each statement is reported once.

    A mistake is a tuple of operation indices and words. An operation without a place in the source counts as a
    statement of its own.
    """
    first: dict[object, list[Mistake]] = {}
    for mistake in found[:LOOKED_AT]:
        at = tuple(where.origin.place(x).span or x if isinstance(x, int) else x for x in mistake)
        first.setdefault(at, []).append(mistake)
    least = "at least " if len(found) > LOOKED_AT else ""
    for together, more in limited(list(first.values())):
        others = f"and {least}{len(together) - 1} more from this statement" if together[1:] else ""
        yield together[0], "; ".join(notes(others, more))


def rows(*columns: Column) -> list[tuple[int, ...]]:
    """Return the rows of several columns as Python numbers."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


def repeats(at: Ints, key: Ints) -> list[tuple[int, ...]]:
    """Return, in ascending order, the indices whose key occurs earlier too, each with the first index of that key."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    again = np.flatnonzero(key[1:] == key[:-1]) + 1
    again = again[np.argsort(order[again])]
    return rows(at[order[again]], at[order[np.searchsorted(key, key[again])]])


def notes(*texts: str) -> tuple[str, ...]:
    """Return the notes that are not empty."""
    return tuple(text for text in texts if text)
