"""Array types of the columns of operations, the offsets of each rank into them, and masks by kind of operation.

A schedule often has a million operations, so they are stored as columns and never as objects: entry i of each column
belongs to operation i, and `start[r]:start[r + 1]` are the operations of rank r, in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipesched.model.ops import COMPUTES, MAKERS, Op, Result

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Column: TypeAlias = NDArray[Any]  # int8, int16 or int32: as small as the values allow
PLACE = np.int32
"""The type of indices of operations and instructions: 32 bits suffice, and save memory."""

np.empty(2**24, dtype=np.int8)  # freed at once: what is as large, glibc keeps from here on, and needs no fresh pages


def among(op: Column, kinds: Iterable[Op]) -> Bools:
    """Return a mask of the entries whose kind is among `kinds`."""
    found = np.zeros(len(op), dtype=np.bool_)
    for kind in kinds:
        found |= op == int(kind)  # numpy is slow with members of an enumeration
    return found


def makes(op: Column, result: Result) -> Bools:
    """Return a mask of the operations that make the result."""
    return among(op, MAKERS[result])


def computes(op: Column) -> Bools:
    """Return a mask of the instructions that are compute operations."""
    return np.asarray(op < len(COMPUTES))


NEIGHBOUR: Ints = np.array([op.kind.of for op in Op])
"""For each kind of instruction, the offset from its own stage to the stage that makes or takes its result."""

RESULT: Ints = np.array([-1 if op.kind.result is None else op.kind.result for op in Op])
"""For each kind of instruction, the result that it takes, sends, receives or waits for."""


def fresh(*columns: Column) -> Bools:
    """Return a mask of the rows that differ from the row before; the first entry is True."""
    found = np.ones(len(columns[0]), dtype=np.bool_)
    found[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return found


def places(begins: Bools) -> Column:
    """Return, for each entry, its distance from the last entry that begins a run."""
    at = np.arange(len(begins), dtype=PLACE)
    return np.asarray(at - np.maximum.accumulate(at * begins))


def nearest(column: Column, size: int) -> Column:
    """Return the column with its entries clipped to the range from 0 to size - 1."""
    return np.minimum(np.maximum(column, 0), size - 1)


def constant(value: np.generic, length: int) -> Column:
    """Return a column of one value, which takes no memory and cannot be written."""
    return np.ndarray(length, value.dtype, value.tobytes(), strides=(0,))


def small(column: Column) -> Column:
    """Return a nonnegative column in 16 bits if they suffice, since numpy radix-sorts 16-bit integers."""
    return column.astype(np.uint16) if int(column.max(initial=0)) < 2**16 else column


def rank_column(start: Ints) -> Column:
    """Return the rank of every entry, from the offsets."""
    return np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start))


def running_sum(change: Ints, start: Ints) -> Ints:
    """Return, for each entry, the sum of its rank's entries up to it."""
    total = change.cumsum()
    total -= np.append(0, total)[start[:-1]].repeat(start[1:] - start[:-1])
    return total


def first_of(keys: Ints, at: Ints, wanted: Ints, none: int) -> Ints:
    """Return, for each wanted key, the first of the ascending indices `at` that has this key, or `none`."""
    known, first = np.unique(np.append(keys, -1), return_index=True)
    near = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[near] == wanted, np.append(at, none)[first[near]], none)
