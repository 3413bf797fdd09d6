"""Reads orders as text: one line per rank, one word per operation, in the order in which they run.

    rank 0: F0.0 F0.1 I0.0 W0.0 F3.1+B2.0          F of stage 0, microbatch 0, …; "+" joins two parts of a slot

    send:F0.1>1   recv:F0.1<0                      the output of F0.1, to rank 1, from rank 0
    send:B3.0>1   recv:B3.0<1                      the gradient that stage 3 made (by its B or its I)
    wait:F0.1                                      waits until that send is done
    sendshape:F0.1>1   recvshape:F0.1<0            only the shape of that output
    reduce:2   wait:2   sync:2=5   step            gradients of stage 2; the copies of stage 2 here and on rank 5
    unshard:2   reshard:2                          the parameters of stage 2
    ( send:F0.1>1 recv:B1.0<1 )                    one fused batch: emit/v2/README.md has all words

A message is named by its *producer*, so its two ends have the same name. Lines that begin with ``#`` are comments. A
message on a communicator other than 0 ends in ``@`` and the number of the communicator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats.readers import require_ranks
from pipesched.model.columns import NEIGHBOUR, Column, among
from pipesched.model.ops import RECEIVES, Op, overlap
from pipesched.model.placement import RANKS, Placement
from pipesched.orders.implied import (
    READ,
    AnyOrder,
    Bad,
    Rows,
    number,
    place,
    rank_table,
    require_agreement,
    require_dense,
    rows_of,
    short,
)
from pipesched.orders.limits import LARGEST, other_stage
from pipesched.orders.order_write import WORDS
from pipesched.orders.words import Entry, Notation
from pipesched.support.source import Source


def read(source: Source, given: Mapping[str, object] | None = None, most_ranks: int = RANKS) -> AnyOrder:
    """Return a schedule, or a program if the file contains instructions other than compute operations. The placement is
    inferred.

    given (`rows.SIZES`): sizes with which the file must agree. Raises PipeschedError: PS801: a word is not an
    operation; PS304: a number is out of bounds; PS104: the file has no operations; PS803: it disagrees with given
    sizes; PS210: it has more ranks than `most_ranks`. A fragment of a program can be read too: the rank that a message
    names is the rank of the stage at its other end.
    """
    notation, columns, reach = Notation(_DEFAULTS, _meaning), list[Column](), list[tuple[int, int]]()
    problems, turn = list[Diagnostic](), 0
    for begin, text in _lines(source):
        rank, (end, turn, bad) = turn, _head(text, turn)
        if end:
            reach.append((begin + end, begin + len(text)))
            require_ranks(len(reach), most_ranks)
            made, wrong = _words(notation, text[end:].replace("\t", " ").replace("\r", " "))
            columns.append(made)
            bad += [(end + low, end + high, why) for low, high, why in wrong]
        for low, high, why in bad:
            label = Label(source.span(begin + low, begin + high), f"rank {rank}")
            problems.append(Diagnostic(why.code, why.reason, (label,), (), why.help))
        if len(problems) >= READ:
            break
    if problems:
        raise PipeschedError(problems[:READ])
    if not any(rank.shape[1] for rank in columns):
        raise fail(
            Code.EMPTY,
            "the file has no operations",
            Label(source.span(0, 0), "all ranks are empty"),
            help="write one line per rank, such as rank 0: F0.0 F0.1 B0.0 B0.1",
        )
    rows, (peer, communicator, group) = rows_of(source, columns, _INSTRUCTION, reach.__getitem__)
    order = rows.order(source.name, _placement(rows, peer), peer, group, communicator)
    require_agreement(source.name, order, given or {})
    return order


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the offset and the text of each line that is not empty, without its comment."""
    for at, begin in enumerate(source.line_starts, 1):
        text = source.line(at).partition("#")[0]
        if text.strip():
            yield begin, text


def _head(text: str, turn: int) -> tuple[int, int, list[tuple[int, int, Bad]]]:
    """Return the offset where a line's head ends, 0 without one; the rank of the next line; and errors in the head."""
    head = _HEAD.match(text)
    if head is None:
        missing = Bad("a line must begin with its rank", f"begin it with rank {turn}: and operations such as F0.0")
        return 0, turn + 1, [(0, len(text), missing)]
    rank, bad = int(head[1]), list[tuple[int, int, Bad]]()
    if rank != turn:
        wrong = f"rank {rank} is out of order: expected rank {turn}"
        bad = [(0, head.end(), Bad(wrong, "list every rank once, beginning with 0"))]
    return head.end(), rank + 1, bad


def _placement(rows: Rows, peer: Column) -> Placement:
    """Return the placement from the rows, completed by the ranks that messages name."""
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
_PATTERNS = [(op, re.compile(word.replace(".", r"\.").format(**_FIELDS))) for op, word in WORDS.items()]
_GRADIENT_OF_I = re.compile(r"(send|recv|wait):I")


def read_word(text: str) -> list[tuple[Op, list[str]]] | Bad:
    """Return the entry of a word, or both entries of an overlap pair; or the reason why the word is refused."""
    entries: list[tuple[Op, list[str]]] = []
    first, plus, rest = text.partition("+")
    for part in (first, rest) if plus else (first,):
        found = _part(part)
        if isinstance(found, Bad):
            return Bad(f"{short(text)!r} is not an operation: {found.reason}", found.help)
        entries.append(found)
    if plus and not overlap(entries[0][0], entries[1][0]):
        return Bad(f"{short(text)!r} is not an overlap pair", "a pair is an F, then a B or an I, as in F3.1+B2.0")
    return entries


def _part(text: str) -> tuple[Op, list[str]] | Bad:
    """Return the kind of an instruction and the fields in its word; "stage" is the producer of a message."""
    for op, pattern in _PATTERNS:
        if match := pattern.fullmatch(text):
            return op, [name for name, digits in match.groupdict().items() if digits is not None]
    if _GRADIENT_OF_I.match(text):
        return Bad("a gradient is written with the letter B, even if an I computed it", "write send:B3.0>1")
    return Bad("the order notation has no such word", HELP)


def _meaning(shape: str) -> Sequence[Entry] | None:
    """Return the entries of a shape, [] for spaces and the brackets of a batch; None if the word is refused."""
    found = read_word(shape) if shape not in ("", *BRACKETS) else []
    return None if isinstance(found, Bad) else found


def _why(word: str) -> Bad:
    """Return the reason why a word is refused in a file."""
    if word in BRACKETS:
        return Bad(f"{word!r} has no matching bracket", "a batch is ( … ) on one line, and batches cannot be nested")
    found = read_word(word)
    if isinstance(found, Bad):
        return found
    beyond = next((x for x in re.findall("[0-9]+", word) if number(x) > LARGEST), None)
    what = (
        f"{short(beyond)} is beyond the limit of {LARGEST:,}" if beyond else "no stage receives the gradient of stage 0"
    )
    return Bad(f"{short(word)!r} is not an operation: {what}", HELP, Code.OUT_OF_RANGE if beyond else Code.CELL)


# Lines


BRACKETS = ("(", ")")
_DEFAULTS = {"stage": -1, "microbatch": -1, "peer": -1, "communicator": 0}

_HEAD = re.compile(r"[ \t]*rank[ \t]+([0-9]{1,7})[ \t]*:")
_INSTRUCTION = re.compile(r"[^ \t\r\n#+()]+")  # a part of an overlap pair or a whole instruction, but no bracket


def _words(notation: Notation, text: str) -> tuple[Column, list[tuple[int, int, Bad]]]:
    """Return the columns of a line's words, and the refused words with their offsets; batches are numbered per rank."""
    found = notation.read(text, " ")
    op, stage = found.columns[0], found.columns[2]
    received = among(op, RECEIVES)
    stage -= received * NEIGHBOUR[op]  # the word names the stage that made the received message
    batches, odd = _batches(found.shapes if "(" in text or ")" in text else ())
    wrong = sorted({*found.bad.tolist(), *found.word[received & (stage < 0)].tolist(), *odd})
    words = text.split(" ") if wrong else []
    ends = [*accumulate((len(word) + 1 for word in words), initial=0)]
    begin, end = np.array([(-1, -1), *batches]).T
    batch = np.searchsorted(begin, found.word, side="right") - 1
    group = np.where(found.word < end[batch], batch - 1, -1).astype(np.int32)
    bad = [(ends[i], ends[i] + len(words[i]), _why(words[i])) for i in wrong[:READ]]
    return np.concatenate([found.columns, group[None]]), bad


def _batches(shapes: Sequence[bytes]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the pairs of brackets of a line's batches, and the brackets without a partner."""
    batches: list[tuple[int, int]] = []
    odd: list[int] = []
    opened: int | None = None
    for at, shape in enumerate(shapes):
        if shape not in (b"(", b")"):
            continue
        if (shape == b"(") != (opened is None):
            odd.append(at)
        elif opened is None:
            opened = at
        else:
            batches.append((opened, at))
            opened = None
    return batches, odd if opened is None else [*odd, opened]
