"""Text tables, as wide as their contents on any terminal, so that nothing is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeVar

from pipesched.model.numbers import SMALL, percent
from pipesched.model.units import NO_UNIT, Unit
from pipesched.render import clean, columns

Key = TypeVar("Key")
Entry = TypeVar("Entry")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: Iterable[int] = (0,)) -> str:
    """Return columns side by side: numbers right-aligned, columns in `left` left-aligned. Headers can be multi-line."""
    heads = [header.split("\n") for header in headers]
    height = max(map(len, heads))
    lines = [*zip(*([""] * (height - len(head)) + head for head in heads), strict=True)]
    lines += [tuple(map(clean, row)) for row in rows]
    words = set(left)
    sides = [str.ljust if number in words else str.rjust for number in range(len(heads))]
    widths = [max(map(columns, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            side(text, width - columns(text) + len(text)) for text, width, side in zip(line, widths, sides, strict=True)
        ).rstrip()
        for line in lines
    )


def grouped(pairs: Iterable[tuple[Key, Entry]]) -> dict[Key, list[Entry]]:
    """Group entries by key, in order of appearance."""
    made: dict[Key, list[Entry]] = {}
    for key, entry in pairs:
        made.setdefault(key, []).append(entry)
    return made


def ratio(value: Fraction | None) -> str:
    """Return ``3/19 = 15.8 %``, only the percentage for integers and large denominators, or a dash for None."""
    if value is None:
        return "-"
    return f"{value} = {percent(value)}" if 1 < value.denominator < SMALL else percent(value)


def short(value: Fraction | int | None, unit: Unit = NO_UNIT) -> str:
    """Return a number as text, or a dash for None."""
    return "-" if value is None else unit.text(value)
