"""Decimal twins of a certificate's numbers in JSON: ``KEY_decimal`` follows an exact number (`model.numbers.exact`)."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping

from pipesched.model.numbers import EXACT, exact


def doubled(value: object, counts: Container[str]) -> object:
    """Add a ``KEY_decimal`` twin to every number, list or table of numbers whose key is not in `counts`."""
    if isinstance(value, Mapping):
        made: dict[str, object] = {}
        for key, entry in value.items():
            made |= exact(**{key: entry}) if key not in counts and _is_number(entry) else {key: doubled(entry, counts)}
        return made
    return [doubled(entry, counts) for entry in value] if isinstance(value, list) else value


def single(value: object) -> object:
    """Strip the ``_decimal`` twins that `doubled` adds.

    Raises:
        ValueError: a decimal twin differs from its number.
    """
    if isinstance(value, Mapping):
        decimals = {key: f"{key}_decimal" for key in value if f"{key}_decimal" in value}
        for key, name in decimals.items():
            if json.dumps(exact(**{key: value[key]})[name]) != json.dumps(value[name]):
                raise ValueError
        return {key: single(entry) for key, entry in value.items() if key not in decimals.values()}
    return [single(entry) for entry in value] if isinstance(value, list) else value


def _is_number(value: object) -> bool:
    """Return True for a number, or a list or table of numbers."""
    if isinstance(value, Mapping):
        return all(map(_is_number, value.values()))
    if isinstance(value, list):
        return all(map(_is_number, value))
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and EXACT.fullmatch(value) is not None
    )
