"""A stream as a program (``emit/README.md``), read strictly: what is not version 2, to the letter, is refused.

laid out as we write it     columns, written again and compared with the text: equal, so right
anything else               is held against the contract, an object an instruction (`stream_strict`)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipesched.diagnostics import Code, PipeschedError, budgeted, fail
from pipesched.formats import stream_strict, stream_write
from pipesched.formats.rows import LARGEST, other_stage
from pipesched.formats.stream_strict import end_of, items_of, place_of
from pipesched.model.columns import Column, Ints, among
from pipesched.model.lists import Nowhere, Place
from pipesched.model.ops import SAME, Op
from pipesched.model.placement import RANKS, Placement
from pipesched.model.schedule import Program
from pipesched.source import Source
from pipesched.stream import BATCH, DEFAULTS, FIELDS, Stream, header
from pipesched.support.foreign import json_of

_OPS = {op.name: op for op in Op if op.name in FIELDS}


def read(source: Source, given: Mapping[str, int] | None = None) -> tuple[Program, dict[str, int]]:
    """The program of a stream, and its parameters.

    given: parameters that the file must agree with; p and m always can be.
    Raises PipeschedError: PS811 what is no stream, PS812 another version, PS813 a fingerprint of something else,
    PS304 numbers beyond all bounds, PS803 a file that disagrees with what was given, PS843 one that costs more than
    its budget.
    """
    with budgeted(source):
        found = _as_written(source)
        if found is None:
            stream_strict.require_right(source)
            found = _columns(source)
    assert found is not None
    program, parameters = found[0], dict(found[1].parameters)
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


def _as_written(source: Source) -> tuple[Program, Stream] | None:
    """The program of a text laid out as we write it, with what is before it, or None."""
    found = _columns(source)
    return found if found is not None and _same(source.text, *found) else None


def _columns(source: Source) -> tuple[Program, Stream] | None:
    """The program of a text as far as JSON and numpy look at it, with what is before it, or None.

    None as well for many ranks some of which are empty: the strict reader refuses those at once.
    """
    try:
        data = json_of(source.text)
        head = header(data)
        if len(data["ranks"]) > RANKS and not all(data["ranks"]):
            return None
        ranks = [_rank(rank) for rank in data["ranks"]]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    routes = head.placement
    possible = all(max(*route.ranks, *route.microbatches) <= LARGEST for route in routes)
    if not possible or stream_strict.uneven(routes) is not None:
        return None
    if stream_strict.sparse(routes, sum(rank.shape[1] for rank in ranks)):
        return None
    return _program(source, head, ranks), head


_FIELDS = ("stage", "microbatch", "peer", "communicator", "other")


def _rank(rank: list[dict[str, Any]]) -> Column:
    """op, group, second, then _FIELDS of every instruction, a row each; of a batch and of a pair the parts."""
    single, group, second = rank, [-1] * len(rank), [False] * len(rank)
    if any("parts" in x for x in rank):
        single, group, second = [], [], []
        number = 0
        for x in rank:
            parts, batch = x.get("parts", [x]), x["op"] == BATCH
            single += parts
            group += [number if batch else -1] * len(parts)
            second += [not batch and i > 0 for i in range(len(parts))]
            number += batch
    columns: list[list[Any]] = [[x.get(name, DEFAULTS.get(name, -1)) for x in single] for name in _FIELDS]
    return np.array([[_OPS[x["op"]] for x in single], group, second, *columns], dtype=np.int32)


def _same(text: str, program: Program, head: Stream) -> bool:
    """Whether the program, written again, is the text, fingerprint included."""
    placement = program.placement
    inside = (program.microbatch < placement.microbatches) & (program.stage < placement.stages)
    if not bool(np.all(inside & (program.peer < program.ranks))) or int(placement.rank_of.max()) >= program.ranks:
        return False
    placeless = replace(program, origin=Nowhere())  # of a text that may be no stream, where nothing can be found
    at = 0
    try:
        for piece in stream_write.pieces(placeless, head.parameters):
            if not text.startswith(piece, at):
                return False
            at += len(piece)
    except PipeschedError:
        return False  # an instruction that no stream has
    return at == len(text)


def _program(source: Source, head: Stream, ranks: list[Column]) -> Program:
    routes = head.placement
    rank_of = np.array([route.ranks for route in routes], dtype=np.int32)
    names = tuple(route.name for route in routes)
    model = head.frozen, head.reads, head.slices
    placement = Placement(rank_of, stream_strict.route_of(routes), len(ranks), names, *model)
    start = np.cumsum([0] + [rank.shape[1] for rank in ranks], dtype=np.int64)
    columns = np.concatenate([np.zeros((8, 0), np.int32), *ranks], axis=1)
    op, group, second, stage, microbatch, peer, communicator, other = columns
    made = Program(
        head.name,
        placement,
        op.astype(np.int8),
        stage,
        microbatch,
        peer,
        group,
        communicator,
        second.astype(np.bool_),
        start,
        LineOrigin(source, start),
    )
    if placement.chain:
        return made
    ends = among(op, [x for x in _OPS.values() if x.kind.of != SAME and not x.compute])
    return replace(made, other=np.where(ends & (other < 0), other_stage(op, stage), other))
