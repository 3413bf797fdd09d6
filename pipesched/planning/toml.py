"""TOML as a flat table: dotted keys with values, and the places of keys and sections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from pipesched.diagnostics import AnyCode, Label, PipeschedError, budgeted, fail
from pipesched.support.foreign import toml_of
from pipesched.support.source import Source, Span

LEAST = 1e-99
_KEY = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')(?:[ \t]*\.[ \t]*[\w"'-]+)*"""
_LINE = re.compile(rf"^[ \t]*(?:\[\[?[ \t]*([^\s\]][^\]\n]*|)\]|({_KEY})[ \t]*=)", re.M)


def read(
    source: Source, code: AnyCode, parse_float: Callable[[str], object] = float
) -> tuple[dict[str, object], dict[str, Span]]:
    """Return the value of each key, and the place of each key.

    Raises:
        PipeschedError: the given code, at the place where the text is not TOML; PS843 if reading exceeds the budget.
    """
    try:
        with budgeted(source):
            values = dict(flat(toml_of(source.text, parse_float=parse_float)))
    except ValueError as error:
        reason, _, where = str(error).partition(" (at ")
        line, column = (int(x) for x in re.findall(r"[0-9]{1,9}", where)[:2]) if "line" in where else (10**9, 1)
        raise broken(source, code, "TOML", reason[:1].lower() + reason[1:], line, column) from None
    places: dict[str, Span] = {}
    section = ""
    for found in _LINE.finditer(source.text):
        if found[1] is not None:
            section = _unquoted(found[1])
            places.setdefault(section, source.span(*found.span(1)))
        else:
            key = _unquoted(found[2])
            places.setdefault(f"{section}.{key}" if section else key, source.span(*found.span(2)))
    return values, places


def exact(text: str) -> Fraction | float:
    """Parse a number with a decimal point or an exponent exactly; infinities, NaN and extreme values remain floats."""
    value = float(text)
    return Fraction(text) if LEAST < abs(value) < 1 / LEAST else Fraction(0) if value == 0 else value


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the leaves of nested tables; a list is a leaf."""
    if isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def place(key: str, places: Mapping[str, Span]) -> Span | None:
    """Return the place of a key; for a key without a place of its own, the place of the value that contains it."""
    while key and key not in places:
        key = key.rpartition(".")[0]
    return places.get(key)


def broken(source: Source, code: AnyCode, what: str, reason: str, line: int, column: int) -> PipeschedError:
    """Return an error at a line and column, both counted from 1, which states why the text cannot be read as `what`."""
    starts = source.line_starts
    at = min(starts[min(max(line, 1), len(starts)) - 1] + max(column - 1, 0), len(source.text))
    label = Label(source.span(at, min(at + 1, len(source.text))), reason)
    return fail(code, f"{source.name} cannot be read as {what}: {reason}", label)


def _unquoted(key: str) -> str:
    return ".".join(part.strip(" \t\"'") for part in key.split("."))
