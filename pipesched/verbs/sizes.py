"""Which of the parameters that are given go to which file: each to those that have it.

`--v 2` is for the interleaved schedules of a comparison; an order that is written out has its p and m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.readers import PS, checked, reader_of
from pipesched.source import Source


def shared(sources: Sequence[Source], parameters: Mapping[str, int]) -> list[dict[str, int]]:
    """The parameters of each file, of those given.

    Raises:
        PipeschedError: PS208, one that none of the files has.
    """
    taken = [_takes(source) for source in sources]
    if all(names is not None for names in taken):
        strangers = [name for name in parameters if not any(name in (names or ()) for names in taken)]
        if strangers:
            message = f"none of these schedules has a parameter {', '.join(f'`{name}`' for name in strangers)}"
            raise fail(Code.PARAMETER_UNKNOWN, message, help=f"they have {_listed(taken)}")
    return [{name: x for name, x in parameters.items() if names is None or name in names} for names in taken]


def _takes(source: Source) -> tuple[str, ...] | None:
    """The parameters that a file has; None where it cannot be read, which it is told for when it is loaded."""
    if reader_of(source) is not PS:
        return ("p", "m")
    try:
        return tuple(checked(source).defaults)
    except PipeschedError:
        return None


def _listed(taken: Sequence[tuple[str, ...] | None]) -> str:
    names = dict.fromkeys(name for names in taken for name in names or ())
    return ", ".join(names) or "none"
