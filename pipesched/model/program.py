"""Per-rank instruction lists with sends and receives: what runs.

Channels are named by (communicator, source rank, target rank); the i-th send on a channel pairs with the i-th
receive, whatever they carry. That pairing is by position, so it is one stable sort of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pipesched.model import lists
from pipesched.model.columns import Bools, Column, Ints, among, computes
from pipesched.model.costs import Costs
from pipesched.model.lists import Chosen, Nowhere, Origin, RankLists
from pipesched.model.ops import RECEIVES, SENDS, Compute, Instruction, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.safe import line as safe


@dataclass(frozen=True, eq=False)
class Program(RankLists):
    """Instruction lists, one entry an instruction; -1 where a column has no meaning (see `Instruction`).

    start: int64, shape (ranks + 1,). clock: a claimed global instant of each instruction, or None; who believes it
    checks it (`analysis.termination`). other: the stage at the other end of each message, or None where every stage
    reads the one before it.
    """

    name: str
    placement: Placement
    op: Column
    stage: Column
    microbatch: Column
    peer: Column
    group: Column
    communicator: Column
    second: Bools
    start: Ints
    origin: Origin = field(default_factory=Nowhere)
    clock: Ints | None = None
    other: Column | None = None

    def __repr__(self) -> str:
        sizes = f"{len(self)} instructions, {self.messages} messages"
        return f"<Program {safe(self.name)}: {sizes}, {self.stages} stages on {self.ranks} ranks>"

    @cached_property
    def sends(self) -> Bools:
        return among(self.op, SENDS)

    @cached_property
    def receives(self) -> Bools:
        return among(self.op, RECEIVES)

    @property
    def messages(self) -> int:
        """Messages between ranks: the larger of sends and receives, which are equal in a right program."""
        return max(int(np.count_nonzero(self.sends)), int(np.count_nonzero(self.receives)))

    def __getitem__(self, index: int) -> Instruction:
        op = Op(int(self.op[index]))
        other = -1 if self.other is None else int(self.other[index])
        return Instruction(
            op,
            int(self.stage[index]),
            int(self.microbatch[index]),
            int(self.peer[index]),
            int(self.group[index]),
            int(self.communicator[index]),
            bool(self.second[index]),
            -1 if other == self.stage[index] + op.kind.of else other,
        )

    def instructions(self, rank: int) -> list[Instruction]:
        """The instructions of a rank, for people; the columns are for work."""
        return [self[i] for i in range(int(self.start[rank]), int(self.start[rank + 1]))]

    @cached_property
    def computes(self) -> Schedule:
        """The compute order alone. The parts of an overlap pair are neighbours, or they are two slots."""
        compute = computes(self.op)
        after_compute = np.concatenate([np.zeros(1, dtype=np.bool_), compute])[: len(self)]
        at = np.flatnonzero(compute)
        return Schedule(
            self.name,
            {},
            self.placement,
            self.op[at],
            self.stage[at],
            self.microbatch[at],
            (self.second & after_compute)[at],
            np.searchsorted(at, self.start).astype(np.int64),
            Chosen(self.origin, at),
        )

    @property
    def schedule(self) -> Schedule:
        """The compute order, with this program."""
        return self.computes.with_program(self)

    def order(self, rank: int) -> list[Compute]:
        """The computes of a rank."""
        return self.computes.order(rank)

    def to_networkx(self, costs: Costs | None = None) -> Any:
        """The graph of its computes, as that of a `Schedule`."""
        return self.computes.to_networkx(costs)

    def to_pandas(self, costs: Costs | None = None) -> Any:
        """A row a compute, as of a `Schedule`."""
        return self.computes.to_pandas(costs)

    def _repr_svg_(self) -> str | None:
        """How a notebook shows it: its computes, as far as they run under strict communication."""
        if not lists.known("picture"):
            return None
        return str(lists.make("picture", self))

    @classmethod
    def from_instructions(
        cls, lists: Sequence[Sequence[Instruction]], placement: Placement, name: str = "program"
    ) -> Program:
        """A program from small records, one list a rank."""
        flat = [x for instructions in lists for x in instructions]

        def column(field_name: str, dtype: type) -> Column:
            return np.array([getattr(x, field_name) for x in flat], dtype=dtype)

        return cls(
            name,
            placement,
            column("op", np.int8),
            column("stage", np.int32),
            column("microbatch", np.int32),
            column("peer", np.int32),
            column("group", np.int32),
            column("communicator", np.int32),
            column("second", np.bool_),
            np.cumsum([0] + [len(x) for x in lists], dtype=np.int64),
            other=None
            if placement.chain
            else np.array([x.other if x.other >= 0 else x.stage + x.op.kind.of for x in flat], dtype=np.int32),
        )
