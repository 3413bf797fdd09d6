"""Library files at sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipesched.diagnostics import PipeschedError
from pipesched.formats.readers import checked
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
    """Return a .ps file at the given sizes that it takes as parameters, None if it does not accept them.

    placed: returns True for an acceptable placement; an order with another placement is not expanded.
    """
    try:
        file = checked(source)
        own = {name: x for name, x in sizes.items() if name in file.parameters}
        fits = takes(file, own) and placed(placement_at(file, own, max_ops=max_ops))
        return at_size(file, own, max_ops=max_ops).schedule if fits else None
    except PipeschedError:
        return None
