"""Where operations come from, for all of them at once: line and column of the source, and the text of those lines.

A .ps file has few places and many operations, so its origin tells the places once (`Sited`); a cell of a CSV or a
line of a stream is one operation's own. Loop bindings are found by running a rank's program again, so they are looked
up for small schedules only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from pipesched.model.columns import Column
from pipesched.model.origin import Sited
from pipesched.model.schedule import Schedule
from pipesched.source import Source, Span

BOUND = 2_000
"""Up to so many operations the bindings of each are looked up."""

_LONGEST = 200  # a line that is longer, such as a row of a CSV, is not shown as text


@dataclass(frozen=True, eq=False)
class Places:
    """line, column: from 1, shape (operations,), 0 where there is no place. texts: lines of the source by number.

    bindings: of each operation, or none at all.
    """

    name: str
    line: Column
    column: Column
    texts: dict[int, str]
    bindings: tuple[str, ...]


def places(schedule: Schedule) -> Places:
    """The places of all operations."""
    spans, site, bound = _sites(schedule)
    at = [_position(span) for span in spans]
    table = np.array([*at, (0, 0)], dtype=np.int64)
    source = next((span.source for span in spans if span is not None), None)
    texts = _texts(source, {line for line, _ in at if line}) if source else {}
    return Places(source.name if source else "", table[site, 0], table[site, 1], texts, bound)


def _sites(schedule: Schedule) -> tuple[list[Span | None], Column, tuple[str, ...]]:
    """The spans, the index of each operation's own, and the bindings if they were looked up."""
    origin, count = schedule.origin, len(schedule)
    if isinstance(origin, Sited) and count > BOUND:
        site, spans = origin.sited()
        return list(spans), site, ()
    found = [origin.place(i) for i in range(count)]
    bound = tuple(place.bindings for place in found)
    return [place.span for place in found], np.arange(count), bound if any(bound) else ()


def _position(span: Span | None) -> tuple[int, int]:
    return (0, 0) if span is None else span.source.position(span.start)


def _texts(source: Source, lines: set[int]) -> dict[int, str]:
    shown = ((number, source.line(number).strip()) for number in sorted(lines))
    return dict(chain((number, text) for number, text in shown if len(text) <= _LONGEST))
