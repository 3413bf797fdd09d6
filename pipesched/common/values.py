"""Read a value that only options of extensions have; `command.values` reads the other values."""

from __future__ import annotations

from pipesched.command.values import listed, text


def texts(value: object) -> tuple[str, ...]:
    """Return a text or several as a tuple."""
    return tuple(map(text, [value] if isinstance(value, str) else listed(value, "a list of texts")))
