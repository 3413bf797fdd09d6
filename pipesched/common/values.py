"""Readers of values that only options of extensions accept; `command.values` has the others."""

from __future__ import annotations

from fractions import Fraction

from pipesched.command.values import Not, listed, text


def texts(value: object) -> tuple[str, ...]:
    """Return one string or several as a tuple."""
    return tuple(map(text, [value] if isinstance(value, str) else listed(value, "a list of strings")))


def deviation(value: object) -> Fraction:
    """Parse a fraction of a time: ``5%``, ``0.05``."""
    text = str(value).strip()
    try:
        share = Fraction(text.removesuffix("%").rstrip()) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        raise Not(value, "a fraction, such as 5% or 0.05") from None
    if not 0 <= share <= 1:
        raise Not(value, "a fraction from 0 to 1, such as 5%")
    return share
