"""Messages and their tags.

A message is one activation or one gradient between neighbouring stages, and its name means the same on all ranks:
the stage that *made* it, whichever end speaks. Its tag is a number that no other message of the program has, so a
transport that honours tags (gloo) delivers right whatever the order of posts; one that does not (NCCL) delivers by
order on each channel, which is what the verifier has checked.

    F  activation of a microbatch, made by stage s, for stage s + 1
    B  gradient of a microbatch, made by stage s, for stage s - 1
    SYNC  the gradients of one copy of stage s
    TIED  the gradient of one weight that several stages share
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipesched.stream import Instruction, Stream

ACTIVATION, GRADIENT, SYNC, TIED = "F", "B", "SYNC", "TIED"
_WORDS = {
    ACTIVATION: "activation",
    GRADIENT: "gradient",
    SYNC: "gradients of the copy",
    TIED: "gradient of a tied weight",
}


@dataclass(frozen=True, slots=True)
class Message:
    """A message by its name. stage: the one that made it; source, target: ranks; -1 where a field has no meaning.

    communicator: on which it travels, which is not part of its name.
    """

    kind: str
    route: int
    stage: int
    microbatch: int
    source: int
    target: int
    communicator: int = field(default=0, compare=False)

    @classmethod
    def of(cls, instruction: Instruction, rank: int) -> Message:
        """The message of a SEND or RECV of a rank."""
        x = instruction
        if x.op.startswith("SEND"):
            return cls(x.op[-1], x.route, x.stage, x.microbatch, rank, x.peer, x.communicator)
        maker = x.stage + (-1 if x.op == "RECV_F" else 1)
        return cls(x.op[-1], x.route, maker, x.microbatch, x.peer, rank, x.communicator)

    def __str__(self) -> str:
        """``activation 2 of stage 0, rank 0 to rank 1``."""
        number = f" {self.microbatch}" if self.microbatch >= 0 else ""
        return f"{_WORDS[self.kind]}{number} of stage {self.stage}, rank {self.source} to rank {self.target}"


@dataclass(frozen=True, slots=True)
class Tags:
    """The tag of each tensor of each message. width: the most tensors that one message holds."""

    routes: int
    stages: int
    microbatches: int
    width: int

    @classmethod
    def of(cls, stream: Stream, width: int) -> Tags:
        return cls(len(stream.placement), stream.stages, stream.microbatches, max(width, 1))

    def of_tensor(self, message: Message, index: int) -> int:
        """A number from 0 up, below 2**31 for any program that fits in memory."""
        per_kind = self.routes * self.stages * self.microbatches * self.width
        if message.kind in (ACTIVATION, GRADIENT):
            place = (message.route * self.stages + message.stage) * self.microbatches + message.microbatch
            return (message.kind == GRADIENT) * per_kind + place * self.width + index
        return 2 * per_kind + (message.kind == TIED) * self.stages + message.stage
