"""Where a value stands in a JSON text. Asked only when something is wrong, so the text is walked and not indexed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_BLANK = re.compile(r"[ \t\n\r]*")
_STEP = re.compile(r"\.?([A-Za-z_]+)|\[(\d+)\]")
_decode = json.JSONDecoder(object_pairs_hook=lambda pairs: None).raw_decode


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def end_of(text: str, at: int) -> int:
    """Where the value that begins here ends."""
    return int(_decode(text, at)[1])


def items(text: str, at: int) -> Iterator[int]:
    """Where each item of the list that begins here begins. Items are decoded only to find the next one."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        yield at
        at = _skip(text, end_of(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)


def members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """The key of each member of the object that begins here, and where its value begins."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        end = end_of(text, at)
        key = json.loads(text[at:end])
        at = _skip(text, _skip(text, end) + 1)
        yield key, at
        at = _skip(text, end_of(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)


def find(text: str, path: str) -> tuple[int, int]:
    """Begin and end of the value at a path such as ``ranks[0][3].stage``: of the innermost one that is there."""
    at = _skip(text, 0)
    for key, index in _STEP.findall(path):
        inner = None
        if index and text[at] == "[":
            inner = next((begin for number, begin in enumerate(items(text, at)) if number == int(index)), None)
        elif key and text[at] == "{":
            inner = next((begin for name, begin in members(text, at) if name == key), None)
        if inner is None:
            break
        at = inner
    return at, end_of(text, at)
