"""The places of operations in their file, for tooltips.

A .ps file has few places and many operations, so its origin stores each place once (`Sited`); a CSV cell or a line of a
stream is one operation. Loop bindings are found by running a rank's program again, so they are looked up for small
schedules only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from pipesched.model.columns import Column
from pipesched.model.schedule import Schedule
from pipesched.support.record import Record
from pipesched.support.source import Span

BOUND = 2_000
"""The largest number of operations in a schedule for which bindings are looked up."""


@runtime_checkable
class Sited(Protocol):
    """An origin in which all operations come from a few spans, so that it can return all places together."""

    def sited(self) -> tuple[Column, Sequence[Span]]:
        """Return the index of each operation's span, shape (operations,), and the spans."""
        ...


_LONGEST = 200  # longer lines, such as rows of a CSV, are not shown as text


class Places(Record):
    """The places of all operations. line, column: from 1, shape (operations,); 0 if there is no place. texts: the text
    of source lines, by line number. bindings: the loop bindings of each operation, as text; () if they were not looked
    up.
    """

    name: str
    line: Column
    column: Column
    texts: dict[int, str]
    bindings: tuple[str, ...]


def places(schedule: Schedule) -> Places:
    """Return the places of all operations."""
    spans, site, bound = _sites(schedule)
    at = [(0, 0) if span is None else span.source.position(span.start) for span in spans]
    table = np.array([*at, (0, 0)], dtype=np.int64)
    source = next((span.source for span in spans if span is not None), None)
    if source is None:
        return Places("", table[site, 0], table[site, 1], {}, bound)
    texts = {line: source.line(line).strip() for line in sorted({line for line, _ in at if line})}
    shown = {line: text for line, text in texts.items() if len(text) <= _LONGEST}
    return Places(source.name, table[site, 0], table[site, 1], shown, bound)


def _sites(schedule: Schedule) -> tuple[list[Span | None], Column, tuple[str, ...]]:
    """Return the spans, the index of each operation's span, and the bindings if they were looked up."""
    origin, count = schedule.origin, len(schedule)
    if isinstance(origin, Sited) and count > BOUND:
        site, spans = origin.sited()
        return list(spans), site, ()
    found = [origin.place(i) for i in range(count)]
    bound = tuple(place.bindings for place in found)
    return [place.span for place in found], np.arange(count), bound if any(bound) else ()
