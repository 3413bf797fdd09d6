"""Schedules and programs: the order of compute on every rank, and the same order with sends and receives.

    schedule   rank 0   F F F F B F B F B B B B
               rank 1     F F F B F B F B B B       operation i of rank r is at start[r] + i
    program    rank 0   F SEND_F F SEND_F F SEND_F RECV_B B ...

Both are columns (`model.columns`). An overlap pair is two consecutive entries, F first; the second one has `second`
set, and the pair is one *slot*. The rank of an operation is the rank of its list, even if the placement says otherwise.

Channels are named by (communicator, source rank, target rank); the i-th send on a channel pairs with the i-th receive,
whatever their contents. Pairing is by position, so it is one stable sort of the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pipesched import render
from pipesched.model import lists
from pipesched.model.columns import Bools, Column, Ints, among, computes
from pipesched.model.lists import Chosen, Nowhere, Origin, RankLists
from pipesched.model.numbers import Value
from pipesched.model.ops import BACKWARDS, COMPUTES, RECEIVES, SENDS, Compute, Instruction, Op, Result
from pipesched.model.placement import Placement
from pipesched.support.foreign import mark
from pipesched.support.record import Record
from pipesched.support.safe import line as safe


class Steps(Record):
    """The STEPs inside an order, by rank, in list order.

    at: the operation that each STEP precedes, or the end of its rank's list. rule: the version that F and B read:
    ``stash``, ``latest``, ``delay 1``, or "" if the file does not specify it.
    """

    rank: Ints
    stage: Column
    at: Ints
    rule: str
    origin: Origin = field(default_factory=Nowhere)

    def __len__(self) -> int:
        return len(self.at)

    def final(self, placement: Placement, op: Column, start: Ints) -> bool:
        """Return True if these are the implied STEPs at the end, one for each trained stage."""
        trained = [stage for stage in range(placement.stages) if stage not in placement.frozen]
        found = sorted(zip(self.stage.tolist(), self.rank.tolist(), strict=True))
        every = found == [(stage, rank) for stage in trained for rank in placement.copies(stage)]
        return every and bool((self.at == start[self.rank + 1]).all() and among(op, BACKWARDS).any())


@dataclass(frozen=True, eq=False)
class Schedule(RankLists):
    """A compute order.

    op, stage, microbatch, second: one entry per operation; start: int64, shape (ranks + 1,). title: its display name,
    if it differs from `name`. program: the same order with its messages, if the file contains them, or None. steps:
    None if the weights change only after all operations.
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
    steps: Steps | None = None
    program: Program | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        mark(self, "name", "title")

    def __repr__(self) -> str:
        sizes = " ".join(f"{name}={render.size(value)}" for name, value in self.parameters.items())
        title = safe(" ".join(filter(None, (self.name, sizes))))
        return f"<Schedule {title}: {len(self)} operations of {self.stages} stages on {self.ranks} ranks>"

    @property
    def slices(self) -> int:
        """The number of consecutive microbatches that are the slices of one sequence."""
        return self.placement.slices

    @property
    def slots(self) -> int:
        """The number of operations, with an overlap pair counted once."""
        return len(self) - int(np.count_nonzero(self.joined))

    @cached_property
    def joined(self) -> Bools:
        """True for an operation in the slot of the previous one: a second part, except at the beginning of a rank."""
        if not self.second.any():
            return self.second
        joined = self.second.copy()
        joined[self.start[:-1][self.start[:-1] < len(self)]] = False
        return joined

    @cached_property
    def paired(self) -> Bools:
        """True for an operation that is part of an overlap pair."""
        return np.asarray(self.joined | np.append(self.joined[1:], False)[: len(self)])

    @cached_property
    def counts(self) -> list[int]:
        """The number of operations of each kind."""
        return list(np.bincount(self.op, minlength=len(COMPUTES)).tolist())

    def has(self, kinds: Iterable[Op]) -> bool:
        """Return True if some operation is of one of these kinds."""
        return any(self.counts[op] for op in kinds)

    @cached_property
    def forward_only(self) -> bool:
        """True if the schedule has no backward, as in inference."""
        return not self.has(BACKWARDS)

    @cached_property
    def keeps(self) -> Bools:
        """A mask of the stages whose F keeps an activation for a backward; shape (stages,)."""
        return self.placement.wants[Result.GRADIENT] & (not self.forward_only)

    def with_program(self, program: Program | None) -> Schedule:
        """Return the schedule with another program, or without one."""
        made = object.__new__(Schedule)
        made.__dict__.update({name: getattr(self, name) for name in self.__dataclass_fields__}, program=program)
        return made

    def __getitem__(self, index: int) -> Compute:
        return Compute(
            Op(int(self.op[index])), int(self.stage[index]), int(self.microbatch[index]), bool(self.second[index])
        )

    def slot(self, index: int) -> str:
        """Return an operation in the order notation, with its partner in an overlap pair: ``F3.1+B2.0``."""
        low = index - int(self.joined[index])
        high = low + 1 + int(low + 1 < len(self) and self.joined[low + 1])
        return "+".join(str(self[i]) for i in range(low, high))

    @property
    def computes(self) -> Schedule:
        return self

    @classmethod
    def from_orders(cls, orders: Sequence[Sequence[Compute]], placement: Placement, name: str = "order") -> Schedule:
        """Return a schedule from small records, one list per rank."""
        flat = [c for order in orders for c in order]
        op, stage, microbatch, second = (lists.column(flat, x) for x in ("op", "stage", "microbatch", "second"))
        start = np.cumsum([0] + [len(order) for order in orders], dtype=np.int64)
        return cls(name, {}, placement, op, stage, microbatch=microbatch, second=second, start=start)


@dataclass(frozen=True, eq=False)
class Program(RankLists):
    """Instruction lists, one entry per instruction; -1 if a column has no meaning (see `Instruction`).

    start: int64, shape (ranks + 1,). clock: a claimed global time of each instruction, or None; its users check it
    (`analysis.termination`). other: the stage at the other end of each message, or None if every stage reads the
    previous stage. rule: as in `Steps`; each STEP has its stage.
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
    rule: str = ""

    def __post_init__(self) -> None:
        mark(self, "name")

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
        """The number of sends or of receives, whichever is larger; they are equal in a correct program."""
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
            communicator=int(self.communicator[index]),
            second=bool(self.second[index]),
            other=-1 if other == self.stage[index] + op.kind.of else other,
        )

    def instructions(self, rank: int) -> list[Instruction]:
        """Return the instructions of a rank as records, for display; code uses the columns."""
        return [self[i] for i in range(int(self.start[rank]), int(self.start[rank + 1]))]

    @cached_property
    def computes(self) -> Schedule:
        """The compute order without messages. Parts of an overlap pair that are not adjacent become two slots."""
        compute = computes(self.op)
        after_compute = np.concatenate([np.zeros(1, dtype=np.bool_), compute])[: len(self)]
        at = np.flatnonzero(compute)
        return Schedule(
            self.name,
            {},
            self.placement,
            self.op[at],
            self.stage[at],
            microbatch=self.microbatch[at],
            second=(self.second & after_compute)[at],
            start=np.searchsorted(at, self.start).astype(np.int64),
            origin=Chosen(self.origin, at),
            steps=self._steps(at),
        )

    def _steps(self, computes: Ints) -> Steps | None:
        at = np.flatnonzero((self.op == Op.STEP) & (self.stage >= 0))
        place = np.searchsorted(computes, at)
        return Steps(self.rank[at], self.stage[at], place, self.rule, Chosen(self.origin, at)) if len(at) else None

    @property
    def schedule(self) -> Schedule:
        """The compute order, with this program attached."""
        return self.computes.with_program(self)
