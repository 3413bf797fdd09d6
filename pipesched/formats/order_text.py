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

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.formats.agree import require_dense
from pipesched.formats.order_lines import SHOWN, Lines, words
from pipesched.formats.order_write import write, write_program
from pipesched.formats.rows import Rows, other_stage, place, rank_table
from pipesched.model.columns import Column, Ints
from pipesched.model.origin import Place
from pipesched.model.placement import RANKS, Placement
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.source import Source, Span

__all__ = ["read", "write", "write_program"]


class WordOrigin:
    """Finds the word of an operation. Lines are cut into words only when somebody asks."""

    def __init__(self, source: Source, lines: list[int], start: Ints) -> None:
        self._source = source
        self._lines = lines
        self._start = start.tolist()
        self._ranks: dict[int, list[Span]] = {}

    def place(self, index: int) -> Place:
        rank = bisect_right(self._start, index) - 1
        if rank not in self._ranks:
            self._ranks[rank] = list(self._spans(self._lines[rank]))
        return Place(self._ranks[rank][index - self._start[rank]])

    def _spans(self, line: int) -> Iterator[Span]:
        for word in words(self._source, line):
            at = word.start
            for part in word.text.split("+"):
                if part not in ("(", ")"):
                    yield self._source.span(at, at + len(part))
                at += len(part) + 1


def read(source: Source, most_ranks: int = RANKS) -> Schedule | Program:
    """The schedule, or the program where the file has more than computes. Its placement is inferred.

    Raises PipeschedError: PS801 words that are none, PS304 numbers beyond all bounds, PS104 a file without operations.
    Fragments are read too: a rank that a message names tells where the stage at its other end lives.
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
