"""Limits on numbers in a text, and the stages that a message connects."""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import NEIGHBOUR, Column

LARGEST = 10_000_000
"""Largest number of a stage or microbatch."""

SPARE = 1_000_000
"""Limit on the entries of the table rank[stage, microbatch], plus four per operation of the file."""

SHOWN = 8
"""Limit on the reported places of one kind."""


def other_stage(op: Column, stage: Column) -> Column:
    """Return the stage at the other end of each message; its own stage if the entry is not a message."""
    return np.asarray(stage + NEIGHBOUR[op])
