"""The lines of an order, as columns; what is wrong in them, all at once.

A line of computes alone is read as a whole: its letters and its numbers are two strings. Any other line is read word
by word (`formats.order_words`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, fail
from pipesched.formats.order_words import Bad, read_word
from pipesched.formats.rows import require_ranks
from pipesched.model.columns import Column
from pipesched.model.ops import Instruction, Op
from pipesched.model.placement import RANKS
from pipesched.source import Source, Span

SHOWN = 20
"""So many bad words are reported; the rest of such a file is not read."""

COLUMNS = ("op", "stage", "microbatch", "peer", "group", "communicator", "second")

_HEAD = re.compile(r"[ \t]*rank[ \t]+([0-9]{1,7})[ \t]*:")
_WORD = re.compile(r"[^ \t\r]+")

_NUMBERS = r"[0-9]{1,7}\.[0-9]{1,7}"
_COMPUTES = re.compile(rf"[ \t]*(?:(?:F{_NUMBERS}\+[BI]{_NUMBERS}|[FIWB]{_NUMBERS})(?:[ \t]+|$))*")
_NO_NUMBERS = {ord(c): None for c in "0123456789. \t"}
_ONLY_NUMBERS = {ord(c): " " for c in "FIWB+."}


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
        for number in range(1, len(self.source.line_starts) + 1):
            self._line(number)
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
            message = f"the file has more than {self.most_words:,} words beside computes"
            help = "torch CSV and streams are read faster; --max-ops raises the limit"
            raise fail(Code.TOO_MANY_OPERATIONS, message, Label(span, "one too many"), help=help)
        found = read_word(text, group)
        if isinstance(found, Bad):
            self._bad(span, Code.OUT_OF_RANGE if found.beyond else Code.CELL, found.reason, found.help)
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
for _op in (Op.F, Op.I, Op.W, Op.B):
    _LETTERS[ord(_op.name)] = _op


def _columns(instructions: list[Instruction]) -> Column:
    rows = list(map(attrgetter(*COLUMNS), instructions))
    return np.array(rows, dtype=np.int32).reshape(-1, len(COLUMNS)).T
