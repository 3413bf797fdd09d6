"""How values of options are read that only extensions have; the others are in `command.values`."""

from __future__ import annotations

from pipesched.command.values import FROM_0, Not, exact, listed, text


def seconds(value: object) -> float:
    """Return a time limit: a nonnegative number of seconds."""
    if isinstance(value, str):
        return float(exact(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return value
    raise Not(value, FROM_0)


def texts(value: object) -> tuple[str, ...]:
    """Return a text or several as a tuple."""
    return tuple(map(text, [value] if isinstance(value, str) else listed(value, "a list of texts")))
