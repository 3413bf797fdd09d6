"""torch's pipeline CSV: one row a rank, one cell an action, no header.

    compute_only     0F0,0F1,,0B0,0B1               empty cells are bubbles       -> Schedule
    compute_comms    0F0,0SEND_F0,0RECV_B0,0B0,…    what runs, so no empty cells  -> Program

The file says which of the two it is by what its cells hold. It names no placement: that is read off the rows.
Source: ``torch.distributed.pipelining.schedules``, `_Action.from_str` and `_load_csv`, all versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import PurePath

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats import numbered
from pipesched.formats.rows import Bad, Rows, disagreements, peers, place, require_ranks, short, table_of
from pipesched.formats.torch_cells import Columns, cells, read_cell, read_plain_row
from pipesched.formats.words import TextOrigin
from pipesched.model.columns import Column
from pipesched.model.ops import Op
from pipesched.model.placement import RANKS, Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import DEFAULT, TorchVersion
from pipesched.source import Source, Span

SHOWN = 20
"""So many bad cells are reported; the rest of such a file is not read."""

_OPERATION = re.compile(r"[0-9]+[A-Z_]+[0-9]*")
_NOTHING: Columns = (*np.zeros((3, 0), dtype=np.int32), np.zeros(0, dtype=np.bool_))


def read(
    source: Source,
    *,
    torch_version: TorchVersion | None = None,
    stages: int | None = None,
    microbatches: int | None = None,
    placement: Sequence[int] | None = None,
    most_ranks: int = RANKS,
) -> Schedule | Program:
    """The schedule or program of a file, with its placement inferred.

    stages, microbatches, placement (the rank of each stage): what the file must agree with, where given.
    Raises PipeschedError: PS801 cells that are no action of this torch, PS802 empty cells of a program and ranks
    without actions, PS304 numbers beyond all bounds or after a gap, PS803 a file that disagrees with what was given,
    PS104 a file that runs nothing, PS210 more ranks than `most_ranks`.
    """
    require_ranks(len(source.line_starts) - source.text.endswith("\n"), most_ranks)
    rows = _rows(source, torch_version or DEFAULT)
    origin = TextOrigin(source, rows.start, _OPERATION, partial(_reach, source))
    if not rows.compute_only:
        _require_no_bubbles(source)
    table = table_of(rows, origin)
    inferred = place(table, len(rows.start) - 1)
    problems = list(disagreements(rows, origin, inferred, stages, microbatches, placement))
    if problems:
        raise PipeschedError(problems)
    return _build(PurePath(source.name).stem, rows, table, inferred, origin)


def _reach(source: Source, rank: int) -> tuple[int, int]:
    """Where the row of a rank begins and ends."""
    begin = source.line_starts[rank]
    return begin, begin + len(source.line(rank + 1))


def _build(name: str, rows: Rows, table: Column, placement: Placement, origin: TextOrigin) -> Schedule | Program:
    if rows.compute_only:
        return Schedule(name, {}, placement, rows.op, rows.stage, rows.microbatch, rows.second, rows.start, origin)
    return Program(
        name,
        placement,
        rows.op,
        rows.stage,
        rows.microbatch,
        peers(rows, table),
        np.full(len(rows.op), -1, dtype=np.int32),
        np.zeros(len(rows.op), dtype=np.int32),
        rows.second,
        rows.start,
        origin,
    )


def _rows(source: Source, version: TorchVersion) -> Rows:
    """All rows as columns; every bad cell and every rank without actions is reported at once."""
    if source.text.startswith("\ufeff"):
        raise fail(
            Code.CELL,
            "the file begins with a byte order mark, which torch takes for a part of the first cell and refuses",
            Label(source.span(0, 1), "U+FEFF, invisible in most editors"),
            help="save the file as UTF-8 without a byte order mark",
        )
    if not source.text.strip():
        raise fail(Code.EMPTY, "the file is empty: it has no ranks", help="one row a rank, one cell an action")
    problems: list[Diagnostic] = []
    columns = [_row(source, line, version, problems) for line in _lines(source, problems)]
    if len(problems) >= SHOWN:
        problems[-1] = replace(problems[-1], notes=("the rest of the file was not read",))
    if problems:
        raise PipeschedError(problems)
    start = np.cumsum([0] + [len(c[0]) for c in columns], dtype=np.int64)
    op, stage, microbatch, second = (np.concatenate(c) for c in zip(*columns, strict=True))
    return Rows(op, stage, microbatch, second, start)


def _lines(source: Source, problems: list[Diagnostic]) -> Iterator[int]:
    """The numbers of the lines, until too much was wrong."""
    count = len(source.line_starts) - source.text.endswith("\n")
    for line in range(1, count + 1):
        if len(problems) >= SHOWN:
            return
        yield line


def _row(source: Source, line: int, version: TorchVersion, problems: list[Diagnostic]) -> Columns:
    columns = read_plain_row(source.line(line), version)
    if columns is None:
        problems += islice(_bad_cells(source, line, version), SHOWN - len(problems))
    elif len(columns[0]):
        return columns
    else:
        problems.append(_no_actions(source, line))
    return _NOTHING


def _bad_cells(source: Source, line: int, version: TorchVersion) -> Iterator[Diagnostic]:
    """The cells of a row that are refused, each with what torch makes of it."""
    offset = source.line_starts[line - 1]
    for number, cell in enumerate(cells(source.line(line)), 1):
        found = read_cell(cell.text, version) if cell.text else []
        if isinstance(found, Bad):
            span = source.span(offset + cell.start, offset + cell.end)
            message = f"{short(span.text)!r} is not an action: {found.reason}"
            yield Diagnostic(found.code, message, (Label(span, f"rank {line - 1}, cell {number}"),), (), found.help)


def _no_actions(source: Source, line: int) -> Diagnostic:
    row = source.line(line)
    what = "a blank line" if not row.strip(" \t") else "a row of empty cells"
    return Diagnostic(
        Code.EMPTY_CELL,
        f"rank {line - 1} has no actions: line {line} is {what}",
        (Label(source.span(*_reach(source, line - 1)), f"torch counts this line as rank {line - 1}"),),
        (),
        "delete the line, or give the rank its actions",
    )


def _require_no_bubbles(source: Source) -> None:
    """In a file with sends or receives an empty cell stops torch; rows are searched only if one is there at all."""
    problems = []
    for line, offset in enumerate(source.line_starts, 1):
        row = source.line(line)
        empty = next(((i, c) for i, c in enumerate(cells(row), 1) if not c.text), None) if _gap(row) else None
        if empty is not None and row:
            at = offset + min(empty[1].start, len(row) - 1)  # the comma that ends it, or the one before
            problems.append(_empty_cell(source.span(at, at + 1), line, empty[0]))
    if problems:
        raise PipeschedError(problems[:SHOWN])


def _gap(row: str) -> bool:
    """Whether a row may have an empty cell: a cheap test that errs on the side of yes."""
    return ",," in row or row.endswith((",", " ", "\t")) or row.startswith((",", " ", "\t")) or " " in row or '"' in row


def _empty_cell(span: Span, line: int, number: int) -> Diagnostic:
    return Diagnostic(
        Code.EMPTY_CELL,
        f"rank {line - 1}: cell {number} is empty, but the file has actions other than computes",
        (Label(span, "torch allows empty cells only in files of computes alone"),),
        (),
        "leave empty cells out: a program has no time steps",
    )


# Writing. An overlap pair is one cell, ``(3F0;3B1)OVERLAP_F_B``. There are no bubbles: torch needs none.


def pieces(order: Schedule | Program) -> Iterator[str]:
    """The rows, a rank at a time. SYNC and STEP are no actions of torch: who has them lowers them first."""
    for rank in range(order.ranks):
        here = slice(int(order.start[rank]), int(order.start[rank + 1]))
        op, microbatch = order.op[here], order.microbatch[here]
        kinds, kind = numbered.distinct(op, numbered.parts(op, order.second[here]), order.stage[here])
        number = np.where(microbatch >= 0, microbatch, -1)
        yield numbered.write([_cell(*row) for row in kinds], kind, number).removesuffix(",") + "\n"


def _cell(op: int, part: int, stage: int) -> tuple[str, str]:
    """What comes before and after the microbatch."""
    name = f"{stage}{Op(op).name}"
    if part == numbered.FIRST:
        return f"({name}", ";"
    return name, ")OVERLAP_F_B," if part == numbered.SECOND else ","
