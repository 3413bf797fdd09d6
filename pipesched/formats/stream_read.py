"""A stream as a program (``emit/README.md``), read strictly: what is not version 1, to the letter, is refused.

laid out as we write it     columns, written again and compared with the text: equal, so right
anything else               is held against the contract, an object an instruction (`stream_strict`)
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.formats import stream_strict, stream_write
from pipesched.formats.rows import LARGEST
from pipesched.formats.stream_strict import end_of, items_of, place_of
from pipesched.model.columns import Column, Ints
from pipesched.model.lists import Place
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.program import Program
from pipesched.source import Source
from pipesched.stream import FIELDS, Route, header

_OPS = {op.name: op for op in Op if op.name in FIELDS}


def read(source: Source, given: Mapping[str, int] | None = None) -> tuple[Program, dict[str, int]]:
    """The program of a stream, and its parameters.

    given: parameters that the file must agree with; p and m always can be.
    Raises PipeschedError: PS811 what is no stream, PS812 another version, PS813 a fingerprint of something else,
    PS304 numbers beyond all bounds, PS803 a file that disagrees with what was given.
    """
    found = _as_written(source)
    if found is None:
        stream_strict.require_right(source)
        found = _columns(source)
    assert found is not None
    program, parameters = found
    here = {**parameters, "p": program.ranks, "m": program.placement.microbatches}
    for name, value in (given or {}).items():
        if here.get(name) != value:
            what = f"has {name} = {here[name]}" if name in here else f"has no parameter {name}"
            help = "a stream is of one size: emit it again for another"
            raise fail(Code.FILE_DISAGREES, f"{source.name} {what}, but {name} = {value} was given", help=help)
    return program, parameters


class LineOrigin:
    """Finds the text of an instruction, or of the part of an overlap pair, when somebody asks."""

    def __init__(self, source: Source, start: Ints) -> None:
        self._source = source
        self._start = start.tolist()
        self._ranks: dict[int, list[tuple[int, int]]] = {}

    def place(self, index: int) -> Place:
        rank = bisect_right(self._start, index) - 1
        if rank not in self._ranks:
            self._ranks[rank] = list(self._spans(rank))
        return Place(self._source.span(*self._ranks[rank][index - self._start[rank]]))

    def _spans(self, rank: int) -> Iterator[tuple[int, int]]:
        text = self._source.text
        for begin in items_of(text, place_of(text, f"ranks[{rank}]")[0]):
            end = end_of(text, begin)
            inside = text[begin:end]
            parts = begin + place_of(inside, "parts")[0] if '"parts"' in inside else begin
            if parts == begin:
                yield begin, end
            else:
                yield from ((at, end_of(text, at)) for at in items_of(text, parts))


def _as_written(source: Source) -> tuple[Program, dict[str, int]] | None:
    """The program of a text laid out as we write it, with its parameters, or None."""
    found = _columns(source)
    return found if found is not None and _same(source.text, *found) else None


def _columns(source: Source) -> tuple[Program, dict[str, int]] | None:
    """The program of a text as far as JSON and numpy look at it, with its parameters, or None."""
    try:
        data = json.loads(source.text)
        name, parameters, routes = header(data)
        ranks = [np.array([*_entries(rank)], dtype=np.int32).reshape(-1, 5).T for rank in data["ranks"]]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    possible = all(max(*route.ranks, *route.microbatches) <= LARGEST for route in routes)
    if not possible or stream_strict.uneven(routes) is not None:
        return None
    if stream_strict.sparse(routes, sum(rank.shape[1] for rank in ranks)):
        return None
    return _program(source, name, routes, ranks), parameters


def _entries(rank: list[dict[str, Any]]) -> Iterator[tuple[int, int, int, int, bool]]:
    """op, stage, microbatch, peer and second of every instruction."""
    for instruction in rank:
        for number, x in enumerate(instruction.get("parts", (instruction,))):
            yield _OPS[x["op"]], x.get("stage", -1), x.get("microbatch", -1), x.get("peer", -1), number > 0


def _same(text: str, program: Program, parameters: Mapping[str, int]) -> bool:
    """Whether the program, written again, is the text, fingerprint included."""
    placement = program.placement
    inside = (program.microbatch < placement.microbatches) & (program.stage < placement.stages)
    if not bool(np.all(inside & (program.peer < program.ranks))) or int(placement.rank_of.max()) >= program.ranks:
        return False
    at = 0
    for piece in stream_write.pieces(program, parameters):
        if not text.startswith(piece, at):
            return False
        at += len(piece)
    return at == len(text)


def _program(source: Source, name: str, routes: tuple[Route, ...], ranks: list[Column]) -> Program:
    rank_of = np.array([route.ranks for route in routes], dtype=np.int32)
    names = tuple(route.name for route in routes)
    placement = Placement(rank_of, stream_strict.route_of(routes), len(ranks), names)
    start = np.cumsum([0] + [rank.shape[1] for rank in ranks], dtype=np.int64)
    columns = np.concatenate([np.zeros((5, 0), np.int32), *ranks], axis=1)
    op, stage, microbatch, peer = (row.astype(np.int32) for row in columns[:4])
    none, first = np.broadcast_to(np.int32(-1), len(op)), np.broadcast_to(np.int32(0), len(op))
    second = columns[4].astype(np.bool_)
    origin = LineOrigin(source, start)
    return Program(name, placement, op.astype(np.int8), stage, microbatch, peer, none, first, second, start, origin)
