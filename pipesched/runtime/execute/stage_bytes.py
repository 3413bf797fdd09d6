"""The bytes that one microbatch needs in a stage, and the peak that follows from them for any list of a rank.

    F       takes its input; keeps it and the tensors that a backward needs
    LOST    an F that will be recomputed: keeps its input
    R       recomputes what F keeps from that input
    I       keeps what W needs              W, B    free everything

A rank holds the tensors that its compute operations keep, the tensors received but not yet used or made but not yet
sent, and the temporary memory of the running operation. The rank's peak therefore follows from its list alone, without
times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipesched.runtime.execute.messages import ACTIVATION, GRADIENT, Message, receives
from pipesched.runtime.execute.passed import read_by
from pipesched.stream import BATCH, COMPUTES, Instruction, Stream

LOST = "F, run again"
AHEAD = 2
"""The number of receives that a runtime posts ahead of their place in the list."""


@dataclass(frozen=True)
class StageBytes:
    """The bytes of one microbatch in a stage. entering, leaving: the bytes of its input and output messages, 0 without
    one; gradients have the same size. kept: the bytes kept after F, LOST, R and I, including the input. most: for each
    kind, the peak bytes while it runs.
    """

    entering: int
    leaving: int
    kept: Mapping[str, int]
    most: Mapping[str, int]


class _Rank:
    """The memory of a rank as its list runs. waiting: the bytes of messages received but not yet used, or made but not
    yet sent.
    """

    def __init__(self, stream: Stream, rank: int, stages: Mapping[int, StageBytes]) -> None:
        self._stream, self._rank, self._stages = stream, rank, stages
        self._waiting: dict[Message, int] = {}
        self._kept: dict[tuple[int, int], int] = {}
        self._shared: dict[tuple[int, int], int] = {}
        self._again = {(x.stage, x.microbatch) for x in stream.ranks[rank] if x.op == "R"}
        self.alive = self.peak = 0

    def has(self, message: Message, size: int) -> None:
        self._waiting[message] = size
        self.alive += size

    def uses(self, message: Message) -> int:
        """Stop counting a message; return its bytes, or 0 if it was not counted."""
        size = self._waiting.pop(message, 0)
        self.alive -= size
        return size

    def size(self, message: Message) -> int:
        own = self._stages[message.taker]
        return own.entering if message.kind == ACTIVATION else own.leaving

    def run(self, x: Instruction) -> None:
        key, own = (x.stage, x.microbatch), self._stages[x.stage]
        match x.op:
            case "F":
                self._forward(x, key, own)
            case "I" | "B":
                self._backward(x, key, own)
            case "R" | "W":
                self._needs(key, own, x.op)
            case "O":
                self.alive -= self._kept.pop(key)
            case "L":
                self._kept[key] = own.kept["F"]
                self.alive += own.kept["F"]
                self.peak = max(self.peak, self.alive)

    def _forward(self, x: Instruction, key: tuple[int, int], own: StageBytes) -> None:
        entered = [self._between(ACTIVATION, x, y, x.stage) for y in self._stream.read(x.stage, x.route) if y >= 0]
        counted = sum(map(self.uses, entered))
        local = any(message.source == self._rank for message in entered)
        self._shared[key] = own.entering if local and not counted else 0
        self._needs(key, own, LOST if key in self._again else "F")
        if key in self._again:
            for reader in read_by(self._stream, x.stage, x.route):
                self.has(self._between(ACTIVATION, x, x.stage, reader), own.leaving)

    def _backward(self, x: Instruction, key: tuple[int, int], own: StageBytes) -> None:
        for reader in read_by(self._stream, x.stage, x.route):
            self.uses(self._between(GRADIENT, x, reader, x.stage))
        self._needs(key, own, x.op)
        for source in self._stream.read(x.stage, x.route):
            if source >= 0:
                self.has(self._between(GRADIENT, x, x.stage, source), own.entering)

    def _between(self, kind: str, x: Instruction, maker: int, taker: int) -> Message:
        ranks = self._stream.placement[x.route].ranks
        return Message.between(kind, x, maker, taker, ranks[maker], ranks[taker])

    def _needs(self, key: tuple[int, int], own: StageBytes, what: str) -> None:
        """Count the memory of a compute operation, and the tensors that it keeps for its microbatch."""
        self.alive -= self._kept.pop(key, 0)
        shared = self._shared[key]
        self.peak = max(self.peak, self.alive + own.most[what] - shared)
        if what in own.kept:
            self._kept[key] = own.kept[what] - shared
            self.alive += self._kept[key]
        self.peak = max(self.peak, self.alive)


def predicted(stream: Stream, rank: int, stages: Mapping[int, StageBytes]) -> int:
    """Return the peak bytes that a rank holds while it runs its list. stages: for each of the rank's stages, the bytes
    of one microbatch.

    A stage's output for another stage of its rank is one tensor, which is counted with the stage that made it.
    """
    instructions = stream.ranks[rank]
    incoming = receives(instructions, rank)
    found, due, posted = _Rank(stream, rank, stages), 0, 0
    for index, instruction in enumerate(instructions):
        while due < len(incoming) and incoming[due][0] <= index:
            due += 1
        for at, message in incoming[posted : due + AHEAD]:
            if at > index and instructions[at].op == BATCH:
                break
            found.has(message, found.size(message))
            posted += 1
        for x in instruction.parts or (instruction,):
            if x.op.startswith("SEND"):
                found.uses(Message.of(x, rank))
            elif x.op in COMPUTES:
                found.run(x)
    return found.peak
