"""The instruction set: one table of all kinds of instruction, with all their properties.

A compute operation takes one result and makes others, each once for every stage and microbatch. B is I and W combined:

    F   takes the activation of the stage before     makes the activation
    I   takes the gradient of the stage behind       makes the gradient for the stage before
    W   takes the gradient of its own stage          makes the gradient of the weights
    B   takes what I takes                           makes what I and W make
    R   takes the activation of its own stage        restores what its F kept and then freed
    O   takes the activation of its own stage        copies it to host memory, and frees it
    L   takes the copy of O                          copies it back

O and L are copies: two separate engines, one per direction, run them while the rank computes.

Dependencies, completeness, costs, memory and messages are derived from these rows. A new kind of compute operation
needs a row, its letter in the grammar and the stream, and its implementation in a runtime (`tests/core/test_kinds.py`
adds one). The letters are the letters of torch.distributed.pipelining. The zero-bubble papers write B for our I.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self


class Result(enum.IntEnum):
    """A result that a compute operation makes once for each stage and microbatch."""

    ACTIVATION = 0
    GRADIENT = 1  # of the loss for the input of the stage
    WEIGHTS = 2  # of the loss for the weights of the stage
    RECOMPUTED = 3  # what a backward needs of the activation, if F does not keep it
    OFFLOADED = 4  # the activation in host memory
    LOADED = 5  # the activation, back from there

    @property
    def words(self) -> str:
        """The name in messages."""
        return "weight gradient" if self is Result.WEIGHTS else self.name.lower()


ACTIVATION, GRADIENT, WEIGHTS = Result.ACTIVATION, Result.GRADIENT, Result.WEIGHTS
RECOMPUTED, OFFLOADED, LOADED = Result.RECOMPUTED, Result.OFFLOADED, Result.LOADED

BEFORE, SAME, BEHIND = -1, 0, 1  # the stage, relative to its own


class Does(enum.Enum):
    """The role of an instruction on its rank."""

    COMPUTE = "occupies its rank for its cost"
    COPY = "copies between device and host while the rank computes"
    SEND = "sends a result to the rank of another stage"
    RECEIVE = "receives a result from the rank of another stage"
    WAIT = "waits for the end of a send or reduction that its rank began"
    MEET = "runs on two ranks at once"
    LOCAL = "affects only its rank"


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table of kinds.

    result: the result that the instruction takes, sends, receives or waits for. of: the stage that makes or receives
    that result, relative to the stage of the instruction. own: the result of its own stage that a compute operation
    uses in addition, or instead if there is no other stage. makes: the results of a compute operation. words: its name
    in prose. colour: the key of its colour in the palette. shape: a message with only the shape of the result, which
    the receiver needs to allocate a buffer.

    like: the kind whose cost it has unless its own is given. holds: 1 if it takes as much memory as its F, to be freed
    by the backward; -1 if it frees as much (a copy moves it to host memory). In both cases the backward waits for it.
    """

    does: Does
    result: Result | None = None
    of: int = SAME
    own: Result | None = None
    makes: tuple[Result, ...] = ()
    words: str = ""
    colour: str = ""
    shape: bool = False
    like: str = ""
    holds: int = 0


class Op(enum.IntEnum):
    """A kind of instruction. Compute operations come first: their numbers index tables of costs and memory."""

    kind: Kind

    F = Kind(Does.COMPUTE, ACTIVATION, BEFORE, None, (ACTIVATION,), words="forward", colour="forward")
    I = Kind(Does.COMPUTE, GRADIENT, BEHIND, ACTIVATION, (GRADIENT,), words="backward, input", colour="input")
    W = Kind(Does.COMPUTE, GRADIENT, SAME, None, (WEIGHTS,), words="backward, weights", colour="weights")
    B = Kind(Does.COMPUTE, GRADIENT, BEHIND, ACTIVATION, (GRADIENT, WEIGHTS), words="full backward", colour="full")
    R = Kind(
        Does.COMPUTE, ACTIVATION, makes=(RECOMPUTED,), words="recomputation", colour="recompute", like="F", holds=1
    )
    O = Kind(
        Does.COPY, ACTIVATION, makes=(OFFLOADED,), words="copy to host memory", colour="offload", like="F", holds=-1
    )
    L = Kind(Does.COPY, OFFLOADED, makes=(LOADED,), words="copy back", colour="load", like="O", holds=1)

    SEND_F = Kind(Does.SEND, ACTIVATION, BEHIND)
    RECV_F = Kind(Does.RECEIVE, ACTIVATION, BEFORE)
    SEND_B = Kind(Does.SEND, GRADIENT, BEFORE)
    RECV_B = Kind(Does.RECEIVE, GRADIENT, BEHIND)
    WAIT_SEND_F = Kind(Does.WAIT, ACTIVATION, BEHIND)
    WAIT_SEND_B = Kind(Does.WAIT, GRADIENT, BEFORE)

    REDUCE_GRAD = Kind(Does.LOCAL)  # the gradients of a stage are complete: divide by m, reduce over its copies
    WAIT_REDUCE_GRAD = Kind(Does.WAIT)
    SYNC = Kind(Does.MEET)  # sum the gradients of two copies of a stage, on two ranks
    STEP = Kind(Does.LOCAL)  # the caller's optimizer
    UNSHARD = Kind(Does.LOCAL)  # parameters of a stage are gathered (FSDP)
    RESHARD = Kind(Does.LOCAL)  # and freed again

    SEND_SHAPE_F = Kind(Does.SEND, ACTIVATION, BEHIND, shape=True)
    RECV_SHAPE_F = Kind(Does.RECEIVE, ACTIVATION, BEFORE, shape=True)
    SEND_SHAPE_B = Kind(Does.SEND, GRADIENT, BEFORE, shape=True)
    RECV_SHAPE_B = Kind(Does.RECEIVE, GRADIENT, BEHIND, shape=True)

    def __new__(cls, kind: Kind | int) -> Self:
        """Make a member for a row of the table, so that `Op(number)` finds the member."""
        assert isinstance(kind, Kind)
        member = int.__new__(cls, len(cls.__members__))
        member._value_ = len(cls.__members__)
        member.kind = kind
        return member

    @property
    def result(self) -> Result:
        """The result that the instruction takes, sends, receives or waits for."""
        assert self.kind.result is not None
        return self.kind.result

    @property
    def compute(self) -> bool:
        """True for an operation of a schedule; copies count as operations."""
        return self.kind.does in (Does.COMPUTE, Does.COPY)

    @property
    def copy(self) -> bool:
        return self.kind.does is Does.COPY

    @property
    def send(self) -> bool:
        return self.kind.does is Does.SEND

    @property
    def receive(self) -> bool:
        return self.kind.does is Does.RECEIVE

    @property
    def backward(self) -> bool:
        """True if the kind makes a gradient."""
        return GRADIENT in self.kind.makes or WEIGHTS in self.kind.makes

    @property
    def takes(self) -> bool:
        """True if the kind takes memory at its start; other compute operations free memory at their end."""
        return ACTIVATION in self.kind.makes or self.kind.holds > 0

    @property
    def parts(self) -> tuple[Op, ...]:
        """The kinds that together make this kind's results (I and W for B), () if there are none."""
        return tuple(op for op in COMPUTES if set(op.kind.makes) < set(self.kind.makes))


COMPUTES: Final = tuple(op for op in Op if op.compute)
COPIES: Final = tuple(op for op in COMPUTES if op.copy)
COPIED: Final = {out: back for out in COPIES for back in COPIES if back.kind.result in out.kind.makes}
"""The copies that free memory, each with the copy that allocates it again."""
LETTERS: Final = "".join(op.name for op in COMPUTES)
"""One letter per kind, in the order of the table, which is also the sorting order."""
SENDS: Final = tuple(op for op in Op if op.send)
RECEIVES: Final = tuple(op for op in Op if op.receive)
SHAPES: Final = tuple(op for op in Op if op.kind.shape)
"""Messages that contain only a shape. The program waits for them under every model: it needs the shape to continue."""
KIND: Final = f"[{LETTERS}]"
"""A regular expression for one letter."""
BACKWARDS: Final = tuple(op for op in COMPUTES if op.backward)
MAKERS: Final = {result: tuple(op for op in COMPUTES if result in op.kind.makes) for result in Result}
"""The kinds that make a result."""
OLDEST: Final = {op: MAKERS[op.result][0] for op in COMPUTES if op.kind.of == SAME}
"""The kinds that follow another kind: each takes the microbatch of the oldest I (W), F (R, O) or O (L) that lacks
it."""
RESTORES: Final = tuple(op for op in OLDEST if op.takes)
"""The kinds in `OLDEST` that restore values for a backward; they run the last slice of a sequence first."""
HOLDING: Final = tuple(op for op in COMPUTES if op.kind.holds)
"""The kinds that free the memory of an F or allocate it again."""
ADDED: Final = tuple(op for op in COMPUTES if op.kind.like)
"""The kinds other than F, I, W and B. A file may use their letters as names."""
FOR_BACKWARDS: Final = tuple(x for op in ADDED for x in op.kind.makes if not MAKERS[op.result][0].backward)
"""The results for which a backward of the same stage and microbatch waits, if an operation makes them."""
USERS: Final = {
    result: tuple(op for op in COMPUTES if op.kind.result is result and op.kind.of != SAME) for result in Result
}
"""The kinds that take a result of another stage, which may be on another rank."""


def making(results: Collection[Result]) -> Op | None:
    """Return the kind that makes exactly these results."""
    return next((op for op in COMPUTES if set(op.kind.makes) == set(results)), None)


def overlap(first: Op, second: Op) -> bool:
    """Return True if these two kinds may share a slot, in this order: an F with an I, B or W; an I with a W."""
    return (first, second) in ((Op.F, Op.B), (Op.F, Op.I), (Op.F, Op.W), (Op.I, Op.W))


@dataclass(frozen=True, slots=True)
class Compute:
    """An operation of a schedule as a record, for display. second: True for the second part of an overlap pair."""

    op: Op
    stage: int
    microbatch: int
    second: bool = False

    def __str__(self) -> str:
        return f"{self.op.name}{self.stage}.{self.microbatch}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a program as a record, for display; -1 if a field has no meaning.

    `stage` is the stage of this rank, for RECV_F and SEND_B too, as in torch. `peer` is the other rank of a message or
    a SYNC. Consecutive instructions of a rank with the same `group` >= 0 are one fused batch. `other` is the stage at
    the other end of a message, if it is not the neighbour of `stage`.
    """

    op: Op
    stage: int = -1
    microbatch: int = -1
    peer: int = -1
    group: int = -1
    communicator: int = 0
    second: bool = False
    other: int = -1

    @property
    def source(self) -> int:
        """The stage that makes the contents of a message."""
        if not self.op.receive:
            return self.stage
        return self.other if self.other >= 0 else self.stage + self.op.kind.of

    def __str__(self) -> str:
        """Return torch's notation: ``0F1``, ``2RECV_F0``, ``3REDUCE_GRAD``; ``1SEND_F0>4`` if not to a neighbour."""
        stage = "" if self.stage < 0 else str(self.stage)
        microbatch = "" if self.microbatch < 0 else str(self.microbatch)
        other = "" if self.other < 0 else f"{'<' if self.op.receive else '>'}{self.other}"
        return f"{stage}{self.op.name}{microbatch}{other}"
