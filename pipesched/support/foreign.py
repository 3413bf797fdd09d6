"""Marks foreign text on entry, so that only our own line ends and colours reach an output.

    "a\\n::add-mask::b"             a value of a file
    "a\\U0010000a::add-mask::b"     the same as `Foreign`: each control character becomes its shadow

A control character is replaced by its shadow, the character of the private plane 16 at the same offset. A shadow has no
effect on a terminal, and survives when text is joined, split, quoted in a message or wrapped. On output (`safe`) a
shadow is shown as a mark; JSON contains the original character, escaped.

Foreign values come from `json_of`, `toml_of` or `values`; `ruff` refuses ``json.loads``, ``tomllib.loads`` and similar
calls elsewhere. Classes that foreign text may reach in other ways (`Source`, `Label`, `Diagnostic`, `Setting`) `mark`
their own fields. Python values stay marked; `real` returns the original text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NewType, cast

from pipesched.support import budget

Foreign = NewType("Foreign", str)
"""Text without control characters, made only by `foreign`; classes that store foreign text require it."""

STEERING = (
    (0x00, 0x1F),  # C0, with tab and line ends
    (0x7F, 0x9F),  # DEL, C1
    (0x61C, 0x61C),  # marks of direction, ends of lines and paragraphs, invisible signs
    (0x200E, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0xFEFF, 0xFEFF),
)
"""The characters that end a line or control a terminal, as inclusive ranges."""


SHADOWS = 0x100000
_SHADOW = {code: chr(SHADOWS + code) for low, high in STEERING for code in range(low, high + 1)}
_REAL = {ord(shadow): chr(code) for code, shadow in _SHADOW.items()}
_ESCAPED = {letter: _SHADOW[ord(character)] for letter, character in zip("bfnrt", "\b\f\n\r\t", strict=True)}


def among(plane: int, ranges: tuple[tuple[int, int], ...] = STEERING) -> str:
    """Return ranges of characters, moved to a plane, as part of a character class of `re`."""
    return "".join(f"{chr(plane + low)}-{chr(plane + high)}" for low, high in ranges)


_WRITTEN = re.compile(rf"\\u([0-9a-fA-F]{{4}})|\\(.)|([{among(0, STEERING[1:])}])", re.S)

_ENDS = {("Expecting property name enclosed in double quotes", "}"): "object", ("Expecting value", "]"): "array"}


def foreign(text: str) -> Foreign:
    """Return the text with its control characters marked; marked text does not change."""
    return Foreign(text if text.isprintable() else text.translate(_SHADOW))


def real(text: str) -> str:
    """Return the original text, for data that is written as it was read."""
    return text if text.isascii() else text.translate(_REAL)


def values(tree: object) -> object:
    """Return a value with all of its strings marked, including keys."""
    match tree:
        case str():
            return foreign(tree)
        case dict():
            return {values(key): values(value) for key, value in tree.items()}
        case list() | tuple() if type(tree) in (list, tuple):  # not a named tuple
            return type(tree)(map(values, tree))
    return tree


def mark(noun: object, *names: str) -> None:
    """Mark the given fields of a frozen value that was just made."""
    for name in names:
        object.__setattr__(noun, name, values(getattr(noun, name)))


def toml_of(text: str, *, parse_float: Callable[[str], object] = float) -> dict[Foreign, object]:
    """Parse TOML text, with the result and the errors of ``tomllib.loads``.

    Raises:
        Spent: if it exceeds its budget.
    """
    import tomllib

    budget.keys(text)
    made = values(budget.parsed(partial(tomllib.loads, parse_float=parse_float), text, budget.WRITTEN))
    return cast("dict[Foreign, object]", made)


def json_of(
    text: str | bytes,
    *,
    parse_float: Callable[[str], object] | None = None,
    parse_constant: Callable[[str], object] | None = None,
    object_pairs_hook: Callable[[list[tuple[str, object]]], object] | None = None,
) -> Any:
    """Parse JSON text, with the result of ``json.loads`` and its errors at their places in the text.

    Raises:
        Spent: if it exceeds its budget.
    """
    given = text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass")
    loads = partial(
        json.loads, parse_float=parse_float, parse_constant=parse_constant, object_pairs_hook=object_pairs_hook
    )
    try:
        return budget.parsed(partial(_json, loads), given)
    except json.JSONDecodeError as error:
        raise _as_of_3_13(error) from None


def _as_of_3_13(error: json.JSONDecodeError) -> json.JSONDecodeError:
    """Return the error of Python 3.13, which reports a trailing comma at the comma; other errors do not change."""
    before = error.doc[: error.pos].rstrip(" \t\r\n")
    kind = _ENDS.get((error.msg, error.doc[error.pos : error.pos + 1])) if before.endswith(",") else None
    return (
        json.JSONDecodeError(f"Illegal trailing comma before end of {kind}", error.doc, len(before) - 1)
        if kind
        else error
    )


def _json(loads: Callable[[str], object], given: str) -> object:
    if given.isascii() and "\\" not in given:
        return loads(given)
    try:
        return loads(_WRITTEN.sub(_marked, given))
    except json.JSONDecodeError:
        loads(given)
        raise


def _marked(found: re.Match[str]) -> str:
    """Return the shadow of a control character in any JSON notation; other text does not change."""
    code, letter, character = found.groups()
    shadow = _ESCAPED.get(letter) if letter else _SHADOW.get(int(code, 16) if code else ord(character))
    return shadow or found[0]
