"""Files at sizes, and the sizes that a file takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from pipesched.diagnostics import PipeschedError
from pipesched.formats.readers import PS, checked, reader_of
from pipesched.language.evaluate import MAX_OPS, at_size, placement_at, takes
from pipesched.model.numbers import Value
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source


def sized(
    source: Source,
    sizes: Mapping[str, Value],
    *,
    placed: Callable[[Placement], bool] = lambda _: True,
    max_ops: int = MAX_OPS,
) -> Schedule | None:
    """Return a .ps file at those given sizes that it takes, None if it does not accept them.

    placed: accepts a placement; an order with any other placement is not expanded.
    """
    try:
        file = checked(source)
        own = {name: x for name, x in sizes.items() if name in file.parameters}
        fits = takes(file, own) and placed(placement_at(file, own, max_ops=max_ops))
        return at_size(file, own, max_ops=max_ops).schedule if fits else None
    except PipeschedError:
        return None


def lists(sources: Iterable[Source]) -> frozenset[str]:
    """Return the parameters that one of these files declares as lists; none for an unreadable file."""
    found: set[str] = set()
    for source in sources:
        with suppress(PipeschedError):
            found |= checked(source).lists if reader_of(source) is PS else set()
    return frozenset(found)
