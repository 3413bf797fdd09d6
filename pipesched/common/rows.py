"""Rows of this extension (many schedules at once), and kinds of row for `list` and for services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipesched.extension import Aliases, Lazy, Row, Sweep, rows

if TYPE_CHECKING:
    from pipesched.support.source import Source


class Listing(Row):
    """A list that `list` prints after the schedules. key: its JSON key. entries: returns the entries as JSON objects
    with a `name`. lines: returns them as text. source: returns the file of the entry with the given name, or None.
    """

    key: str
    entries: Lazy[Callable[[], Sequence[Mapping[str, object]]]]
    lines: Lazy[Callable[[], Iterable[str]]]
    source: Lazy[Callable[[str], Source | None]] | None = None


class Service(Row):
    """A function that one extension offers to others, which call it by name if it is installed."""

    name: str
    call: Lazy[Callable[..., object]]


def service(name: str) -> Callable[..., object] | None:
    """Return the function that an installed extension offers by this name, or None."""
    return next((row.call.load() for row in rows(Service) if row.name == name), None)


ROWS: tuple[Row, ...] = (
    Sweep(Lazy("common.side_by_side:reports"), place=1),
    Aliases(Lazy("common.aliases:known_as"), Lazy("common.aliases:taken_for")),
)
