"""Which of our inputs a text is: a schedule in our language, torch's CSV, an order, a stream, or an answer.

The ending of the name decides where it is one of ours; else the first line that is neither blank nor a comment, nor a
rank without operations.
"""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["ps", "torch-csv", "order", "stream", "answer"]

_ENDINGS: dict[str, Kind] = {".ps": "ps", ".csv": "torch-csv", ".json": "stream"}

_ORDER = re.compile(r"(?i:rank|r|device)?\s*[0-9]+\s*:(?!\s*$)|(?:[FIWBfiwb][0-9]+\.[0-9]+\+?[ \t,]+){2}")
_IDLE = re.compile(r"(?i:rank|r|device)\s*[0-9]+\s*:$")
_CELL = re.compile(r"""(?:,|"?(?:[0-9]+[A-Z]|\([^)]*\)OVERLAP))""")


def kind(source_name: str, text: str) -> Kind:
    """``ps`` where nothing speaks for the others, for that reader explains best what it expects."""
    for ending, found in _ENDINGS.items():
        if source_name.lower().endswith(ending):
            return _json(text) if found == "stream" else found
    first = _first_line(text)
    if _ORDER.match(first):
        return "order"
    if first.startswith("{"):
        return _json(text)
    return "torch-csv" if _CELL.match(first) else "ps"


def _json(text: str) -> Kind:
    """An answer of the optimizer has a certificate; a stream has none."""
    return "answer" if '"certificate":' in text else "stream"


def _first_line(text: str) -> str:
    """The first line that says something: neither blank nor a comment, nor a rank without operations."""
    for found in re.finditer(r"[^\n]+", text):
        line = found[0].strip("\ufeff \t\r")
        if line and not line.startswith("#") and not _IDLE.match(line):
            return line
    return ""
