"""The limits of numbers in a text, and the stages that a message connects."""

from __future__ import annotations

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import NEIGHBOUR, Column
from pipesched.model.placement import OPS_A_RANK

LARGEST = 10_000_000
"""The largest stage or microbatch that is read."""

SPARE = 1_000_000
"""The entries that a table rank[stage, microbatch] may have, plus four for each operation of the file."""

SHOWN = 8
"""The most places of one kind that are reported."""


def require_ranks(ranks: int, most: int) -> None:
    """Refuse a file with more ranks than the limit.

    Raises:
        PipeschedError: PS210.
    """
    if ranks > most:
        message = f"the file has {ranks:,} ranks; the limit is {most:,}"
        help = f"each rank has one line; --max-ops raises the limit: a rank counts as {OPS_A_RANK} operations"
        raise fail(Code.TOO_MANY_OPERATIONS, message, help=help)


def other_stage(op: Column, stage: Column) -> Column:
    """Return the stage at the other end of each message; its own stage if the entry is not a message."""
    return np.asarray(stage + NEIGHBOUR[op])
