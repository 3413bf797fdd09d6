"""The array types of the columns, and the one cut that all of them share.

A million operations are ordinary, so they are stored as columns and never as a million objects: entry i of each
column belongs to operation i, and `start[r]:start[r + 1]` are the operations of rank r, in order.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Column: TypeAlias = NDArray[Any]  # int8, int16 or int32: as small as the values allow


def rank_column(start: Ints) -> Column:
    """The rank of every entry, from the cut."""
    return np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start))


def running_sum(change: Ints, start: Ints) -> Ints:
    """The sum of each rank's own entries up to each entry."""
    total = np.cumsum(change)
    before = np.concatenate([np.zeros(1, dtype=np.int64), total])[start[:-1]]
    return np.asarray(total - np.repeat(before, np.diff(start)))
