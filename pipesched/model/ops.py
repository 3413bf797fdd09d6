"""The instruction set: all that one rank can be told to do.

Letters are those of torch.distributed.pipelining. The zero-bubble papers write B for what is I here.

    F  forward                     takes an activation
    I  backward for the input      makes the gradient that the previous stage waits for
    W  backward for the weights    lets the activation go
    B  full backward               I, then W

    SEND_F, RECV_F   an activation to the next stage, from the previous one
    SEND_B, RECV_B   a gradient to the previous stage, from the next one
    WAIT_SEND_*      until a send of this rank is done
    REDUCE_GRAD      the gradients of a stage are complete: divide by m, reduce over data-parallel copies
    SYNC             sum the gradients of the two copies of a stage, on two ranks
    STEP             the caller's optimizer
    UNSHARD, RESHARD parameters of a stage gathered and freed again (FSDP)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Op(enum.IntEnum):
    """An instruction's kind. The first four are computes, and their numbers index cost and memory tables."""

    F = 0
    I = 1
    W = 2
    B = 3
    SEND_F = 4
    RECV_F = 5
    SEND_B = 6
    RECV_B = 7
    WAIT_SEND_F = 8
    WAIT_SEND_B = 9
    REDUCE_GRAD = 10
    WAIT_REDUCE_GRAD = 11
    SYNC = 12
    STEP = 13
    UNSHARD = 14
    RESHARD = 15

    @property
    def compute(self) -> bool:
        return self <= Op.B

    @property
    def send(self) -> bool:
        return self is Op.SEND_F or self is Op.SEND_B

    @property
    def receive(self) -> bool:
        return self is Op.RECV_F or self is Op.RECV_B


@dataclass(frozen=True, slots=True)
class Compute:
    """One operation of a schedule, as people read it. Second halves of an overlap pair say so."""

    op: Op
    stage: int
    microbatch: int
    second: bool = False

    def __str__(self) -> str:
        return f"{self.op.name}{self.stage}.{self.microbatch}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a program, as people read it; -1 where a field has no meaning.

    `stage` is the stage of this rank, for RECV_F and SEND_B too, as in torch. `peer` is the other rank of a message
    or a SYNC. Instructions of one rank that stand side by side with the same `group` >= 0 are one fused batch.
    """

    op: Op
    stage: int = -1
    microbatch: int = -1
    peer: int = -1
    group: int = -1
    communicator: int = 0
    second: bool = False

    def __str__(self) -> str:
        """torch's notation: ``0F1``, ``2RECV_F0``, ``3REDUCE_GRAD``."""
        stage = "" if self.stage < 0 else str(self.stage)
        microbatch = "" if self.microbatch < 0 else str(self.microbatch)
        return f"{stage}{self.op.name}{microbatch}"
