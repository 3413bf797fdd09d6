"""One cell of a torch schedule, and what torch makes of a cell that is none.

    cell  = STAGE TYPE [MICROBATCH]  |  "(" STAGE "F" MICROBATCH ";" STAGE ("B" | "I") MICROBATCH ")" "OVERLAP_F_B"

torch looks for an action at the *beginning* of a cell and drops what follows it, so ``0F0x``, ``0F0 0F1`` and
``0F0;0F1`` all run as 0F0 there. Here the whole cell must be an action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesched.formats.rows import LARGEST, number
from pipesched.model.columns import Bools, Column, Ints
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


@dataclass(frozen=True, slots=True)
class Bad:
    """Why a cell is refused. `beyond`: it is a number that is too large, not a text that is not an action."""

    reason: str
    help: str = SHAPE
    beyond: bool = False


def cells(row: str) -> Iterator[Cell]:
    """The cells of a row, from left to right; empty ones come as an empty text where they stand."""
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
            return Bad(f"{op.name} is for a whole stage, and torch ignores the microbatch {match[3][:20]}")
        return Bad(f"{op.name} needs a microbatch, and torch reads it without one")
    for what, digits in (("stage", match[1]), ("microbatch", match[3])):
        if number(digits) > LARGEST:
            return Bad(f"{what} {_short(digits.lstrip('0'))} is beyond the limit of {LARGEST:,}", beyond=True)
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
    drops = f" and drops {_short(rest)!r}" if rest else ""
    without = " without a microbatch" if not match[3] and Op[match[2]] not in WITHOUT_MICROBATCH else ""
    read = f"{int(match[1])}{match[2]}{int(match[3]) if match[3] else ''}" if len(match[0]) < 40 else _short(match[0])
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
        return f"torch's letters are upper case: {_short(text.upper())}"
    if not text.isascii() or not text.isprintable():
        odd = next(c for c in text if not c.isascii() or not c.isprintable())
        return f"remove the character U+{ord(odd):04X}"
    pieces = re.split(r"[ ;,|]+", text)
    if len(pieces) > 1 and all(PLAIN.fullmatch(piece) for piece in pieces):
        return f"put a comma between actions: {','.join(pieces[:4])}"
    return SHAPE


def _short(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


# A row of plain cells, read without a Python step per cell: runs of separators, digits and letters, plain exactly when
# every run of letters stands in
#
#     separator  digits  LETTERS  [digits]  separator
#
# and no run of digits stands elsewhere. So the grammar is a few comparisons of neighbouring runs. Overlap pairs become
# cells with ``;`` between them first. What does not fit comes back as None, and `read_cell` says why or reads it.


Columns = tuple[Column, Column, Column, Bools]
"""op int8, stage int32, microbatch int32, second."""

_SEPARATOR, _DIGIT, _LETTER, _OTHER = range(4)
_CLASS = np.full(256, _OTHER, dtype=np.uint8)
_CLASS[[ord(c) for c in ",;"]] = _SEPARATOR
_CLASS[[ord(c) for c in "0123456789"]] = _DIGIT
_CLASS[[ord(c) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"]] = _LETTER

_ONE_LETTER = np.full(256, -1, dtype=np.int8)
for _op in ACTIONS:
    if len(_op.name) == 1:
        _ONE_LETTER[ord(_op.name)] = _op


def _words(name: bytes) -> tuple[int, int]:
    """A name of at most 16 letters as two little-endian words, so that a name is compared in two steps."""
    padded = name.ljust(16, b"\0")
    return int.from_bytes(padded[:8], "little"), int.from_bytes(padded[8:], "little")


_LONG = {op: _words(op.name.encode()) for op in ACTIONS if len(op.name) > 1}
_MASK = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
_LONGEST_NUMBER = len(str(LARGEST))
_NO_MICROBATCH = np.array([op in WITHOUT_MICROBATCH for op in Op])

_PAIR = re.compile(rb"(?<![^,])\(([0-9]+F[0-9]+);([0-9]+[BI][0-9]+)\)OVERLAP_F_B(?![^,])")
_QUOTES = re.compile(rb'(?<![^,])"([^",]*)"[ \t]*(?![^,])')
_AROUND = re.compile(rb"(?<![ \t])[ \t]+(?=,)|(?<=,)[ \t]+")


def read_plain_row(row: str, version: TorchVersion) -> Columns | None:
    """The columns of a row, or None if some cell needs a closer look."""
    if not row.isascii():
        return None
    text = _flat(row.encode())
    if text is None:
        return None
    return _columns(b"," + text + b",", version)


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


def _columns(text: bytes, version: TorchVersion) -> Columns | None:
    byte = np.frombuffer(text, dtype=np.uint8)
    kind = _CLASS[byte]
    if bool(np.any(kind == _OTHER)):
        return None
    begin = np.concatenate([[0], np.flatnonzero(kind[1:] != kind[:-1]) + 1])
    length = np.diff(begin, append=len(byte))
    found = _letters(kind[begin])
    if found is None:
        return None
    run, numbered = found
    op = _ops(text, begin[run], length[run], version)
    if op is None or bool(np.any(numbered == _NO_MICROBATCH[op])):
        return None
    stage = _numbers(byte, begin[run - 1], length[run - 1])
    after = run[numbered] + 1
    number = _numbers(byte, begin[after], length[after])
    if stage is None or number is None:
        return None
    microbatch = np.full(len(run), -1, dtype=np.int32)
    microbatch[numbered] = number
    return op, stage, microbatch, byte[begin[run - 1] - 1] == ord(";")


def _letters(kinds: Column) -> tuple[Ints, Bools] | None:
    """Which runs are letters, and which of those a number follows, if each has its place. Separators end the row."""
    run = np.flatnonzero(kinds == _LETTER)
    if not len(run):
        return None if bool(np.any(kinds == _DIGIT)) else (run, np.zeros(0, dtype=np.bool_))
    numbered = kinds[run + 1] == _DIGIT
    led = (kinds[run - 1] == _DIGIT) & (kinds[run - 2] == _SEPARATOR)
    closed = kinds[run + 1 + numbered] == _SEPARATOR
    digits = len(run) + int(np.count_nonzero(numbered))
    if not bool(np.all(led & closed)) or digits != int(np.count_nonzero(kinds == _DIGIT)):
        return None
    return run, numbered


def _ops(text: bytes, begin: Ints, length: Ints, version: TorchVersion) -> Column | None:
    """The operation that each run of letters names, as int8."""
    op = np.where(length == 1, _ONE_LETTER[np.frombuffer(text, dtype=np.uint8)[begin]], np.int8(-1))
    long = np.flatnonzero(length > 1)
    if len(long):
        if int(length[long].max()) > 16:
            return None
        op[long] = _long_ops(text, begin[long], length[long], version)
    return None if bool(np.any(op < 0)) else op


def _long_ops(text: bytes, begin: Ints, length: Ints, version: TorchVersion) -> Column:
    word = np.ndarray((len(text) + 8,), dtype="<u8", buffer=text + bytes(16), strides=(1,))
    low = word[begin] & _MASK[np.minimum(length, 8)]
    high = word[np.minimum(begin + 8, len(text))] & _MASK[np.maximum(length - 8, 0)]
    op = np.full(len(begin), -1, dtype=np.int8)
    for name, (first, second) in _LONG.items():
        if name in version.accepts:
            op[(low == first) & (high == second)] = name
    return op


def _numbers(byte: Column, begin: Ints, length: Ints) -> Column | None:
    """The value of each run of digits as int32, or None if one is beyond the limit."""
    longest = int(length.max(initial=0))
    if longest > _LONGEST_NUMBER:
        return None
    value = np.zeros(len(begin), dtype=np.int32)
    for place in range(longest):
        digit = byte[np.minimum(begin + place, len(byte) - 1)].astype(np.int32) - ord("0")
        value = np.where(place < length, value * 10 + digit, value)
    return None if int(value.max(initial=0)) > LARGEST else value
