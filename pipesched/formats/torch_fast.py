"""A row of plain cells, read without a Python step per cell.

A row is runs of separators, digits and letters. It is plain exactly when every run of letters stands in

    separator  digits  LETTERS  [digits]  separator

and no run of digits stands elsewhere, so the whole grammar is a few comparisons of neighbouring runs, and a row of
ten thousand cells is a few array operations. Overlap pairs become cells with ``;`` between them first. Whatever
does not fit comes back as None, and the exact reader (`torch_cells`) says why or reads it.
"""

from __future__ import annotations

import re

import numpy as np

from pipesched.formats.rows import LARGEST
from pipesched.formats.torch_cells import WITHOUT_MICROBATCH
from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.ops import Op
from pipesched.model.torch_versions import ACTIONS, TorchVersion

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
_BLANKS = re.compile(rb"(?<![ \t])[ \t]+(?=,)|(?<=,)[ \t]+")


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
        row = _BLANKS.sub(b"", row.strip(b" \t"))
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
