"""The order of compute on every rank: the picture in the paper.

    rank 0   F F F F B F B F B B B B
    rank 1     F F F B F B F B B B       op i of rank r stands at start[r] + i
    ...

Operations are columns (`model.columns`). An overlap pair is two entries side by side, F first; the second one has
`second` set, and the pair is one *slot*. The rank of an operation is where it stands, whatever the placement says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pipesched import render
from pipesched.model import lists
from pipesched.model.columns import Bools, Column, Ints, among
from pipesched.model.costs import Costs
from pipesched.model.lists import Nowhere, Origin, RankLists
from pipesched.model.numbers import Value
from pipesched.model.ops import BACKWARDS, Compute, Op, Result
from pipesched.model.placement import Placement
from pipesched.safe import line as safe

if TYPE_CHECKING:
    from pipesched.model.program import Program


@dataclass(frozen=True, eq=False)
class Schedule(RankLists):
    """A compute order.

    op, stage, microbatch, second: one entry an operation; start: int64, shape (ranks + 1,). title: what people call it,
    where that is not its name. program: its
    messages, where it was read from a file that names them; a schedule that is
    made of this one has none.
    """

    name: str
    parameters: Mapping[str, Value]
    placement: Placement
    op: Column
    stage: Column
    microbatch: Column
    second: Bools
    start: Ints
    origin: Origin = field(default_factory=Nowhere)
    title: str = ""
    program: Program | None = field(default=None, init=False)

    def __repr__(self) -> str:
        sizes = " ".join(f"{name}={render.size(value)}" for name, value in self.parameters.items())
        title = safe(" ".join(filter(None, (self.name, sizes))))
        return f"<Schedule {title}: {len(self)} operations of {self.stages} stages on {self.ranks} ranks>"

    @property
    def display_name(self) -> str:
        """Its title, or its name where it has none."""
        return self.title or self.name

    @property
    def slices(self) -> int:
        """How many microbatches side by side are the slices of one sequence."""
        return self.placement.slices

    @property
    def slots(self) -> int:
        """Operations, with an overlap pair counted once."""
        return len(self) - int(np.count_nonzero(self.joined))

    @cached_property
    def joined(self) -> Bools:
        """Whether an operation shares the slot of the one before it: second parts, save where a rank begins."""
        joined = self.second.copy()
        joined[self.start[:-1][self.start[:-1] < len(self)]] = False
        return joined

    @cached_property
    def paired(self) -> Bools:
        """Whether an operation is a part of an overlap pair."""
        return np.asarray(self.joined | np.append(self.joined[1:], False)[: len(self)])

    @cached_property
    def forward_only(self) -> bool:
        """No backward at all: an inference schedule."""
        return not bool(np.any(among(self.op, BACKWARDS)))

    @cached_property
    def keeps(self) -> Bools:
        """By stage: whether an F keeps what a backward needs, shape (stages,)."""
        return self.placement.wants[Result.GRADIENT] & (not self.forward_only)

    def with_program(self, program: Program | None) -> Schedule:
        """The same order of compute, with what runs; or without."""
        made = replace(self)
        object.__setattr__(made, "program", program)
        return made

    def __getitem__(self, index: int) -> Compute:
        return Compute(
            Op(int(self.op[index])), int(self.stage[index]), int(self.microbatch[index]), bool(self.second[index])
        )

    def slot(self, index: int) -> str:
        """An operation as in the order notation, with its partner in an overlap pair: ``F3.1+B2.0``."""
        low = index - int(self.joined[index])
        high = low + 1 + int(low + 1 < len(self) and self.joined[low + 1])
        return "+".join(str(self[i]) for i in range(low, high))

    def order(self, rank: int) -> list[Compute]:
        """The operations of a rank, for people; the columns are for work."""
        return [self[i] for i in range(int(self.start[rank]), int(self.start[rank + 1]))]

    def to_networkx(self, costs: Costs | None = None) -> Any:
        """The graph of dependencies, messages and order as a `networkx.MultiDiGraph`: a node an operation.

        costs: of the start and the end of each node; by default 1 each.
        """
        return lists.make("graph", self, costs)

    def to_pandas(self, costs: Costs | None = None) -> Any:
        """A row an operation, as a `pandas.DataFrame`: rank, step, op, stage, microbatch, second, start, end, held.

        Raises:
            PipeschedError: PS820, pandas is not installed.
        """
        return lists.make("table", self, costs)

    def _repr_svg_(self) -> str | None:
        """How a notebook shows it; nothing where nobody can draw."""
        return str(lists.make("picture", self)) if lists.known("picture") else None

    @classmethod
    def from_orders(cls, orders: Sequence[Sequence[Compute]], placement: Placement, name: str = "order") -> Schedule:
        """A schedule from small records, one list a rank."""
        flat = [c for order in orders for c in order]
        return cls(
            name,
            {},
            placement,
            np.array([c.op for c in flat], dtype=np.int8),
            np.array([c.stage for c in flat], dtype=np.int32),
            np.array([c.microbatch for c in flat], dtype=np.int32),
            np.array([c.second for c in flat], dtype=np.bool_),
            np.cumsum([0] + [len(order) for order in orders], dtype=np.int64),
        )
