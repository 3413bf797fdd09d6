"""A program in the form that the explorer reads: the lines of each rank, and the partner of each send and receive.

A rank's list is read as *lines*: one instruction, one overlap pair, or one batch (a fused group). A rank that cannot
leave a line is stuck at the line's first instruction. The i-th SEND of a channel (communicator, source, target) and
its i-th RECV are partners, whatever they carry; so are the i-th SYNCs of two ranks with each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program

Channel: TypeAlias = tuple[int, int, int]  # communicator, source rank, target rank
End: TypeAlias = tuple[int, int]  # a SEND or RECV: rank, position in its list
Spot: TypeAlias = tuple[int, int]  # a line: rank, line number
Stops: TypeAlias = tuple[int, ...]

CONSUMED = {Op.F: Op.RECV_F, Op.I: Op.RECV_B, Op.B: Op.RECV_B, Op.WAIT_SEND_F: Op.SEND_F, Op.WAIT_SEND_B: Op.SEND_B}


@dataclass(frozen=True)
class Line:
    """A unit of a rank's list: `ends` are its SENDs and RECVs, `awaits` those that a posted model waits for here."""

    first: int
    ends: tuple[End, ...] = ()
    awaits: tuple[End, ...] = ()
    sync: bool = False


class Script:
    """A program as lines, with every SEND and RECV matched by its position on its channel, every SYNC by its turn."""

    def __init__(self, program: Program) -> None:
        self.lists = [program.instructions(rank) for rank in range(program.ranks)]
        self.lines = [_lines(rank, instructions) for rank, instructions in enumerate(self.lists)]
        self.spot = {end: (r, n) for r, lines in enumerate(self.lines) for n, ln in enumerate(lines) for end in ln.ends}
        self.channel = {end: _channel(end[0], self.instruction(end)) for end in self.spot}
        self.partner = self._partners()
        self.other_sync = self._syncs()
        self.known: dict[str, Stops] = {}  # the explorer's results by model

    def instruction(self, end: End) -> Instruction:
        return self.lists[end[0]][end[1]]

    def sends(self, end: End) -> bool:
        return self.instruction(end).op.send

    def _partners(self) -> dict[End, End]:
        """Return the partner of each end; surplus ends of a channel have none."""
        sent: dict[Channel, list[End]] = defaultdict(list)
        received: dict[Channel, list[End]] = defaultdict(list)
        for end, channel in self.channel.items():
            (sent if self.sends(end) else received)[channel].append(end)
        pairs = [pair for channel in sent for pair in zip(sent[channel], received[channel], strict=False)]
        return dict(pairs) | {receive: send for send, receive in pairs}

    def _syncs(self) -> dict[Spot, Spot]:
        """Return the line of the other SYNC, for each that has one."""
        turns: dict[tuple[int, int], list[Spot]] = defaultdict(list)
        for rank, lines in enumerate(self.lines):
            for n, line in enumerate(lines):
                if line.sync:
                    turns[rank, self.lists[rank][line.first].peer].append((rank, n))
        pairs = [zip(spots, turns.get((b, a), []), strict=False) for (a, b), spots in turns.items()]
        return {mine: other for pair in pairs for mine, other in pair}

    def messages(self) -> list[tuple[End, End]]:
        """Return every SEND that has a RECV, with it."""
        return [(end, other) for end, other in sorted(self.partner.items()) if self.sends(end)]

    def stops(self, at: Sequence[int]) -> Stops:
        """Return for each rank the first instruction of its current line; -1 after its last line."""
        return tuple(lines[n].first if n < len(lines) else -1 for lines, n in zip(self.lines, at, strict=True))


def _channel(rank: int, x: Instruction) -> Channel:
    return (x.communicator, rank, x.peer) if x.op.send else (x.communicator, x.peer, rank)


def _lines(rank: int, instructions: list[Instruction]) -> list[Line]:
    """Return the list cut into lines, and one more: at the end a rank waits for its SENDs."""
    lines: list[Line] = []
    latest: dict[tuple[Op, int, int, int], End] = {}  # by the value, and the stage at the other end
    for i, j in _cuts(instructions):
        part = instructions[i:j]
        wanted = [
            (CONSUMED[x.op], x.stage, x.microbatch, *([] if x.op.compute else [x.other]))
            for x in part
            if x.op in CONSUMED
        ]
        awaits = tuple(end for key in wanted for one, end in latest.items() if one[: len(key)] == key)
        ends = tuple((rank, n) for n in range(i, j) if _message(instructions[n]))
        lines.append(Line(i, ends, awaits, part[0].op is Op.SYNC))
        latest |= {(x.op, x.stage, x.microbatch, x.other): (r, n) for r, n in ends for x in [instructions[n]]}
    sends = tuple(end for line in lines for end in line.ends if instructions[end[1]].op.send)
    return [*lines, Line(len(instructions), awaits=sends)]


def _cuts(instructions: list[Instruction]) -> Iterator[tuple[int, int]]:
    """Yield Half-open ranges of the lines."""
    i = 0
    for j in range(1, len(instructions) + 1):
        if j == len(instructions) or not _together(instructions[j - 1], instructions[j]):
            yield i, j
            i = j


def _message(x: Instruction) -> bool:
    return x.op.send or x.op.receive


def _together(before: Instruction, after: Instruction) -> bool:
    """Return True if two neighbours are one line: an overlap pair, or members of one batch."""
    if _message(before) and _message(after):
        return before.group == after.group >= 0
    return before.op.compute and after.op.compute and after.second
