"""Messages and their tags.

A message is one activation or one gradient between two stages. Its name is the same on all ranks: it states the stage
that *made* the message and the stage that takes it. Its tag is unique in the program, so a transport with tags (gloo)
delivers correctly in any order of posts; a transport without tags (NCCL) delivers in the order of each channel, which
the verifier has checked.

    F  activation of a microbatch, made by stage s, for a stage that reads it: s + 1, or another
    B  gradient of a microbatch, made by stage s, for a stage that s reads: s - 1, or another
    SYNC  the gradients of one copy of stage s
    TIED  the gradient of one weight that several stages share
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipesched.runtime.execute.passed import read_by
from pipesched.stream import NEIGHBOUR, Instruction, Stream

ACTIVATION, GRADIENT, SYNC, TIED = "F", "B", "SYNC", "TIED"
_WORDS = {
    ACTIVATION: "activation",
    GRADIENT: "gradient",
    SYNC: "gradients of the copy",
    TIED: "gradient of a tied weight",
}
_ONWARD = {ACTIVATION: 1, GRADIENT: -1}
"""The offset from the stage that makes a message to the neighbour that receives it."""


@dataclass(frozen=True, slots=True)
class Message:
    """The name of a message. stage: the stage that made it. source, target: the ranks that send and receive it. A field
    that does not apply is -1.

    communicator: the communicator that carries the message; not part of the name. other: the stage that takes it, -1
    for the neighbour.
    """

    kind: str
    route: int
    stage: int
    microbatch: int
    source: int
    target: int
    communicator: int = field(default=0, compare=False)
    other: int = -1

    @classmethod
    def between(cls, kind: str, made: Instruction, maker: int, taker: int, source: int, target: int) -> Message:
        """Return the message with an activation or a gradient between two stages; microbatch, route and communicator
        are those of the instruction `made`.
        """
        other = -1 if taker == maker + _ONWARD[kind] else taker
        return cls(
            kind, made.route, maker, made.microbatch, source, target=target, communicator=made.communicator, other=other
        )

    @classmethod
    def of(cls, instruction: Instruction, rank: int) -> Message:
        """Return the message that a SEND or RECV of a rank transfers."""
        x = instruction
        other = x.other if x.other >= 0 else x.stage + NEIGHBOUR[x.op]
        if x.op.startswith("SEND"):
            return cls.between(x.op[-1], x, x.stage, other, rank, x.peer)
        return cls.between(x.op[-1], x, other, x.stage, x.peer, rank)

    @property
    def taker(self) -> int:
        """The stage that takes the activation or the gradient."""
        return self.other if self.other >= 0 else self.stage + _ONWARD[self.kind]

    def __str__(self) -> str:
        """Return ``activation 2 of stage 0, rank 0 to rank 1``; ``… for stage 3, …`` if not to a neighbour."""
        number = f" {self.microbatch}" if self.microbatch >= 0 else ""
        far = f" for stage {self.other}" if self.other >= 0 else ""
        return f"{_WORDS[self.kind]}{number} of stage {self.stage}{far}, rank {self.source} to rank {self.target}"


def receives(instructions: Sequence[Instruction], rank: int) -> list[tuple[int, Message]]:
    """Return the messages that a rank receives, each with the index of its instruction, in list order."""
    parts = ((index, x) for index, instruction in enumerate(instructions) for x in instruction.messages)
    return [(index, Message.of(x, rank)) for index, x in parts if x.op.startswith("RECV")]


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of the tensors of all messages.

    width: the largest number of tensors in one message. far: the pairs (stage, reader) that are not neighbours.
    """

    routes: int
    stages: int
    microbatches: int
    width: int
    far: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, stream: Stream, width: int) -> Tags:
        ways = [route for route in range(len(stream.placement)) if -1 in stream.placement[route].ranks] or [0]
        pairs = (
            (source, x) for route in ways for source in range(stream.stages) for x in read_by(stream, source, route)
        )
        far = tuple(sorted({pair for pair in pairs if pair[0] + 1 != pair[1]}))
        return cls(len(stream.placement), stream.stages, stream.microbatches, max(width, 1), far)

    def of_tensor(self, message: Message, index: int) -> int:
        """Return the tag of a tensor: from 0 up, below 2**31 for any program that fits in memory."""
        rows = self.stages + len(self.far)
        per_kind = self.routes * rows * self.microbatches * self.width
        if message.kind in (ACTIVATION, GRADIENT):
            place = (message.route * rows + self._row(message)) * self.microbatches + message.microbatch
            return (message.kind == GRADIENT) * per_kind + place * self.width + index
        return 2 * per_kind + (message.kind == TIED) * self.stages + message.stage

    def _row(self, message: Message) -> int:
        """Return the index of the pair of stages that a message connects, among all such pairs."""
        if message.other < 0:
            return message.stage
        ends = (message.stage, message.other)
        return self.stages + self.far.index(ends if message.kind == ACTIVATION else ends[::-1])
