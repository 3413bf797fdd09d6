"""Limits that make reading a file linear in its size.

    digits    of a number                   at most 300: any double has fewer
    parts     of a dotted key               at most 100
    bytes     of TOML, slow to read         at most 512 KiB
    levels    of nested brackets            at most 100

A file that exceeds them is refused before the work is done: `Spent` is raised, which `diagnostics.budgeted` converts to
PS843. Python's own limits on digits and on recursion depend on its version and on the environment, and lead to
unreadable errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

DIGITS = 300
PARTS = 100
TABLE = 2**19
LEVELS = 100

DECIMAL = b"0123456789"
"""The digits of JSON numbers, outside of strings."""
WRITTEN = b"0123456789_abcdefABCDEF"
"""The digits of TOML numbers, which may be hexadecimal."""
SEXAGESIMAL = WRITTEN + b":"
"""The characters of YAML numbers, which may be sexagesimal: ``1:30:00``."""
_DOTS = b"." * (PARTS + 1)
_NO_DOTS = bytes(sign for sign in range(256) if sign not in b".,=[]{}#")
"""The characters that may be between two dots of a dotted key."""

Value = TypeVar("Value")


class Spent(Exception):
    """Raised if a file exceeds its budget. at: the offset in the text of the file, if there is a single place."""

    def __init__(self, what: str, at: int | None = None) -> None:
        super().__init__(what)
        self.at = at


def numbers(text: str | bytes, digits: bytes = DECIMAL) -> None:
    """Check the length of every number in the text, in one linear pass.

    Raises:
        Spent: if a number has too many digits.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    zeros, long = _zeros(digits), b"0" * (DIGITS + 1)
    at = data.translate(zeros).find(long)
    if at >= 0 and digits == DECIMAL:
        at = _unquoted(data).translate(zeros).find(long)
    if at >= 0:
        raise Spent(f"a number has more than {DIGITS} digits", len(data[:at].decode("utf-8", "replace")))


@cache
def _zeros(digits: bytes) -> bytes:
    """Return a table that maps these digits to 0 and any other byte to a space."""
    return bytes(ord("0") if sign in digits else ord(" ") for sign in range(256))


def _unquoted(data: bytes) -> bytes:
    """Return the text with quoted parts replaced by spaces."""
    parts = data.replace(b"\\\\", b"  ").replace(b'\\"', b"  ").split(b'"')
    parts[1::2] = [b" " * len(part) for part in parts[1::2]]
    return b" ".join(parts)


def keys(text: str) -> None:
    """Check every dotted key in TOML text.

    Raises:
        Spent: if a key has too many parts, or the text is too long.
    """
    if len(text) > TABLE:
        raise Spent(f"it has more than {TABLE // 2**10} KiB, the limit for TOML; JSON may be longer")
    at = 0
    for line in text.split("\n"):
        if line.count(".") > PARTS and _DOTS in line.encode("utf-8", "surrogatepass").translate(None, _NO_DOTS):
            raise Spent(f"a key has more than {PARTS} parts", at)
        at += len(line) + 1


def levels(value: object) -> None:
    """Check the nesting of lists and tables in a parsed value.

    Raises:
        Spent: if the nesting is too deep.
    """
    inside: list[object] = [value]
    for _ in range(LEVELS + 1):
        inside = [
            inner
            for outer in inside
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not inside:
            return
    raise deep()


def parsed(parse: Callable[[str], Value], text: str, digits: bytes = DECIMAL) -> Value:
    """Parse text; its numbers are checked before parsing, its nesting afterwards.

    Raises:
        Spent: if there are too many digits or levels; also any exception of `parse`.
    """
    numbers(text, digits)
    try:
        value = parse(text)
    except RecursionError:
        raise deep() from None
    levels(value)
    return value


def deep() -> Spent:
    return Spent(f"brackets are nested more than {LEVELS} deep")
