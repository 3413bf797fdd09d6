"""Two orders side by side: every operation or instruction of both as a number, equal where they are equal.

Where both files name their messages these are compared too, since a message at another place can deadlock; else the
computes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipesched.comparison.run import Run
from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.ops import Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule

_COMPUTE = ("op", "stage", "microbatch")


@dataclass(frozen=True, eq=False)
class Listing:
    """key: int64, shape (entries,); start: int64, shape (ranks + 1,); weight: whether an entry is a W."""

    key: Ints
    start: Ints
    weight: Bools
    name: Callable[[int], str]

    @property
    def ranks(self) -> int:
        return len(self.start) - 1

    def bounds(self, rank: int) -> tuple[int, int]:
        """The entries of a rank; none on a rank that is not there."""
        return (int(self.start[rank]), int(self.start[rank + 1])) if rank < self.ranks else (0, 0)


def listings(a: Run, b: Run) -> tuple[Listing, Listing]:
    """Both orders, with the same numbers for the same entries."""
    one, two = a.loaded.program, b.loaded.program
    if one is not None and two is not None:
        with_peer = (*_COMPUTE, "peer", "communicator")
        return _numbered(one, two, with_peer, _instruction(one), _instruction(two))
    return _numbered(a.schedule, b.schedule, _COMPUTE, _compute(a.schedule), _compute(b.schedule))


def _numbered(
    a: Schedule | Program,
    b: Schedule | Program,
    names: tuple[str, ...],
    name_a: Callable[[int], str],
    name_b: Callable[[int], str],
) -> tuple[Listing, Listing]:
    """One number for the values of all columns, by their ranges in both."""
    keys = np.zeros(len(a) + len(b), dtype=np.int64)
    for name in names:
        column: Column = np.concatenate([getattr(a, name), getattr(b, name)]).astype(np.int64)
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        keys = keys * (high - low + 1) + (column - low)
    weights = [x.op == Op.W for x in (a, b)]
    return (
        Listing(keys[: len(a)], a.start, weights[0], name_a),
        Listing(keys[len(a) :], b.start, weights[1], name_b),
    )


def _compute(schedule: Schedule) -> Callable[[int], str]:
    return lambda index: str(schedule[index])


def _instruction(program: Program) -> Callable[[int], str]:
    def name(index: int) -> str:
        found = program[index]
        if found.op.compute:
            return f"{found.op.name}{found.stage}.{found.microbatch}"
        return str(found)

    return name
