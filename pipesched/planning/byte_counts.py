"""Numbers of bytes with units, such as ``80GB``."""

from __future__ import annotations

import re
from fractions import Fraction

from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.model.numbers import Ladder, quantity


class Bytes(Fraction):
    """A cap in bytes instead of activations. written: the cap as the user wrote it, such as ``60 GB``."""

    written: str = ""


UNITS = {
    "B": 1,
    **{
        unit: 10**power
        for power, units in ((3, ("kB", "KB")), (6, ("MB",)), (9, ("GB",)), (12, ("TB",)))
        for unit in units
    },
    **{f"{letter}iB": 2 ** (10 * power) for power, letter in enumerate("KMGT", 1)},
}
"""The number of bytes in each unit: GB is 10^9 bytes, GiB is 2^30."""
_UNITS = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?|\.[0-9]{1,9})\s*([A-Za-z]{1,9}|%)", re.ASCII)
SHARE = "a cap counts activations, not bytes; the unit is one microbatch through 1/p of the model"


def in_bytes(text: str) -> Bytes | None:
    """Parse ``80GB``; return None if no unit follows the number."""
    given = _UNITS.fullmatch(text.strip())
    if given is None:
        return None
    unit = next((unit for unit in UNITS if given[2] in (unit, unit.lower())), None)
    if unit is None:
        return None
    made = Bytes(Fraction(given[1]) * UNITS[unit])
    made.written = f"{given[1]} {unit}"
    return made


_BYTES: Ladder = tuple((name, Fraction(UNITS[name])) for name in ("TB", "GB", "MB", "kB", "B"))


def gigabytes(count: int | Fraction) -> str:
    """Format a number of bytes: ``80 GB``, ``6.38 GB``, ``512 MB``; a cap keeps the user's text."""
    return count.written if isinstance(count, Bytes) and count.written else quantity(count, _BYTES)


def cap_help(text: str) -> str | None:
    """Return the help for a cap with an unknown unit; None if the text is not a number with a unit."""
    given = _UNITS.fullmatch(text.strip())
    if given is None:
        return None
    if given[2] == "%":
        return f"{SHARE}: give a number, such as half of m"
    return f"units are {', '.join(UNITS)}: GB is 10^9 bytes, GiB 2^30"


def no_bytes(cap: Fraction) -> PipeschedError:
    """Return the error PS225 for a cap in bytes without a model; only a model determines the bytes of an activation."""
    help = (
        f"{SHARE}:\nsubtract weights, gradients and optimizer state from {gigabytes(cap)}, divide by the bytes that "
        "autograd\nkeeps for one microbatch on one rank, and give the quotient, such as `--mem-cap 8`;\nor have "
        "`verify`, `compare` or `optimize` count bytes: `--model FILE.toml`"
    )
    return fail(Code.USAGE, f"{gigabytes(cap)} is not a number of activations", help=help)
