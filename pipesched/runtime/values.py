"""Converters of option values for runs: times, counts, trace files."""

from __future__ import annotations

from contextlib import suppress
from os import PathLike

from pipesched.command.values import Not, listed, wholes
from pipesched.support.source import Source


def real(value: object) -> float:
    """Return a number of seconds or milliseconds; the option that takes it sets the limits."""
    with suppress(ValueError, TypeError, OverflowError):
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    raise Not(value, "a valid float")


def counts(value: object) -> tuple[int, ...]:
    """Return positive counts from a list, ``[4, 3, 7]``, or text, ``4,3,7``."""
    return wholes(value, "a list of counts such as 4,3,7", range(1, 10**6))


def files(value: object) -> tuple[object, ...]:
    """Return one file or several: paths or sources."""
    one = isinstance(value, str | PathLike | Source)
    return tuple([value] if one else listed(value, "a path, or a list of paths"))
