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
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats.order_write import WORDS, write
from pipesched.formats.rows import (
    LARGEST,
    AnyOrder,
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
from pipesched.formats.words import Entry, Notation, TextOrigin
from pipesched.model.columns import NEIGHBOUR, Column, among
from pipesched.model.ops import RECEIVES, Op, overlap
from pipesched.model.placement import RANKS, Placement
from pipesched.support.source import Source

__all__ = ["read", "write"]


def read(source: Source, most_ranks: int = RANKS) -> AnyOrder:
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
    op, second, stage, microbatch, peer, communicator, group = np.concatenate(lines.ranks, axis=1)
    origin = TextOrigin(source, start, _INSTRUCTION, lines.reach.__getitem__)
    rows = Rows(op.astype(np.int8), stage, microbatch, second > 0, start, origin)
    return rows.order(source.name, _placement(rows, peer), peer, group, communicator)


def _placement(rows: Rows, peer: Column) -> Placement:
    """From the rows, and where they are silent from the ranks that messages name."""
    ranks = len(rows.start) - 1
    placed, message = rows.placed, np.flatnonzero(rows.messages)
    far = other_stage(rows.op[message], rows.stage[message])
    named = peer[message] < ranks
    shape = 1 + int(max(rows.stage.max(), far.max(initial=-1))), 1 + int(rows.microbatch.max())
    require_dense(rows, shape)
    here = rows.stage[placed], rows.microbatch[placed], rows.rank[placed]
    there = far[named], rows.microbatch[message][named], peer[message][named]
    return place(rank_table(shape, [here, there]), ranks)


# Words

HELP = "words are F0.1, F3.1+B2.0, send:F0.1>1, recv:F0.1<0, wait:F0.1, reduce:2, sync:2=5, step, unshard:2, reshard:2"


_FIELDS = {name: f"(?P<{name}>[0-9]+)" for name in ("stage", "microbatch", "peer")}
_FIELDS["made"] = _FIELDS["stage"]
_FIELDS["communicator"] = "(?:@(?P<communicator>[0-9]+))?"
_PATTERNS = {
    word.partition("{")[0]: (op, re.compile(word.replace(".", r"\.").format(**_FIELDS))) for op, word in WORDS.items()
}
"""The kind and the pattern of a word, by what it begins with."""

_BEGINNING = re.compile(r"(?:[a-z]+(?::[A-Z]?)?|[A-Z])?")
_GRADIENT_OF_I = re.compile(r"(send|recv|wait):I")


def read_word(text: str) -> list[tuple[Op, list[str]]] | Bad:
    """The entry of a word, or the two of an overlap pair; or why it has none."""
    entries: list[tuple[Op, list[str]]] = []
    first, plus, rest = text.partition("+")
    for part in (first, rest) if plus else (first,):
        found = _part(part)
        if isinstance(found, Bad):
            return Bad(f"{short(text)!r} is no operation: {found.reason}", found.help)
        entries.append(found)
    if plus and not overlap(entries[0][0], entries[1][0]):
        return Bad(f"{short(text)!r} is no overlap pair", "a pair is an F, then a B or an I, as in F3.1+B2.0")
    return entries


def _part(text: str) -> tuple[Op, list[str]] | Bad:
    """The kind of an instruction, and the fields that its word gives; "stage" is the one that made a message."""
    begins = _BEGINNING.match(text)
    op, pattern = _PATTERNS.get(begins[0] if begins else "", (None, None))
    match = None if pattern is None else pattern.fullmatch(text)
    if op is not None and match is not None:
        return op, [name for name, digits in match.groupdict().items() if digits is not None]
    if _GRADIENT_OF_I.match(text):
        return Bad("a gradient bears the letter B, whether B or I made it", "write send:B3.0>1")
    return Bad("it is not in the notation of orders", HELP)


def _meaning(shape: str) -> Sequence[Entry] | None:
    """The entries of a shape; none between blanks and for the brackets of a batch."""
    found = read_word(shape) if shape not in ("", *BRACKETS) else []
    return None if isinstance(found, Bad) else found


def _why(word: str) -> Bad:
    """Why a word is refused that stands where it does."""
    if word in BRACKETS:
        return Bad(f"{word!r} without its other half", "batches are ( … ), not nested")
    found = read_word(word)
    if isinstance(found, Bad):
        return found
    beyond = next((x for x in re.findall("[0-9]+", word) if number(x) > LARGEST), None)
    what = (
        f"{short(beyond)} is beyond the limit of {LARGEST:,}"
        if beyond
        else "stage 0 makes no gradient that anybody could receive"
    )
    return Bad(f"{short(word)!r} is no operation: {what}", HELP, beyond=beyond is not None)


# Lines


SHOWN = 20
"""So many bad words are reported; the rest of such a file is not read."""

BRACKETS = ("(", ")")
_DEFAULTS = {"stage": -1, "microbatch": -1, "peer": -1, "communicator": 0}

_HEAD = re.compile(r"[ \t]*rank[ \t]+([0-9]{1,7})[ \t]*:")
_INSTRUCTION = re.compile(r"[^ \t\r\n#+()]+")  # one of the two of an overlap pair, no bracket of a batch


@dataclass
class Lines:
    """The lines that were read so far.

    ranks: a row each of op, second, stage, microbatch, peer, communicator and group. reach: where the words of a rank
    begin and end.
    """

    source: Source
    most_ranks: int = RANKS
    ranks: list[Column] = field(default_factory=list)
    reach: list[tuple[int, int]] = field(default_factory=list)
    notation: Notation = field(default_factory=lambda: Notation(_DEFAULTS, _meaning))
    problems: list[Diagnostic] = field(default_factory=list)

    def read(self) -> None:
        """All lines, until too much is wrong."""
        for line in range(1, len(self.source.line_starts) + 1):
            self._line(line)
            if len(self.problems) >= SHOWN:
                return

    def _bad(self, begin: int, end: int, why: Bad) -> None:
        label = Label(self.source.span(begin, end), f"rank {len(self.ranks)}")
        self.problems.append(Diagnostic(why.code, why.reason, (label,), (), why.help))

    def _line(self, number: int) -> None:
        text, begin = self.source.line(number).partition("#")[0], self.source.line_starts[number - 1]
        if not text.strip():
            return
        head = _HEAD.match(text)
        if head is None:
            why = Bad("a line must begin with its rank", "write rank 0: F0.0 F0.1 B0.0 B0.1")
            self._bad(begin, begin + len(text), why)
            return
        if int(head[1]) != len(self.ranks):
            turn = f"rank {int(head[1])} is out of turn: rank {len(self.ranks)} is expected here"
            self._bad(begin, begin + head.end(), Bad(turn, "list every rank once, from 0 on"))
        self.reach.append((begin + head.end(), begin + len(text)))
        require_ranks(len(self.reach), self.most_ranks)
        self.ranks.append(self._words(text[head.end() :].replace("\t", " ").replace("\r", " ")))

    def _words(self, text: str) -> Column:
        """The columns of a line's words; batches are numbered from 0 on each rank."""
        found = self.notation.read(text, " ")
        op, stage = found.columns[0], found.columns[2]
        received = among(op, RECEIVES)
        stage -= received * NEIGHBOUR[op]  # the words name the stage that made what is received
        batches, odd, opened = _batches(found.shapes if "(" in text or ")" in text else ())
        wrong = {*found.bad.tolist(), *found.word[received & (stage < 0)].tolist(), *odd}
        if wrong or opened is not None:
            self._report(text, sorted(wrong), opened)
        begin, end = np.array([(-1, -1), *batches]).T
        batch = np.searchsorted(begin, found.word, side="right") - 1
        group = np.where(found.word < end[batch], batch - 1, -1)
        return np.concatenate([found.columns, group[None].astype(np.int32)])

    def _report(self, text: str, wrong: list[int], opened: int | None) -> None:
        """Words that are refused, by their number, and the bracket of a batch that does not end."""
        words = text.split(" ")
        starts = [*accumulate((len(word) + 1 for word in words), initial=self.reach[-1][0])]
        for i in wrong[:SHOWN]:
            self._bad(starts[i], starts[i] + len(words[i]), _why(words[i]))
        if opened is not None:
            why = Bad("'(' without its other half", "a batch ends in ) on the same line")
            self._bad(starts[opened], starts[opened] + 1, why)


def _batches(shapes: Sequence[bytes]) -> tuple[list[tuple[int, int]], list[int], int | None]:
    """The brackets of each batch of a line, those without their other half, and one that is never closed."""
    batches: list[tuple[int, int]] = []
    odd: list[int] = []
    opened: int | None = None
    for at, shape in enumerate(shapes):
        if shape == b"(" and opened is None:
            opened = at
        elif shape == b")" and opened is not None:
            batches.append((opened, at))
            opened = None
        elif shape in (b"(", b")"):
            odd.append(at)
    return batches, odd, opened
