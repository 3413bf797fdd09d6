"""Evaluates library files at given sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from pipesched.diagnostics import PipeschedError
from pipesched.formats.readers import checked
from pipesched.language.evaluate import MAX_OPS, at_size, evaluated, parameters_of, refusal
from pipesched.language.execution import Budget, Names, reported
from pipesched.language.typecheck import Checked
from pipesched.model.numbers import Value
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source

_A_LOOK = 1000  # operations allowed when only lets and requirements are run


def takes(file: Checked, parameters: Mapping[str, Value]) -> bool:
    """Return True if a size satisfies the requirements of a file; its placement and order are not evaluated."""
    names = Names(Budget.of(_A_LOOK), file.code)
    with suppress(PipeschedError), reported(file.file.span.source):
        parameters_of(file, parameters, names, _A_LOOK)
        return refusal(file, names) is None
    return False


def placement_at(file: Checked, parameters: Mapping[str, Value], *, max_ops: int = MAX_OPS) -> Placement:
    """Return the placement of a checked file at a size, without running its order.

    Raises:
        PipeschedError: PS2xx: the evaluation fails; the finding shows the place.
    """
    with reported(file.file.span.source):
        return evaluated(file, parameters, max_ops)[2]


def sized(
    source: Source,
    sizes: Mapping[str, Value],
    *,
    placed: Callable[[Placement], bool] = lambda _: True,
    max_ops: int = MAX_OPS,
) -> Schedule | None:
    """Return the schedule of a .ps file, with parameters from the given sizes, or None if the file refuses them.

    placed: returns True for an acceptable placement; orders with other placements are not expanded.
    """
    try:
        file = checked(source)
        own = {name: x for name, x in sizes.items() if name in file.parameters}
        fits = takes(file, own) and placed(placement_at(file, own, max_ops=max_ops))
        return at_size(file, own, max_ops=max_ops).schedule if fits else None
    except PipeschedError:
        return None
