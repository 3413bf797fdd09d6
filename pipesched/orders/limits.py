"""Limits on numbers in files, and the stages that a message connects."""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import NEIGHBOUR, Column

LARGEST = 10_000_000
"""The largest allowed stage or microbatch number."""

SPARE = 1_000_000
"""Limit on the entries of the table rank[stage, microbatch]; each operation in the file adds four."""

SHOWN = 8
"""Limit on the number of reported places for one kind of finding."""


def other_stage(op: Column, stage: Column) -> Column:
    """Return the stage at the other end of each message, or the entry's own stage if it is not a message."""
    return np.asarray(stage + NEIGHBOUR[op])
