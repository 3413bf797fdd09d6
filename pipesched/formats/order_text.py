"""Orders as people write them: one line a rank, one word an operation, in the order in which they run.

    rank 0: F0.0 F0.1 I0.0 W0.0 F3.1+B2.0          F of stage 0, microbatch 0, …; "+" is one slot with two parts

    send:F0.1>1   recv:F0.1<0                      the output of F0.1, to rank 1, from rank 0
    send:B3.0>1   recv:B3.0<1                      the gradient that stage 3 made (by its B or its I)
    wait:F0.1                                      until that send is done
    sendshape:F0.1>1   recvshape:F0.1<0            the shape alone of that output
    reduce:2   wait:2   sync:2=5   step            gradients of stage 2; the copies of stage 2 here and on rank 5
    unshard:2   reshard:2                          the parameters of stage 2
    ( send:F0.1>1 recv:B1.0<1 )                    one fused batch: emit/v2/README.md has all words

A message is named by what *produced* it, on both sides, so the two ends of a message bear one name. Lines that begin
with ``#`` are comments. A message on another communicator than 0 ends in ``@`` and its number.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import PurePath

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats.order_write import WORDS, write
from pipesched.formats.rows import (
    LARGEST,
    Bad,
    Rows,
    number,
    other_stage,
    place,
    rank_table,
    require_dense,
    require_ranks,
    short,
)
from pipesched.model.columns import Column, Ints
from pipesched.model.lists import Place
from pipesched.model.ops import COMPUTES, KIND, LETTERS, Instruction, overlap
from pipesched.model.placement import RANKS, Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.source import Source, Span

__all__ = ["read", "write"]


class WordOrigin:
    """Finds the word of an operation. Lines are cut into words only when somebody asks."""

    def __init__(self, source: Source, lines: list[int], start: Ints) -> None:
        self._source = source
        self._lines = lines
        self._start = start.tolist()
        self._ranks: dict[int, Ints] = {}

    def place(self, index: int) -> Place:
        rank = bisect_right(self._start, index) - 1
        if rank not in self._ranks:
            self._ranks[rank] = self._starts(self._lines[rank])
        start = int(self._ranks[rank][index - self._start[rank]])
        part = _PART.match(self._source.text, start)
        return Place(self._source.span(start, part.end() if part else start), self._source.made_at.get(start, ""))

    def _starts(self, line: int) -> Ints:
        """Where the instructions of a line begin."""
        text = uncommented(self._source, line)
        head = _HEAD.match(text)
        offset = self._source.line_starts[line - 1]
        found = _PART.finditer(text, head.end() if head else len(text))
        return np.fromiter((offset + part.start() for part in found), dtype=np.int64)


def read(source: Source, most_ranks: int = RANKS) -> Schedule | Program:
    """The schedule, or the program where the file has more than computes. Its placement is inferred.

    Raises PipeschedError: PS801 words that are not operations, PS304 numbers beyond all bounds, PS104 a file
    without operations.
    Fragments are read too: a rank that a message names is that of the stage at its other end.
    """
    lines = Lines(source, most_ranks)
    lines.read()
    if lines.problems:
        raise PipeschedError(lines.problems[:SHOWN])
    if not any(rank.shape[1] for rank in lines.ranks):
        raise fail(
            Code.EMPTY,
            "the file has no operations",
            Label(source.span(0, 0), "no rank does anything"),
            help="write a line a rank, as in rank 0: F0.0 F0.1 B0.0 B0.1",
        )
    start = np.cumsum([0] + [rank.shape[1] for rank in lines.ranks], dtype=np.int64)
    op, stage, microbatch, peer, group, communicator, second = np.concatenate(lines.ranks, axis=1)
    origin = WordOrigin(source, lines.lines, start)
    rows = Rows(op.astype(np.int8), stage, microbatch, second.astype(np.bool_), start)
    placement = _placement(rows, peer, origin)
    name = PurePath(source.name).stem
    if rows.compute_only:
        return Schedule(name, {}, placement, rows.op, stage, microbatch, rows.second, start, origin)
    return Program(name, placement, rows.op, stage, microbatch, peer, group, communicator, rows.second, start, origin)


def _placement(rows: Rows, peer: Column, origin: WordOrigin) -> Placement:
    """From the rows, and where they are silent from the ranks that messages name."""
    ranks = len(rows.start) - 1
    placed, message = rows.placed, np.flatnonzero(rows.messages)
    far = other_stage(rows.op[message], rows.stage[message])
    named = peer[message] < ranks
    stages = 1 + int(max(rows.stage.max(), far.max(initial=-1)))
    shape = stages, 1 + int(rows.microbatch.max())
    require_dense(rows, origin, shape)
    here = rows.stage[placed], rows.microbatch[placed], rows.rank[placed]
    there = far[named], rows.microbatch[message][named], peer[message][named]
    return place(rank_table(shape, [here, there]), ranks)


# Words

HELP = "words are F0.1, F3.1+B2.0, send:F0.1>1, recv:F0.1<0, wait:F0.1, reduce:2, sync:2=5, step, unshard:2, reshard:2"


_FIELDS = {name: f"(?P<{name}>[0-9]+)" for name in ("stage", "made", "microbatch", "peer")}
_FIELDS["communicator"] = "(?:@(?P<communicator>[0-9]+))?"
_PATTERNS = {
    word.partition("{")[0]: (op, re.compile(word.replace(".", r"\.").format(**_FIELDS))) for op, word in WORDS.items()
}
"""The kind and the pattern of a word, by what it begins with."""

_BEGINNING = re.compile(r"(?:[a-z]+(?::[A-Z]?)?|[A-Z])?")
_WIDE = re.compile(f"[0-9]{{{len(str(LARGEST))},}}")
_GRADIENT_OF_I = re.compile(r"(send|recv|wait):I")


def read_word(text: str, group: int) -> tuple[Instruction, ...] | Bad:
    """The instruction of a word, or the two of an overlap pair, in the batch `group` (-1: none)."""
    first, plus, rest = text.partition("+")
    if not plus and group < 0:
        alone = _one(first)
        return (alone,) if isinstance(alone, Instruction) else _no_operation(text, alone)
    instructions = []
    for part, second in ((first, False), (rest, True)) if plus else ((first, False),):
        found = _one(part)
        if isinstance(found, Bad):
            return _no_operation(text, found)
        instructions.append((found, second))
    if plus and not overlap(instructions[0][0].op, instructions[1][0].op):
        return Bad(f"{short(text)!r} is no overlap pair", "a pair is an F, then a B or an I, as in F3.1+B2.0")
    return tuple(
        Instruction(x.op, x.stage, x.microbatch, x.peer, group, x.communicator, second) for x, second in instructions
    )


def _no_operation(text: str, why: Bad) -> Bad:
    return Bad(f"{short(text)!r} is no operation: {why.reason}", why.help, why.beyond)


def _one(text: str) -> Instruction | Bad:
    begins = _BEGINNING.match(text)
    op, pattern = _PATTERNS.get(begins[0] if begins else "", (None, None))
    match = None if pattern is None else pattern.fullmatch(text)
    if op is None or match is None:
        if _GRADIENT_OF_I.match(text):
            return Bad("a gradient bears the letter B, whether B or I made it", "write send:B3.0>1")
        return Bad("it is not in the notation of orders", HELP)
    beyond = next((x for x in _WIDE.findall(text) if number(x) > LARGEST), None)
    if beyond is not None:
        return Bad(f"{short(beyond)} is beyond the limit of {LARGEST:,}", HELP, beyond=True)
    found = {name: number(digits) for name, digits in match.groupdict().items() if digits is not None}
    stage = found["made"] - op.kind.of * op.receive if "made" in found else found.get("stage", -1)
    if op.receive and stage < 0:
        return Bad("stage 0 makes no gradient that anybody could receive", HELP)
    microbatch, peer = found.get("microbatch", -1), found.get("peer", -1)
    return Instruction(op, stage, microbatch, peer, communicator=found.get("communicator", 0))


# Lines. One of computes alone is read as a whole: its letters and its numbers are two strings. Any other is read word
# by word.


SHOWN = 20
"""So many bad words are reported; the rest of such a file is not read."""

COLUMNS = ("op", "stage", "microbatch", "peer", "group", "communicator", "second")

_HEAD = re.compile(r"[ \t]*rank[ \t]+([0-9]{1,7})[ \t]*:")
_WORD = re.compile(r"[^ \t\r]+")
_PART = re.compile(r"[^ \t\r\n#+()]+")  # an instruction: one of the two of an overlap pair, no bracket of a batch

_NUMBERS = r"[0-9]{1,7}\.[0-9]{1,7}"
_COMPUTES = re.compile(rf"[ \t]*(?:(?:F{_NUMBERS}\+[BI]{_NUMBERS}|{KIND}{_NUMBERS})(?:[ \t]+|$))*")
_NO_NUMBERS = {ord(c): None for c in "0123456789. \t"}
_ONLY_NUMBERS = {ord(c): " " for c in f"{LETTERS}+."}


@dataclass
class Lines:
    """What was read so far.

    ranks: an array a rank, shape (len(COLUMNS), instructions). lines: the line of each rank. slow: words that were read
    one by one.
    """

    source: Source
    most_ranks: int = RANKS
    ranks: list[Column] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    slow: int = 0
    problems: list[Diagnostic] = field(default_factory=list)

    @property
    def most_words(self) -> int:
        """Words that are read one by one: as many as there may be ranks, thirty times."""
        return 30 * self.most_ranks

    def read(self) -> None:
        """All lines, until too much is wrong."""
        for line in range(1, len(self.source.line_starts) + 1):
            self._line(line)
            if len(self.problems) >= SHOWN:
                return

    def _bad(self, span: Span, code: Code, message: str, help: str | None = None) -> None:
        self.problems.append(Diagnostic(code, message, (Label(span, f"rank {len(self.ranks)}"),), (), help))

    def _line(self, number: int) -> None:
        text = uncommented(self.source, number)
        if not text.strip():
            return
        offset = self.source.line_starts[number - 1]
        head = _HEAD.match(text)
        span = self.source.span(offset, offset + (head.end() if head else len(text)))
        if head is None:
            self._bad(span, Code.CELL, "a line must begin with its rank", "write rank 0: F0.0 F0.1 B0.0 B0.1")
            return
        if int(head[1]) != len(self.ranks):
            turn = f"rank {int(head[1])} is out of turn: rank {len(self.ranks)} is expected here"
            self._bad(span, Code.CELL, turn, "list every rank once, from 0 on")
        self.lines.append(number)
        require_ranks(len(self.lines), self.most_ranks)
        plain = _COMPUTES.fullmatch(text, head.end())
        self.ranks.append(_computes(text[head.end() :]) if plain else _columns(list(self._words(number))))

    def _words(self, number: int) -> Iterator[Instruction]:
        """The instructions of a line; batches are numbered from 0 on each rank."""
        opened: Span | None = None
        batches = 0
        for word in words(self.source, number):
            text = word.text
            if len(self.problems) >= SHOWN:
                return
            if text == "(" and opened is None:
                opened = word
            elif text == ")" and opened is not None:
                opened, batches = None, batches + 1
            elif text in ("(", ")"):
                self._bad(word, Code.CELL, f"{text!r} without its other half", "batches are ( … ), not nested")
            else:
                yield from self._word(word, text, -1 if opened is None else batches)
        if opened is not None:
            self._bad(opened, Code.CELL, "'(' without its other half", "a batch ends in ) on the same line")

    def _word(self, span: Span, text: str, group: int) -> Sequence[Instruction]:
        self.slow += 1
        if self.slow > self.most_words:
            message = f"the file has more than {self.most_words:,} words that are not computes"
            help = "torch CSV and streams are read faster; --max-ops raises the limit"
            raise fail(Code.TOO_MANY_OPERATIONS, message, Label(span, "one too many"), help=help)
        found = read_word(text, group)
        if isinstance(found, Bad):
            self._bad(span, found.code, found.reason, found.help)
            return ()
        return found


def uncommented(source: Source, line: int) -> str:
    return source.line(line).partition("#")[0]


def words(source: Source, line: int) -> Iterator[Span]:
    """The words of a line after its rank, without the comment."""
    text = uncommented(source, line)
    head = _HEAD.match(text)
    offset = source.line_starts[line - 1]
    for word in _WORD.finditer(text, head.end() if head else len(text)):
        yield source.span(offset + word.start(), offset + word.end())


def _computes(text: str) -> Column:
    """A line of nothing but computes, whose words are right."""
    letters = text.translate(_NO_NUMBERS).encode()
    marks = np.frombuffer(letters, dtype=np.uint8)
    letter = np.flatnonzero(marks != ord("+"))
    numbers = np.array(text.translate(_ONLY_NUMBERS).split(), dtype=np.int32).reshape(-1, 2)
    columns = np.full((len(COLUMNS), len(letter)), -1, dtype=np.int32)
    columns[0] = _LETTERS[marks[letter]]
    columns[1:3] = numbers.T
    columns[5] = 0
    columns[6] = (letter > 0) & (marks[letter - 1] == ord("+")) if len(letter) else 0
    return columns


_LETTERS = np.full(256, -1, dtype=np.int32)
for _op in COMPUTES:
    _LETTERS[ord(_op.name)] = _op


def _columns(instructions: list[Instruction]) -> Column:
    rows = list(map(attrgetter(*COLUMNS), instructions))
    return np.array(rows, dtype=np.int32).reshape(-1, len(COLUMNS)).T
