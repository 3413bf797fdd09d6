"""Many lines that differ in one number each, written without a Python step per line.

    head[w]  number  tail[w]        {"op":"F","stage":3,"microbatch":  17  }

Each kind of line is a row of bytes as wide as the widest number between head and tail; all lines are a gather of
such rows, their digits are put in a column at a time, and the bytes left empty are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesched.model.columns import Bools, Column, computes

ALONE, FIRST, SECOND = range(3)
"""The part that an operation plays in an overlap pair."""

_EMPTY = b"\0"
_FITS = 2**62


def parts(op: Column, second: Bools) -> Column:
    """ALONE, FIRST or SECOND for every entry of one rank's list; the parts of a pair are computes side by side."""
    joined = np.zeros(len(op) + 1, dtype=np.bool_)
    joined[1:-1] = second[1:] & computes(op[:-1])
    return np.where(joined[:-1], SECOND, np.where(joined[1:], FIRST, ALONE))


def brackets(group: Column) -> tuple[Bools, Bools]:
    """Mark where the batches of a rank begin and end: neighbours with the same group."""
    edge = np.diff(group, prepend=-1, append=-1) != 0
    return edge[:-1] & (group >= 0), edge[1:] & (group >= 0)


def distinct(*columns: Column) -> tuple[list[tuple[int, ...]], Column]:
    """The different rows of some columns of integers, and which of them each entry is."""
    key, most = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low, size = int(column.min(initial=0)), int(column.max(initial=0)) - int(column.min(initial=0)) + 1
        if most * size > _FITS:
            key = np.unique(key, return_inverse=True)[1]
            most = len(key)
        key, most = key * size + (column - low), most * size
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), inverse


def write(kinds: Sequence[tuple[str, str]], kind: Column, number: Column) -> str:
    """All lines, one after the other.

    kinds: head and tail of each kind of line, ASCII. kind: which it is, shape (lines,). number: what is between
    head and tail, shape (lines,); -1 for nothing.
    """
    if not len(kind):
        return ""
    digits = len(str(int(number.max())))
    heads = [head.encode() for head, _ in kinds]
    rows = [head + _EMPTY * digits + tail.encode() for head, (_, tail) in zip(heads, kinds, strict=True)]
    width = max(map(len, rows))
    table = np.frombuffer(b"".join(row.ljust(width, _EMPTY) for row in rows), dtype=np.uint8).reshape(-1, width)
    lines = table[kind]
    flat, at = lines.reshape(-1), np.arange(len(kind)) * width + np.array([len(head) for head in heads])[kind]
    for place in range(digits):
        value = number // 10 ** (digits - 1 - place)
        shown = (value > 0) | ((number == 0) & (place == digits - 1))
        flat[at + place] = np.where(shown & (number >= 0), value % 10 + ord("0"), 0)
    return flat.tobytes().translate(None, _EMPTY).decode("ascii")
