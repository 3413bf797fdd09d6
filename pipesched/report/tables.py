"""Tables as text: as wide as what they hold, whatever the terminal, so that nothing is cut."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeVar

from pipesched.model import numbers
from pipesched.model.units import NO_UNIT, Unit
from pipesched.render import clean

_WIDEST = 100_000
Key = TypeVar("Key")
Entry = TypeVar("Entry")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: Iterable[int] = (0,)) -> str:
    """Columns side by side, numbers to the right; `left`: the columns of words. A header may have several lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    words = set(left)
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for number, header in enumerate(headers):
        made.add_column(Text(header), justify="left" if number in words else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(clean(cell)) for cell in row))
    stream = io.StringIO()
    console = Console(file=stream, width=_WIDEST, color_system=None, legacy_windows=False, highlight=False)
    console.print(made)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip("\n").split("\n"))


def grouped(pairs: Iterable[tuple[Key, Entry]]) -> dict[Key, list[Entry]]:
    """The entries of each key, in their order."""
    made: dict[Key, list[Entry]] = {}
    for key, entry in pairs:
        made.setdefault(key, []).append(entry)
    return made


def ratio(value: Fraction | None) -> str:
    """``3/19 = 15.8 %``, or a dash where there is none."""
    return "-" if value is None else numbers.ratio(value)


def short(value: Fraction | int | None, unit: Unit = NO_UNIT) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else unit.text(value)
