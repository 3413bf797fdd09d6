"""Orders as people write them: one line a rank, one word an operation, in the order in which they run.

    rank 0: F0.0 F0.1 I0.0 W0.0 F3.1+B2.0          F of stage 0, microbatch 0, …; "+" is one slot with two parts

    send:F0.1>1   recv:F0.1<0                      the output of F0.1, to rank 1, from rank 0
    send:B3.0>1   recv:B3.0<1                      the gradient that stage 3 made (by its B or its I)
    wait:F0.1                                      until that send is done
    reduce:2   wait:2   sync:2=5   step            gradients of stage 2; the copies of stage 2 here and on rank 5
    unshard:2   reshard:2                          the parameters of stage 2
    ( send:F0.1>1 recv:B1.0<1 )                    one fused batch

A message is named by what *produced* it, on both sides, so the two ends of a message bear one name. Lines that begin
with ``#`` are comments. A message on another communicator than 0 ends in ``@`` and its number.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats.agree import require_dense
from pipesched.formats.order_words import Bad, read_word
from pipesched.formats.order_write import write, write_program
from pipesched.formats.rows import Rows, other_stage, place, rank_table
from pipesched.model.columns import Column
from pipesched.model.ops import Instruction
from pipesched.model.origin import Place
from pipesched.model.placement import Placement
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.source import Source, Span

__all__ = ["read", "write", "write_program"]

SHOWN = 20
"""So many bad words are reported; the rest of such a file is not read."""

_HEAD = re.compile(r"[ \t]*rank[ \t]+([0-9]{1,7})[ \t]*:")
_WORD = re.compile(r"[^ \t\r]+")


class WordOrigin:
    """Finds the word of an operation. Lines are cut into words only when somebody asks."""

    def __init__(self, source: Source, lines: list[int], start: list[int]) -> None:
        self._source = source
        self._lines = lines
        self._start = start
        self._ranks: dict[int, list[Span]] = {}

    def place(self, index: int) -> Place:
        rank = bisect_right(self._start, index) - 1
        if rank not in self._ranks:
            self._ranks[rank] = list(self._spans(self._lines[rank]))
        return Place(self._ranks[rank][index - self._start[rank]])

    def _spans(self, line: int) -> Iterator[Span]:
        for word in _words(self._source, line):
            at = word.start
            for part in word.text.split("+"):
                if part not in ("(", ")"):
                    yield word.source.span(at, at + len(part))
                at += len(part) + 1


@dataclass
class _Reader:
    """What was read so far, a line at a time."""

    source: Source
    lists: list[list[Instruction]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)

    def bad(self, span: Span, code: Code, message: str, help: str | None = None) -> None:
        where = f"line {span.line}"
        self.problems.append(Diagnostic(code, message, (Label(span, where),), (), help))

    def line(self, number: int) -> None:
        text = self.source.line(number).partition("#")[0]
        if not text.strip():
            return
        offset = self.source.line_starts[number - 1]
        head = _HEAD.match(text)
        span = self.source.span(offset, offset + (head.end() if head else len(text)))
        if head is None:
            self.bad(span, Code.CELL, "a line must begin with its rank", "write rank 0: F0.0 F0.1 B0.0 B0.1")
        elif int(head[1]) != len(self.lists):
            expected = f"rank {len(self.lists)} is expected here"
            self.bad(span, Code.CELL, f"rank {int(head[1])} is out of turn: {expected}", "list the ranks from 0 on")
        self.lines.append(number)
        self.lists.append(list(self.instructions(number)))

    def instructions(self, number: int) -> Iterator[Instruction]:
        """The instructions of a line; batches are numbered from 0 on each rank."""
        opened: Span | None = None
        batches = 0
        for word in _words(self.source, number):
            if word.text == "(" and opened is None:
                opened = word
            elif word.text == ")" and opened is not None:
                opened, batches = None, batches + 1
            elif word.text in ("(", ")"):
                self.bad(word, Code.CELL, f"{word.text!r} without its other half", "batches are ( … ), not nested")
            else:
                yield from self.word(word, -1 if opened is None else batches)
        if opened is not None:
            self.bad(opened, Code.CELL, "'(' without its other half", "a batch ends in ) on the same line")

    def word(self, span: Span, group: int) -> Iterator[Instruction]:
        found = read_word(span.text, group)
        if isinstance(found, Bad):
            self.bad(span, Code.OUT_OF_RANGE if found.beyond else Code.CELL, found.reason, found.help)
        else:
            yield from found


def _words(source: Source, line: int) -> Iterator[Span]:
    """The words of a line after its rank, without the comment."""
    text = source.line(line).partition("#")[0]
    head = _HEAD.match(text)
    offset = source.line_starts[line - 1]
    for word in _WORD.finditer(text, head.end() if head else len(text)):
        yield source.span(offset + word.start(), offset + word.end())


def read(source: Source) -> Schedule | Program:
    """The schedule, or the program where the file has more than computes. Its placement is inferred.

    Raises PipeschedError: PS801 words that are none, PS304 numbers beyond all bounds, PS104 a file without operations.
    Fragments are read too: a rank that a message names tells where the stage at its other end lives.
    """
    reader = _Reader(source)
    for number in range(1, len(source.line_starts) + 1):
        reader.line(number)
        if len(reader.problems) >= SHOWN:
            break
    if reader.problems:
        raise PipeschedError(reader.problems[:SHOWN])
    program = Program.from_instructions(reader.lists, Placement(np.zeros((0, 0)), np.zeros(0), 0))
    origin = WordOrigin(source, reader.lines, program.start.tolist())
    rows = Rows(program.op, program.stage, program.microbatch, program.second, program.start)
    placement = _placement(rows, program.peer, origin, source)
    name = PurePath(source.name).stem
    if rows.compute_only:
        return Schedule(name, {}, placement, rows.op, rows.stage, rows.microbatch, rows.second, rows.start, origin)
    columns = (program.op, program.stage, program.microbatch, program.peer, program.group, program.communicator)
    return Program(name, placement, *columns, program.second, program.start, origin)


def _placement(rows: Rows, peer: Column, origin: WordOrigin, source: Source) -> Placement:
    """From the rows, and where they are silent from the ranks that messages name."""
    if not len(rows.placed):
        nothing = "the file has no computes and no messages"
        raise fail(Code.EMPTY, nothing, Label(source.span(0, 0), "no stage runs here"))
    ranks = len(rows.start) - 1
    placed, message = rows.placed, np.flatnonzero(rows.messages)
    far = other_stage(rows.op[message], rows.stage[message])
    named = (peer[message] >= 0) & (peer[message] < ranks)
    stages = 1 + int(max(rows.stage.max(), far.max(initial=-1)))
    shape = stages, 1 + int(rows.microbatch.max())
    require_dense(rows, origin, shape)
    here = rows.stage[placed], rows.microbatch[placed], rows.rank[placed]
    there = far[named], rows.microbatch[message][named], peer[message][named]
    return place(rank_table(shape, [here, there]), ranks)
