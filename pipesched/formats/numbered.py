"""Writes many lines of a few kinds, each with its own number, without a Python step per line.

    {"op":"F","stage":3,"microbatch":%d}    17

The text of each kind of line is made once; then all numbers are formatted at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesched.model.columns import Bools, Column, computes

ALONE, FIRST, SECOND = range(3)
"""The role of an operation in an overlap pair."""

_FITS = 2**62


def parts(op: Column, second: Bools) -> Column:
    """Return ALONE, FIRST or SECOND for every entry of one rank's list; the parts of a pair are adjacent operations."""
    joined = np.zeros(len(op) + 1, dtype=np.bool_)
    joined[1:-1] = second[1:] & computes(op[:-1])
    return np.where(joined[:-1], SECOND, np.where(joined[1:], FIRST, ALONE))


def brackets(group: Column) -> tuple[Bools, Bools]:
    """Return masks of the entries where a rank's batches begin and end; neighbours with equal groups are a batch."""
    edge = np.diff(group, prepend=-1, append=-1) != 0
    return edge[:-1] & (group >= 0), edge[1:] & (group >= 0)


def distinct(*columns: Column) -> tuple[list[int], Column]:
    """Return the first index of each distinct row of integer columns, and for each entry the number of its row."""
    key, most = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low, size = int(column.min(initial=0)), int(column.max(initial=0)) - int(column.min(initial=0)) + 1
        if most * size > _FITS:
            key = np.unique(key, return_inverse=True)[1]
            most = len(key)
        key, most = key * size + (column - low), most * size
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first.tolist(), inverse


def write(texts: Sequence[str], kind: Column, number: Column) -> str:
    """Return all lines as one string.

    texts: the text of each kind of line, with at most one ``%d``. kind: the kind of each line, shape (lines,). number:
    the number of each line, shape (lines,).
    """
    numbered = np.array(["%d" in text for text in texts], dtype=np.bool_)[kind]
    return "".join(np.array(texts, dtype=np.object_)[kind].tolist()) % tuple(number[numbered].tolist())
