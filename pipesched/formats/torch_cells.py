"""One cell of a torch schedule, and what torch makes of a cell that is none.

    cell  = STAGE TYPE [MICROBATCH]  |  "(" STAGE "F" MICROBATCH ";" STAGE ("B" | "I") MICROBATCH ")" "OVERLAP_F_B"

torch looks for an action at the *beginning* of a cell and drops what follows it, so ``0F0x``, ``0F0 0F1`` and
``0F0;0F1`` all run as 0F0 there. Here the whole cell must be an action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from pipesched.formats.rows import LARGEST, Bad, number, short
from pipesched.model.columns import Bools, Column
from pipesched.model.ops import Op
from pipesched.model.torch_versions import ACTIONS, TorchVersion, first_with

WITHOUT_MICROBATCH = frozenset({Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.UNSHARD, Op.RESHARD})

SHAPE = "a cell is STAGE TYPE MICROBATCH, as in 0F3, 2SEND_B0, 1UNSHARD or (3F0;3B1)OVERLAP_F_B"

_BLANKS = " \t"
_QUOTED = re.compile(r'"([^"]*)"[ \t]*(?=,|$)')
PLAIN = re.compile(rf"([0-9]+)({'|'.join(op.name for op in sorted(ACTIONS))})([0-9]*)")
_OVERLAP = re.compile(r"\([ \t]*([0-9]+F[0-9]+)[ \t]*;[ \t]*([0-9]+[BI][0-9]+)[ \t]*\)OVERLAP_F_B")

Entry = tuple[Op, int, int]
"""An operation of a cell: op, stage, microbatch or -1."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is not empty: its text without blanks and quotes, and its place in the row."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def cells(row: str) -> Iterator[Cell]:
    """The cells of a row, from left to right; empty ones come as an empty text at their place."""
    at = 0
    while True:
        quoted = _QUOTED.match(row, at)
        end = quoted.end() if quoted else row.find(",", at)
        end = len(row) if end < 0 else end
        low, high = quoted.span(1) if quoted else (at, end)
        text = row[low:high]
        yield Cell(text.strip(_BLANKS), low + len(text) - len(text.lstrip(_BLANKS)))
        if end >= len(row):
            return
        at = end + 1


def parts(cell: Cell) -> list[Cell]:
    """The cell itself, or the two operations of an overlap pair."""
    pair = _OVERLAP.fullmatch(cell.text)
    return [Cell(pair[i], cell.start + pair.start(i)) for i in (1, 2)] if pair else [cell]


def read_cell(text: str, version: TorchVersion) -> list[Entry] | Bad:
    """The one or two operations of a cell, or why it has none."""
    pair = _OVERLAP.fullmatch(text)
    entries = []
    for part in (pair[1], pair[2]) if pair else (text,):
        match = PLAIN.fullmatch(part)
        if match is None:
            return Bad(_reading(text, version), _advice(text))
        entry = _entry(match)
        if isinstance(entry, Bad):
            return entry
        if entry[0] not in version.accepts:
            since = f"WAIT_* actions came with torch {first_with(entry[0])}: name that version, or leave them out"
            return Bad(_reading(text, version), since)
        entries.append(entry)
    return entries


def _entry(match: re.Match[str]) -> Entry | Bad:
    """The operation of a plain cell, if its numbers are as its type wants them."""
    op = Op[match[2]]
    if (match[3] == "") != (op in WITHOUT_MICROBATCH):
        if match[3]:
            return Bad(f"{op.name} is for a whole stage, and torch ignores the microbatch {match[3][:20]}", SHAPE)
        return Bad(f"{op.name} needs a microbatch, and torch reads it without one", SHAPE)
    for what, digits in (("stage", match[1]), ("microbatch", match[3])):
        if number(digits) > LARGEST:
            return Bad(f"{what} {short(digits.lstrip('0'))} is beyond the limit of {LARGEST:,}", SHAPE, beyond=True)
    return op, number(match[1]), number(match[3]) if match[3] else -1


def _reading(text: str, version: TorchVersion) -> str:
    """What torch of this version makes of a cell that is not an action."""
    torch = f"torch {version}"
    if text.startswith("(") and ")" in text:
        return _overlap_reading(text, torch, version)
    match = _prefix(text, version)
    if match is None:
        return f"{torch} refuses it when it loads the file"
    rest = text[match.end() :]
    drops = f" and drops {short(rest)!r}" if rest else ""
    without = " without a microbatch" if not match[3] and Op[match[2]] not in WITHOUT_MICROBATCH else ""
    read = f"{int(match[1])}{match[2]}{int(match[3]) if match[3] else ''}" if len(match[0]) < 40 else short(match[0])
    return f"{torch} reads it as {read}{without}{drops}"


def _prefix(text: str, version: TorchVersion) -> re.Match[str] | None:
    """The action at the beginning of a text, as torch of this version finds it."""
    letters = [op.name for op in sorted(version.accepts, key=lambda op: -len(op.name))]
    return re.match(rf"(\d+)({'|'.join(letters)})(\d*)", text)


def _overlap_reading(text: str, torch: str, version: TorchVersion) -> str:
    """The same for what looks like an overlap: torch cuts at the first ")"."""
    inside, _, after = text[1:].partition(")")
    pieces = [piece.strip() for piece in inside.split(";") if piece.strip()]
    known = {op.name for op in version.accepts} | {"OVERLAP_F_B"}
    if after not in known or not all(_prefix(piece, version) for piece in pieces):
        return f"{torch} refuses it when it loads the file"
    if after != "OVERLAP_F_B":
        return f"{torch} loads it as {after} of no stage"
    return f"an overlap is an F and then a B or I, and {torch} runs its parts one after the other, whatever they are"


def _advice(text: str) -> str:
    """What to write instead, where that is plain."""
    if PLAIN.fullmatch(text.upper()) or _OVERLAP.fullmatch(text.upper()):
        return f"torch's letters are upper case: {short(text.upper())}"
    if not text.isascii() or not text.isprintable():
        odd = next(c for c in text if not c.isascii() or not c.isprintable())
        return f"remove the character U+{ord(odd):04X}"
    pieces = re.split(r"[ ;,|]+", text)
    if len(pieces) > 1 and all(PLAIN.fullmatch(piece) for piece in pieces):
        return f"put a comma between actions: {','.join(pieces[:4])}"
    return SHAPE


# A row of plain cells, read as a whole. With every digit a zero, a cell is a word of a finite table: 12SEND_F3 is
# 00SEND_F0. Overlap pairs become two cells first, the second of which begins with ``;``. What does not fit comes back
# as None, and `read_cell` says why or reads it.


Columns = tuple[Column, Column, Column, Bools]
"""op int8, stage int32, microbatch int32, second."""

_PAIR = re.compile(rb"(?<![^,])\(([0-9]+F[0-9]+);([0-9]+[BI][0-9]+)\)OVERLAP_F_B(?![^,])")
_QUOTES = re.compile(rb'(?<![^,])"([^",]*)"[ \t]*(?![^,])')
_AROUND = re.compile(rb"(?<![ \t])[ \t]+(?=,)|(?<=,)[ \t]+")
_ONLY_DIGITS = bytes(byte if byte in b"0123456789" else ord(" ") for byte in range(256))
_ONLY_ZEROS = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_NUMBERS = np.array([1 if op in WITHOUT_MICROBATCH else 2 for op in Op])
_DIGITS = tuple(b"0" * count for count in range(1, 9))


@cache
def _words(version: TorchVersion) -> dict[bytes, int]:
    """What a cell may be, with numbers of at most 8 digits: twice its operation, and 1 for the second of a pair."""
    return {
        mark + stage + op.name.encode() + microbatch: 2 * op + len(mark)
        for op in version.accepts
        for mark in (b"", b";")
        for stage in _DIGITS
        for microbatch in ((b"",) if op in WITHOUT_MICROBATCH else _DIGITS)
    }


def read_plain_row(row: str, version: TorchVersion) -> Columns | None:
    """The columns of a row, or None if some cell needs a closer look."""
    text = _flat(row.encode()) if row.isascii() else None
    if text is None:
        return None
    words = filter(None, text.translate(_ONLY_ZEROS).replace(b";", b",;").split(b","))
    try:
        named = np.fromiter(map(_words(version).__getitem__, words), dtype=np.int8)
    except KeyError:
        return None
    numbers = np.fromstring(text.translate(_ONLY_DIGITS), dtype=np.int32, sep=" ") if len(named) else named
    op, count = named >> 1, _NUMBERS[named >> 1]
    if len(numbers) != count.sum() or int(numbers.max(initial=0)) > LARGEST:
        return None
    at = np.cumsum(count) - count
    microbatch = np.where(count == 2, numbers.take(at + 1, mode="clip"), np.int32(-1))
    return op, numbers[at], microbatch.astype(np.int32), named % 2 > 0


def _flat(row: bytes) -> bytes | None:
    """The row without quotes, blanks around cells and brackets of overlap pairs, whose parts ``;`` now separates."""
    if b'"' in row:
        row = _QUOTES.sub(rb"\1", row)
    if b" " in row or b"\t" in row:
        row = _AROUND.sub(b"", row.strip(b" \t"))
    if b";" in row:
        row, pairs = _PAIR.subn(rb"\1;\2", row)
        if pairs != row.count(b";"):
            return None
    return row
