"""A program with one line per rank, and its known properties.

The notation of one rank's list is torch's, with the peer after a message's arrow and a batch in brackets:

    0F1  0SEND_F1>1  [2SEND_F0>3 2RECV_B0<3@1]  +1B0        +: second of an overlap pair

With two ranks the arrow can be left out: the peer is the other one. `@1` after a word: on communicator 1, else on 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program
from tests.makers.random_programs import program

WORD = re.compile(r"(\+?)(\d+)([A-Z_]+)(\d+)(?:[<>](\d+))?(?:@(\d+))?")


@dataclass(frozen=True)
class Case:
    """A program and its known properties.

    fails: the models under which some rank cannot finish. capacity: the least k of buffered(k), 0 if strict holds.
    swapped: the i-th send and the i-th receive of some channel are not the same message. stuck: where ranks stop.
    """

    name: str
    source: str
    ranks: tuple[str, ...]
    fails: str = ""
    capacity: int | None = 0
    swapped: bool = False
    stuck: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def holds(self, model: str) -> bool:
        return model not in self.fails.split()

    def program(self) -> Program:
        return program([_list(text, rank, len(self.ranks)) for rank, text in enumerate(self.ranks)])


def _list(text: str, rank: int, ranks: int) -> list[Instruction]:
    """Return a rank's list from its words."""
    return [_instruction(word, group, rank, ranks) for word, group in _words(text)]


def _words(text: str) -> Iterator[tuple[str, int]]:
    """Yield each word with the number of its batch, -1 outside of one."""
    groups = count()
    group = -1
    for word in text.split():
        group = next(groups) if word.startswith("[") else group
        yield word.strip("[]"), group
        group = -1 if word.endswith("]") else group


def _instruction(word: str, group: int, rank: int, ranks: int) -> Instruction:
    match = WORD.fullmatch(word)
    assert match, word
    second, stage, op, microbatch, peer, communicator = match.groups()
    message = op.startswith(("SEND", "RECV"))
    assert peer or ranks == 2 or not message, word
    other = int(peer) if peer else 1 - rank
    if not message:
        return Instruction(Op[op], int(stage), int(microbatch), second=bool(second))
    return Instruction(Op[op], int(stage), int(microbatch), other, group, int(communicator or 0))
