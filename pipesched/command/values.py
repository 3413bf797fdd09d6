"""Readers of option values, from command-line text or from an equivalent Python value.

A reader accepts either; for any other value it raises `Not` with the expected form, or a ValueError that describes the
fault. The caller adds the name: click adds the option, such as `--p`, and `keywords.value` adds the keyword.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, TypeVar

from pipesched.diagnostics import Code, PipeschedError, fail, of_the_caller
from pipesched.model.torch_versions import TorchVersion, parse_version

if TYPE_CHECKING:
    from pipesched.model.costs import Costs
    from pipesched.model.release import Release

Raw = TypeVar("Raw")
WHOLE = re.compile(r"\s*[+-]?[0-9]{1,30}\s*")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9}|/[1-9][0-9]{0,8})?")
FROM_0 = "a nonnegative number, such as 4, 5.5 or 11/2"


class Not(ValueError):
    """A value that an option does not accept."""

    def __init__(self, value: object, what: str) -> None:
        super().__init__(f"{short(value)} is not {what}")
        self.value, self.what = value, what


def short(value: object) -> str:
    """Return a value for a message, on one line, shortened if it is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def text(value: object) -> str:
    """Return a string; refuse any other value."""
    if not isinstance(value, str):
        raise Not(value, "a string")
    return value


def whole(value: object) -> int:
    """Return an integer; text may have at most 30 digits, so that arithmetic with it stays cheap."""
    if isinstance(value, str) and WHOLE.fullmatch(value):
        return int(value)
    with suppress(TypeError):  # an array of several numbers also has __index__
        if isinstance(value, SupportsIndex) and not isinstance(value, bool):
            return index(value)
    raise Not(value, "a whole number with at most 30 digits" if isinstance(value, str) else "a whole number")


def positive(value: object) -> int:
    """Return an integer of at least 1."""
    if (found := whole(value)) < 1:
        raise Not(value, "a whole number from 1 up")
    return found


def significant(value: object) -> int:
    """Return a number of digits from 1 to 15, the precision of a double."""
    digits = whole(value)
    if not 1 <= digits <= 15:
        raise ValueError(f"{short(value)} significant digits are not allowed; choose 1 to 15")
    return digits


def instant(value: object) -> Fraction:
    """Return a nonnegative time such as 12, 1.5 or 11/2."""
    if (found := exact(value)) >= 10**15:
        raise Not(value, "a number with at most 15 digits")
    return found


def end(value: object) -> Fraction | str:
    """Return a time, or ``graphml``, the name of a graph format."""
    return "graphml" if value == "graphml" else instant(value)


def exact(value: object) -> Fraction:
    """Return a nonnegative number exactly as written: 5.5 is 11/2."""
    with suppress(ValueError, OverflowError):
        if not isinstance(value, str) or _NUMBER.fullmatch(value.strip()):
            found = Fraction(str(value))
            if found >= 0:
                return found
    raise Not(value, FROM_0)


def cap(value: object) -> Fraction:
    """Return a cap on activations."""
    if isinstance(value, str) and value.strip().lower() in ("none", "inf", "unlimited", "no"):
        raise fail(Code.USAGE, f"{short(value)} is not a number of activations", help="omit the option for no cap")
    return exact(value)


def caps(value: object, each: Callable[[object], Fraction] = cap) -> tuple[Fraction, ...]:
    """Parse ``K``, or ``K0,K1,…`` by rank: numbers such as 4, 5.5 or 11/2. each: the reader of one value."""
    if isinstance(value, str):
        return tuple(each(part.strip()) for part in value.split(","))
    return tuple(map(each, listed(value, FROM_0) if isinstance(value, Iterable) else [value]))


def ranks(value: object) -> tuple[int, ...]:
    """Return the rank of each stage, from ``[0, 1, 1, 0]`` or the text ``0,1,1,0``."""
    return wholes(value, "a list of ranks such as 0,1,1,0", range(10**9))


def wholes(value: object, what: str, able: range) -> tuple[int, ...]:
    with suppress(ValueError):
        found = tuple(map(whole, value.split(",") if isinstance(value, str) else listed(value, what)))
        if all(number in able for number in found):
            return found
    raise Not(value, what)


def listed(value: object, what: str) -> Iterable[object]:
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise Not(value, what)
    return value


def costs(text: str) -> Costs:
    """Parse costs such as ``F=1,B=2``.

    Raises:
        PipeschedError: PS225.
    """
    from pipesched.model.costs import Costs

    return of_costs(Costs.parse, text)


def costs_file(path: str) -> Costs:
    """Return the costs in a TOML file.

    Raises:
        PipeschedError: PS225, PS809.
    """
    from pipesched.library.inputs import read_path
    from pipesched.model.costs import Costs

    return of_costs(Costs.from_toml, read_path(path).text)


def seconds(value: object) -> float:
    """Return a time limit: a nonnegative number of seconds."""
    if isinstance(value, str):
        return float(exact(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return value
    raise Not(value, FROM_0)


def release(value: object) -> Release:
    """Return a release rule, or parse one."""
    from pipesched.model.release import Release

    return value if isinstance(value, Release) else Release.parse(text(value))


def version(value: object) -> TorchVersion:
    """Return a supported torch version; a patch number is dropped."""
    try:
        return parse_version(text(value))
    except PipeschedError as error:
        raise ValueError(error.diagnostics[0].message) from None


def of_costs(make: Callable[[Raw], Costs], value: Raw) -> Costs:
    """Return the costs that `make` makes from a value; its findings become errors of the command line."""
    try:
        return make(value)
    except PipeschedError as error:
        raise of_the_caller(error) from None
