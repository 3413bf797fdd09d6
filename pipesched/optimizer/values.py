"""Converters for the values of the optimizer's options."""

from __future__ import annotations

import re
from fractions import Fraction

from pipesched.command.values import ranks
from pipesched.planning.byte_counts import Bytes
from pipesched.planning.values import caps

MOST_CAPS = 200
_LONGEST = 200  # most characters of a range of caps
_RANGE = re.compile(r"\s*([^.:,]+(?:\.\d+)?)\s*\.\.\s*([^:,]+?)\s*(?::\s*([^:,]+?)\s*)?")


def caps_or_range(value: str) -> tuple[bool, tuple[Fraction, ...]]:
    """Return (whether this is a range, caps) for a list of caps, or for an inclusive range ``2..8`` or ``2..8:1/2``."""
    match = _RANGE.fullmatch(value) if len(value) <= _LONGEST else None
    if match is None:
        return False, caps(value)
    low, high, step = (caps(part)[0] for part in (match[1], match[2], match[3] or "1"))
    if Bytes in (type(low), type(high)):
        raise ValueError(f"the range {value} is in bytes; caps in bytes cannot form a range")
    if low > high:
        raise ValueError(f"the range {value} is empty; write {match[2]}..{match[1]}")
    if step <= 0:
        raise ValueError(f"the range {value} has a step of 0")
    if (high - low) / step >= MOST_CAPS:
        raise ValueError(f"the range {value} has more than {MOST_CAPS} caps")
    return True, tuple(low + i * step for i in range(int((high - low) / step) + 1))


def placement(value: object) -> str | tuple[int, ...]:
    """Return ``linear``, ``loop``, ``vee``, ranks by stage, or the name of a file whose placement is used."""
    named = isinstance(value, str) and not re.fullmatch(r"[\d\s,]+", value, re.ASCII)
    return str(value) if named else ranks(value)
