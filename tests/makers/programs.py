"""Builds a program from small records, one list for each rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesched.model import lists
from pipesched.model.columns import NEIGHBOUR
from pipesched.model.placement import Placement
from pipesched.model.schedule import Instruction, Program


def of_instructions(
    instructions: Sequence[Sequence[Instruction]], placement: Placement, name: str = "program"
) -> Program:
    """Return the program of these instructions; `other` follows from the placement where it is not given."""
    flat = [x for rank in instructions for x in rank]
    op, stage, microbatch, peer, group, communicator, second, other = (
        lists.column(flat, x) for x in ("op", "stage", "microbatch", "peer", "group", "communicator", "second", "other")
    )
    return Program(
        name,
        placement,
        op,
        stage,
        microbatch,
        peer=peer,
        group=group,
        communicator=communicator,
        second=second,
        start=np.cumsum([0] + [len(x) for x in instructions], dtype=np.int64),
        other=None if placement.chain else np.where(other >= 0, other, stage + NEIGHBOUR[op]),
    )
