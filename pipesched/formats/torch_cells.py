"""Cells of a torch schedule.

    cell  = STAGE TYPE [MICROBATCH]  |  "(" STAGE "F" MICROBATCH ";" STAGE ("B" | "I") MICROBATCH ")" "OVERLAP_F_B"

torch looks for an action at the *beginning* of a cell and drops what follows it, so ``0F0x``, ``0F0 0F1`` and
``0F0;0F1`` all run as 0F0 there. Here the whole cell must be an action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipesched.diagnostics import Code
from pipesched.formats.rows import LARGEST, Bad, number, short
from pipesched.formats.words import Entry, Notation
from pipesched.model.ops import Op
from pipesched.model.torch_versions import ACTIONS, TorchVersion, first_with

WITHOUT_MICROBATCH = frozenset({Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.UNSHARD, Op.RESHARD})

SHAPE = "a cell is STAGE TYPE MICROBATCH, as in 0F3, 2SEND_B0, 1UNSHARD or (3F0;3B1)OVERLAP_F_B"

_BLANKS = " \t"
_FIELDS = ("stage", "microbatch")
_QUOTED = re.compile(r'"([^"]*)"[ \t]*(?=,|$)')
PLAIN = re.compile(rf"([0-9]+)({'|'.join(op.name for op in sorted(ACTIONS))})([0-9]*)")
OVERLAP = re.compile(r"\([ \t]*([0-9]+F[0-9]+)[ \t]*;[ \t]*([0-9]+[BI][0-9]+)[ \t]*\)OVERLAP_F_B")

Operation = tuple[Op, int, int]
"""An operation of a cell: op, stage, microbatch or -1."""


def cells(row: str) -> Iterator[tuple[int, str]]:
    """The place in a row and the text of its cells, without blanks and quotes; that of an empty one is empty."""
    at = 0
    while True:
        quoted = _QUOTED.match(row, at)
        end = quoted.end() if quoted else row.find(",", at)
        end = len(row) if end < 0 else end
        low, high = quoted.span(1) if quoted else (at, end)
        text = row[low:high]
        yield low + len(text) - len(text.lstrip(_BLANKS)), text.strip(_BLANKS)
        if end >= len(row):
            return
        at = end + 1


def read_cell(text: str, version: TorchVersion) -> list[Operation] | Bad:
    """The one or two operations of a cell, or why it has none."""
    pair = OVERLAP.fullmatch(text)
    entries = []
    for part in (pair[1], pair[2]) if pair else (text,):
        match = PLAIN.fullmatch(part)
        if match is None:
            return Bad("torch has no such action", SHAPE)
        if (op := Op[match[2]]) not in version.accepts:
            since = f"WAIT_* actions came with torch {first_with(op)}: name that version, or leave them out"
            return Bad(f"torch {version} has no {op.name}", since)
        entry = _entry(match)
        if isinstance(entry, Bad):
            return entry
        entries.append(entry)
    return entries


def _entry(match: re.Match[str]) -> Operation | Bad:
    """The operation of a plain cell, if its numbers are as its type wants them."""
    op = Op[match[2]]
    if (match[3] == "") != (op in WITHOUT_MICROBATCH):
        if match[3]:
            return Bad(f"{op.name} is for a whole stage, and torch ignores the microbatch {match[3][:20]}", SHAPE)
        return Bad(f"{op.name} needs a microbatch, and torch reads it without one", SHAPE)
    for what, digits in (("stage", match[1]), ("microbatch", match[3])):
        if number(digits) > LARGEST:
            beyond = f"{what} {short(digits.lstrip('0'))} is beyond the limit of {LARGEST:,}"
            return Bad(beyond, SHAPE, Code.OUT_OF_RANGE)
    return op, number(match[1]), number(match[3]) if match[3] else -1


def notation(version: TorchVersion) -> Notation:
    """The notation of a row, in which a word is a cell: what `cells` and `read_cell` make of it."""

    def meaning(shape: str) -> list[Entry] | None:
        ((_, cell),) = cells(shape)
        found = read_cell(cell, version) if cell else []
        if isinstance(found, Bad):
            return None
        return [(op, _FIELDS[: 1 + (microbatch >= 0)]) for op, _, microbatch in found]

    return Notation(dict.fromkeys(_FIELDS, -1), meaning)
