"""Two orders side by side: every operation or instruction of both as a number, equal where they are equal.

Where both files name their messages these are compared too, since a message at another place can deadlock; else the
computes alone. A B of one order and the I of the same stage and microbatch in the other one are the same number, so
that an order with its backwards split does not seem to have none of the operations of the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.ops import Op
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.verbs.timed import Run

_COMPUTE = ("op", "stage", "microbatch")


@dataclass(frozen=True, eq=False)
class Listing:
    """key: int64, shape (entries,); start: int64, shape (ranks + 1,); weight: whether an entry is a W.

    split: whether it is a B that the other order has as I and W. half: whether it is a W of such a B of the other one.
    """

    key: Ints
    start: Ints
    weight: Bools
    split: Bools
    half: Bools
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
    where = _packed([_columns(a, _COMPUTE[1:]), _columns(b, _COMPUTE[1:])])
    at_a, at_b = where
    split_a, split_b = _split(a, at_a, b, at_b), _split(b, at_b, a, at_a)
    half_a = np.asarray((a.op == Op.W) & np.isin(at_a, at_b[split_b]))
    half_b = np.asarray((b.op == Op.W) & np.isin(at_b, at_a[split_a]))
    columns = [_columns(x, names) for x in (a, b)]
    for mine, as_input in zip(columns, (split_a, split_b), strict=True):
        mine[0] = np.where(as_input, int(Op.I), mine[0])
    keys = _packed(columns)
    return (
        Listing(keys[0], a.start, a.op == Op.W, split_a, half_a, name_a),
        Listing(keys[1], b.start, b.op == Op.W, split_b, half_b, name_b),
    )


def _split(mine: Schedule | Program, at: Ints, other: Schedule | Program, there: Ints) -> Bools:
    """Which entries of mine are a B, and nothing but an I in the other one; at, there: stage and microbatch of each."""
    halves = np.setdiff1d(there[other.op == Op.I], there[other.op == Op.B])
    return np.asarray((mine.op == Op.B) & np.isin(at, halves) & ~np.isin(at, at[mine.op == Op.I]))


def _columns(order: Schedule | Program, names: tuple[str, ...]) -> list[Column]:
    return [getattr(order, name).astype(np.int64) for name in names]


def _packed(orders: list[list[Column]]) -> list[Ints]:
    """The columns of each order as one: equal where all of them are equal."""
    keys: list[Ints] = [np.zeros(len(columns[0]), dtype=np.int64) for columns in orders]
    for parts in zip(*orders, strict=True):
        low = min(int(part.min(initial=0)) for part in parts)
        spread = max(int(part.max(initial=0)) for part in parts) - low + 1
        keys = [key * spread + (part - low) for key, part in zip(keys, parts, strict=True)]
    return keys


def _compute(schedule: Schedule) -> Callable[[int], str]:
    return lambda index: str(schedule[index])


def _instruction(program: Program) -> Callable[[int], str]:
    def name(index: int) -> str:
        found = program[index]
        if found.op.compute:
            return f"{found.op.name}{found.stage}.{found.microbatch}"
        return str(found)

    return name
