"""Exact numbers, formatted and parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from itertools import groupby, starmap
from math import floor, log10
from typing import TypeAlias

from pipesched.diagnostics import Code, fail

EXACT = re.compile(r"-?\d+/[1-9]\d*", re.ASCII)
"""A fraction in JSON."""
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?|\d{1,15}/[1-9]\d{0,8}", re.ASCII)

over = lru_cache(maxsize=1 << 12)(Fraction)
"""Return a fraction of two integers, from a cache, since a schedule has few distinct times and amounts."""

Value: TypeAlias = int | tuple[int, ...]
"""The value of a parameter: a number, or the entries of a list."""


def entries(value: Value) -> tuple[int, ...]:
    """Return the entries of a list; a number is a single entry."""
    return value if isinstance(value, tuple) else (value,)


def whole(parameters: Mapping[str, Value]) -> dict[str, int]:
    """Return the integer parameters, the only ones that a stream contains."""
    return {name: value for name, value in parameters.items() if isinstance(value, int)}


def number(text: str, what: str) -> Fraction:
    """Parse a non-negative number: ``3``, ``1.5``, ``11/2``.

    Raises:
        PipeschedError: PS222: the text is anything else, or has more than 15 digits.
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise fail(
            Code.COSTS,
            f"{what} is not a number: {text!r}",
            help="write a nonnegative number with at most 15 digits, such as 3, 1.5 or 11/2",
        )
    return Fraction(text)


def runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end (exclusive) of each run of consecutive numbers; `numbers` must be ascending."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        yield found[0], found[-1] + 1


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: ``0 to 3, 5``."""
    return ", ".join(starmap(interval, runs(numbers)))


def interval(low: int, end: int) -> str:
    """Return the numbers from `low` up to `end` (exclusive) as text: ``0 to 3``, ``5``."""
    return str(low) if end - low == 1 else f"{low} to {end - 1}"


Ladder: TypeAlias = Sequence[tuple[str, Fraction]]
"""The units of a quantity with their sizes, the largest first."""


def quantity(value: int | Fraction, ladder: Ladder) -> str:
    """Format a number with three significant digits in the largest fitting unit: ``6.38 GB``, ``2.90 s``; ``80 GB``
    exactly.

    All digits before the decimal point are written.
    """
    unit, size = next((one for one in ladder if abs(value / one[1]) >= _ROUNDS_UP), ladder[-1])
    return f"{digits(value / size)} {unit}"


def digits(value: int | Fraction) -> str:
    """Format three significant digits, and all digits before the point: ``5.74``, ``2.90``; an exact ``80`` stays."""
    rounded = abs(float(f"{float(value):.{_SIGNIFICANT - 1}e}"))
    decimals = max(0, _SIGNIFICANT - 1 - floor(log10(rounded))) if rounded else 0
    text = f"{float(value):,.{decimals}f}"
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return short if Fraction(short.replace(",", "")) == value else text


_SIGNIFICANT = 3
_ROUNDS_UP = Fraction(9995, 10000)  # relative to 1 of a unit


def require_counts(sizes: Iterable[tuple[str, Value]]) -> None:
    """Require at least one rank, one stage per rank and one microbatch; other parameters are not restricted.

    Raises:
        PipeschedError: PS225: p, v or m is below 1, or a list.
    """
    for name, value in sizes:
        if name not in ("p", "v", "m"):
            continue
        if isinstance(value, tuple):
            raise fail(Code.USAGE, f"{name} is one number, but {len(value)} were given", help="give one size at a time")
        if value < 1:
            raise fail(Code.USAGE, f"{name} is {value}; there must be at least one", help=f"set --{name} to at least 1")


def shown(value: Fraction | int) -> str:
    """Return ``5.5`` if a few decimals are exact, else ``16/3``."""
    value = Fraction(value)
    decimals = next((n for n in range(7) if 10**n % value.denominator == 0), None)
    if not decimals:
        return str(value)
    whole, rest = divmod(abs(value.numerator) * 10**decimals // value.denominator, 10**decimals)
    return f"{'-' * (value < 0)}{whole}.{rest:0{decimals}}"


_digits: ContextVar[int | None] = ContextVar("digits", default=None)
_FINEST = 12  # most decimals of per cent
SMALL = 1000  # a fraction with a larger denominator is not clearer than a percentage


@contextmanager
def significant(digits: int | None) -> Iterator[None]:
    """Inside the block, format percentages with this many significant digits or, for None, with one decimal."""
    token = _digits.set(digits)
    try:
        yield
    finally:
        _digits.reset(token)


def percent(value: Fraction, sign: str = "") -> str:
    """Format a percentage: ``15.8 %``, ``20 %``; with `sign` "+" positive values get a sign.

    Only 0 is written as 0 %, and only 1 as 100 %: values near them get more decimals.
    """
    number, digits = float(value * 100), _digits.get()
    decimals = 1 if digits is None else max(0, digits - 1 - (floor(log10(abs(number))) if number else 0))
    text = f"{number:{sign}.{decimals}f}"
    while value not in (0, 1) and abs(float(text)) in (0, 100) and decimals < _FINEST:
        decimals += 1
        text = f"{number:{sign}.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if decimals else text) + " %"


def share(value: Fraction) -> str:
    """Format a fraction of a whole, percentage first: ``15.8 % (3/19)``."""
    return f"{percent(value)} ({value})" if 1 < value.denominator < SMALL else percent(value)


def plain(value: Fraction | int) -> int | str:
    """Return a number for JSON: an integer, or a string such as ``11/2``."""
    value = Fraction(value)
    return value.numerator if value.denominator == 1 else str(value)


def exact(**values: object) -> dict[str, object]:
    """Return numbers, lists and tables for JSON: each exact, followed by a decimal under ``KEY_decimal``."""
    made: dict[str, object] = {}
    for key, value in values.items():
        made |= {key: _each(plain, value), f"{key}_decimal": _each(float, value)}
    return made


def _each(write: Callable[[Fraction], object], value: object) -> object:
    """Apply `write` to every number in a value; other values do not change."""
    match value:
        case bool() | None:
            return value
        case int() | Fraction():
            return write(Fraction(value))
        case str():
            return write(Fraction(value)) if EXACT.fullmatch(value) else value
        case Mapping():
            return {key: _each(write, entry) for key, entry in value.items()}
        case Iterable():
            return [_each(write, entry) for entry in value]
    return value
