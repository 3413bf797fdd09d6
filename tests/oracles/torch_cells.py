"""The actions that torch 2.13 reads in a CSV: it parses the beginning of each cell and ignores text after an action.

Source: torch 2.13.0, torch/distributed/pipelining/schedules.py, `_Action.from_str`, `_ComputationType.from_str` and
`_load_csv`. Stated here without a pattern, so that no two engines of `re` can disagree about it.
"""

from __future__ import annotations

import csv
import io

LETTERS = "FIBW"
NAMES = ("UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B")
WORDS = {*LETTERS, *NAMES, "OVERLAP_F_B"}


class RefusedError(Exception):
    """torch raises while it loads the file."""


def rows(text: str) -> list[list[str]]:
    """Return the actions of each rank as torch prints them, without empty cells.

    Raises:
        RefusedError: some cell is not an action, or the file not a CSV.
    """
    try:
        cut = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise RefusedError(str(error)) from None
    return [[found for cell in row for found in action(cell)] for row in cut]


def action(cell: str) -> list[str]:
    """Return the operations of a cell: none, one, or the operations in brackets."""
    cell = cell.strip()
    if cell.startswith("(") and ")" in cell:
        inside, _, name = cell[1:].partition(")")
        if name not in WORDS:
            raise RefusedError(name)
        return [found for part in inside.split(";") for found in action(part)]
    return [_plain(cell)] if cell else []


def _plain(cell: str) -> str:
    stage, rest = _number(cell)
    name = next((name for name in (*LETTERS, *NAMES) if rest.startswith(name)), "")
    if not stage or not name:
        raise RefusedError(cell)
    microbatch, _ = _number(rest.removeprefix(name))
    return f"{int(stage)}{name}{int(microbatch) if microbatch else ''}"


def _number(text: str) -> tuple[str, str]:
    """Return the decimal digits, of any script, at the beginning of a text, and the rest."""
    count = next((at for at, letter in enumerate(text) if not letter.isdecimal()), len(text))
    return text[:count], text[count:]
