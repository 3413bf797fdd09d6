"""Exact numbers as people write and read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from pipesched.diagnostics import Code, fail

_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?|\d{1,15}/[1-9]\d{0,8}", re.ASCII)


def number(text: str, what: str) -> Fraction:
    """A non-negative number: ``3``, ``1.5``, ``11/2``.

    Raises:
        PipeschedError: PS222, anything else, and numbers of more than 15 digits.
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise fail(
            Code.COSTS,
            f"{what} is not a number: {text!r}",
            help="write a number from 0 up, such as 3, 1.5 or 11/2, of at most 15 digits",
        )
    return Fraction(text)


_UNITS = re.compile(r"([0-9]*\.?[0-9]+)\s*([kKMGT]i?[bB]?|[bB]|bytes|%)", re.ASCII)
_SHARE = "a cap counts activations, each of one microbatch through 1/p of the model, not bytes"


def cap_help(text: str) -> str | None:
    """What to do with a cap in bytes, or per cent; None for what is none of these."""
    if text.strip().lower() in ("none", "inf", "unlimited", "no"):
        return "leave the cap out for none"
    given = _UNITS.fullmatch(text.strip())
    if given is None:
        return None
    if given[2] == "%":
        return f"{_SHARE}: give for example half of m"
    return (
        f"{_SHARE}:\ntake what {given[0]} leaves beside weights, gradients and optimizer, divide it by what\n"
        "autograd keeps of one microbatch on one rank, and give the quotient, as in `--mem-cap 8`"
    )


def require_counts(sizes: Iterable[tuple[str, int]]) -> None:
    """There is at least one rank, one stage of each rank and one microbatch; other parameters mean what a file says.

    Raises:
        PipeschedError: PS225, p, v or m below 1.
    """
    for name, value in sizes:
        if name in ("p", "v", "m") and value < 1:
            raise fail(Code.USAGE, f"{name} is {value}; there must be at least one", help=f"give --{name} 1 or more")


def shown(value: Fraction | int) -> str:
    """``5.5`` where a few decimals are exact, else ``16/3``."""
    value = Fraction(value)
    decimals = next((n for n in range(5) if 10**n % value.denominator == 0), None)
    if not decimals:
        return str(value)
    whole, rest = divmod(abs(value.numerator) * 10**decimals // value.denominator, 10**decimals)
    return f"{'-' * (value < 0)}{whole}.{rest:0{decimals}}"


def percent(value: Fraction) -> str:
    """A part of a whole: ``15.8 %``, ``20 %``."""
    return f"{float(value * 100):.1f}".removesuffix(".0") + " %"


def ratio(value: Fraction) -> str:
    """The same with what it is exactly: ``3/19 = 15.8 %``; of nothing and of the whole ``0 %`` and ``100 %``."""
    return f"{value} = {percent(value)}" if value.denominator > 1 else percent(value)


def plain(value: Fraction | int) -> int | str:
    """As programs read it in JSON: an integer, or a string such as ``11/2``."""
    value = Fraction(value)
    return value.numerator if value.denominator == 1 else str(value)
