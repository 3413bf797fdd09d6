"""Limits on numbers in a text, and the stages that a message connects."""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import NEIGHBOUR, Column

LARGEST = 10_000_000
"""The largest stage or microbatch that is read."""

SPARE = 1_000_000
"""The entries that a table rank[stage, microbatch] may have, plus four for each operation of the file."""

SHOWN = 8
"""The most places of one kind that are reported."""


def other_stage(op: Column, stage: Column) -> Column:
    """Return the stage at the other end of each message; its own stage if the entry is not a message."""
    return np.asarray(stage + NEIGHBOUR[op])
