"""torch's pipeline CSV: one row per rank, one cell per action, no header.

    compute_only     0F0,0F1,,0B0,0B1               empty cells are bubbles           -> Schedule
    compute_comms    0F0,0SEND_F0,0RECV_B0,0B0,…    instructions, so no empty cells   -> Program

    cell  = STAGE TYPE [MICROBATCH]  |  "(" STAGE "F" MICROBATCH ";" STAGE ("B" | "I") MICROBATCH ")" "OVERLAP_F_B"

The cells show which kind of file it is. The file contains no placement; it is inferred from the rows. Source:
``torch.distributed.pipelining.schedules``, `_Action.from_str` and `_load_csv`, all versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.extension import explained
from pipesched.formats import numbered
from pipesched.formats.readers import require_ranks
from pipesched.model.columns import Column
from pipesched.model.ops import Compute, Instruction, Op
from pipesched.model.placement import RANKS
from pipesched.model.torch_versions import ACTIONS, DEFAULT, TorchVersion, first_with
from pipesched.orders.implied import READ, AnyOrder, Bad, Rows, implied, number, rows_of, short
from pipesched.orders.limits import LARGEST
from pipesched.orders.words import Entry, Notation
from pipesched.support.source import Source

WITHOUT_MICROBATCH = frozenset({Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.UNSHARD, Op.RESHARD})

SHAPE = "a cell is STAGE TYPE MICROBATCH, as in 0F3, 2SEND_B0, 1UNSHARD or (3F0;3B1)OVERLAP_F_B"

_BLANKS = " \t"
_FIELDS = ("stage", "microbatch")
_CELL = re.compile(r'(?:^|,)(?:"([^"]*)"[ \t]*(?=,|\Z)|([^,]*))')
PLAIN = re.compile(rf"([0-9]+)({'|'.join(op.name for op in sorted(ACTIONS))})([0-9]*)")
OVERLAP = re.compile(r"\([ \t]*([0-9]+F[0-9]+)[ \t]*;[ \t]*([0-9]+[BI][0-9]+)[ \t]*\)OVERLAP_F_B")

Operation = tuple[Op, int, int]
"""An operation of a cell: op, stage, microbatch or -1."""

_OPERATION = re.compile(r"[0-9]+[A-Z_]+[0-9]*")


def read(
    source: Source,
    *,
    given: Mapping[str, object] | None = None,
    torch_version: TorchVersion | None = None,
    placement: Sequence[int] | None = None,
    most_ranks: int = RANKS,
) -> AnyOrder:
    """Return the schedule or program of a file, with its placement inferred.

    given (`rows.SIZES`), placement (the rank of each stage): the file must agree with them. Raises PipeschedError:
    PS801: a cell is not an action of this torch version; PS802: a program has an empty cell, or a rank has no actions;
    PS304: a number is out of bounds or follows a gap; PS803: the file disagrees with `given` or `placement`; PS104: the
    file has no actions; PS210: it has more ranks than `most_ranks`.
    """
    count = len(source.line_starts) - source.text.endswith("\n")
    require_ranks(count, most_ranks)
    rows, bubbles = _rows(source, count, torch_version or DEFAULT)
    if bubbles and not rows.compute_only:
        raise PipeschedError(_empty_cell(source, *bubble) for bubble in bubbles[:READ])
    return implied(rows, source.name, given or {}, placement)


def _reach(source: Source, rank: int) -> tuple[int, int]:
    """Return the beginning and the end of a rank's row."""
    begin = source.line_starts[rank]
    return begin, begin + len(source.line(rank + 1))


def _rows(source: Source, count: int, version: TorchVersion) -> tuple[Rows, list[tuple[int, int]]]:
    """Return all rows as columns, and (rank, cell) of the first empty cell of each row that has one.

    Raises:
        PipeschedError: the findings on every bad cell and every rank without actions, up to READ.
    """
    _require_text(source)
    problems: list[Diagnostic] = []
    bubbles: list[tuple[int, int]] = []
    columns: list[Column] = []
    known = notation(version)
    for rank in range(count):
        words = known.read(source.line(rank + 1), ",")
        columns.append(words.columns)
        if len(words.bad):
            problems += islice(_bad_cells(source, rank, version), READ - len(problems))
        elif not words.columns.size:
            problems.append(_no_actions(source, rank))
        bubbles += [(rank, cell) for cell in words.silent[:1].tolist()]
        if len(problems) >= READ:
            problems[-1] = replace(problems[-1], notes=("the rest of the file was not read",))
            break
    if problems:
        raise PipeschedError(problems)
    return rows_of(source, columns, _OPERATION, partial(_reach, source))[0], bubbles


def _require_text(source: Source) -> None:
    if source.text.startswith("\ufeff"):
        raise fail(
            Code.CELL,
            "the file begins with a byte order mark; torch reads it as part of the first cell and refuses the file",
            Label(source.span(0, 1), "U+FEFF, invisible in most editors"),
            help="save the file as UTF-8 without a byte order mark"
            + ("" if "," in source.text else ", with commas between the cells"),
        )
    if not source.text.strip():
        raise fail(
            Code.EMPTY, "the file is empty: it has no ranks", help="write one row per rank and one cell per action"
        )


def _bad_cells(source: Source, rank: int, version: TorchVersion) -> Iterator[Diagnostic]:
    """Yield a finding on each refused cell of a row, with the action that torch reads."""
    offset, end = _reach(source, rank)
    for place, (start, cell) in enumerate(cells(source.text[offset:end]), 1):
        found = read_cell(cell, version) if cell else []
        if isinstance(found, Bad):
            span = source.span(offset + start, offset + start + len(cell))
            message = f"{short(span.text)!r} is not an action: {found.reason}"
            last = offset + start + len(cell) == len(source.text) and re.fullmatch(r"\d+[A-Z_]*", cell)
            cut = ("the file ends inside this row, without a line end: it may be cut off",) if last else ()
            bad = Diagnostic(found.code, message, (Label(span, f"rank {rank}, cell {place}"),), cut, found.help)
            yield from explained("cell", [bad], cell, version)


def _no_actions(source: Source, rank: int) -> Diagnostic:
    line = source.span(*_reach(source, rank))
    what = "a row of empty cells" if line.text.strip(" \t") else "a blank line"
    return Diagnostic(
        Code.EMPTY_CELL,
        f"rank {rank} has no actions: line {rank + 1} is {what}",
        (Label(line, f"torch counts this line as rank {rank}"),),
        (),
        "delete the line, or give the rank its actions",
    )


def _empty_cell(source: Source, rank: int, number: int) -> Diagnostic:
    """Return the finding on an empty cell, which stops torch in a file with sends or receives."""
    offset, end = _reach(source, rank)
    start, _ = next(islice(cells(source.text[offset:end]), number, None))
    at = min(offset + start, end - 1)  # the comma that ends it, or the comma before
    return Diagnostic(
        Code.EMPTY_CELL,
        f"rank {rank}: cell {number + 1} is empty, but the file has actions other than compute operations",
        (Label(source.span(at, at + 1), "torch allows empty cells only in files of compute operations"),),
        (),
        "remove empty cells, since a program has no time steps",
    )


# Cells. torch reads an action at the *beginning* of a cell and ignores the rest, so ``0F0x``, ``0F0 0F1`` and
# ``0F0;0F1`` all run as 0F0 there. Here the whole cell must be an action.


def cells(row: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and text of each cell of a row, without spaces and quotes; empty for an empty cell."""
    for found in _CELL.finditer(row):
        text = found[found.lastindex or 0]
        yield found.start(found.lastindex or 0) + len(text) - len(text.lstrip(_BLANKS)), text.strip(_BLANKS)


def read_cell(text: str, version: TorchVersion) -> list[Operation] | Bad:
    """Return the one or two operations of a cell, or the reason why it is refused."""
    pair = OVERLAP.fullmatch(text)
    entries = []
    for part in (pair[1], pair[2]) if pair else (text,):
        match = PLAIN.fullmatch(part)
        if match is None:
            return Bad("torch has no such action", SHAPE)
        if (op := Op[match[2]]) not in version.accepts:
            since = f"WAIT_* actions came with torch {first_with(op)}: name that version, or omit them"
            return Bad(f"torch {version} has no {op.name}", since)
        entry = _entry(match)
        if isinstance(entry, Bad):
            return entry
        entries.append(entry)
    return entries


def _entry(match: re.Match[str]) -> Operation | Bad:
    """Return the operation of a plain cell, or the reason why its numbers do not suit its kind."""
    op = Op[match[2]]
    if (match[3] == "") != (op in WITHOUT_MICROBATCH):
        if match[3]:
            return Bad(f"{op.name} applies to a whole stage, and torch ignores the microbatch {match[3][:20]}", SHAPE)
        return Bad(f"{op.name} needs a microbatch, although torch accepts it without one", SHAPE)
    for what, digits in (("stage", match[1]), ("microbatch", match[3])):
        if number(digits) > LARGEST:
            beyond = f"{what} {short(digits.lstrip('0'))} is beyond the limit of {LARGEST:,}"
            return Bad(beyond, SHAPE, Code.OUT_OF_RANGE)
    return op, number(match[1]), number(match[3]) if match[3] else -1


def notation(version: TorchVersion) -> Notation:
    """Return the notation of a row, with cells as words."""

    def meaning(shape: str) -> list[Entry] | None:
        ((_, cell),) = cells(shape)
        found = read_cell(cell, version) if cell else []
        if isinstance(found, Bad):
            return None
        return [(op, _FIELDS[: 1 + (microbatch >= 0)]) for op, _, microbatch in found]

    return Notation(dict.fromkeys(_FIELDS, -1), meaning)


# Writing. An overlap pair is one cell, ``(3F0;3B1)OVERLAP_F_B``. There are no bubbles: torch needs none.


def pieces(order: AnyOrder) -> Iterator[str]:
    """Yield the rows, rank by rank. A program with SYNC or STEP, which torch lacks, must be lowered first."""
    for begin, end in pairwise(order.start.tolist()):
        op, stage, microbatch, second = (x[begin:end] for x in (order.op, order.stage, order.microbatch, order.second))
        part = numbered.parts(op, second)
        first, kind = numbered.distinct(op, part, stage, microbatch >= 0)
        texts = [_cell(order[begin + i], int(part[i])) for i in first]
        yield numbered.write(texts, kind, microbatch).removesuffix(",") + "\n"


def _cell(x: Compute | Instruction, part: int) -> str:
    """Return the text of one cell, with ``%d`` for the microbatch."""
    name = f"{x.stage}{x.op.name}" + "%d" * (x.microbatch >= 0)
    if part == numbered.FIRST:
        return f"({name};"
    return f"{name})OVERLAP_F_B," if part == numbered.SECOND else f"{name},"
