"""A stream as a program (``emit/README.md``), read strictly: what is not version 1, to the letter, is refused.

laid out as we write it     columns from the lines, written again and compared with the text: equal, so right
anything else               an object an instruction (`stream_strict`), which says what is wrong and where
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
from pipesched.stream import FIELDS, Instruction, Route, instruction_text

_RANKS, _END = '  "ranks": [', "\n  ]\n}\n"


def read(source: Source, given: Mapping[str, int] | None = None) -> tuple[Program, dict[str, int]]:
    """The program of a stream, and its parameters.

    given: parameters that the file must agree with; p and m always can be.
    Raises PipeschedError: PS811 what is no stream, PS812 another version, PS813 a fingerprint of something else,
    PS304 numbers beyond all bounds, PS803 a file that disagrees with what was given.
    """
    program, parameters = _as_written(source) or _as_objects(source)
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


def _as_objects(source: Source) -> tuple[Program, dict[str, int]]:
    """The program of any text that is a stream."""
    made = stream_strict.read(source)
    ranks = [np.array(list(_entries(rank)), dtype=np.int32).reshape(-1, 5).T for rank in made.ranks]
    return _program(source, made.name, made.placement, ranks), dict(made.parameters)


def _entries(rank: tuple[Instruction, ...]) -> Iterator[tuple[int, int, int, int, bool]]:
    for instruction in rank:
        for number, x in enumerate(instruction.parts or (instruction,)):
            yield Op[x.op], x.stage, x.microbatch, x.peer, number > 0


def _as_written(source: Source) -> tuple[Program, dict[str, int]] | None:
    """The program of a text laid out as we write it, or None."""
    head, found, body = source.text.partition(_RANKS)
    if not found or not body.endswith(_END):
        return None
    try:
        data = json.loads(head.rstrip().removesuffix(",") + "}")
        name, parameters = data["name"], data["parameters"]
        routes = tuple(map(_route, data["placement"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    rows = body.removesuffix(_END).split("\n    [")[1:]
    if not isinstance(name, str) or not _sizes(parameters) or not _proper(routes, len(rows)):
        return None
    columns = [_columns(row.strip("\n ],"), len(routes)) for row in rows]
    ranks = [rank for rank in columns if rank is not None]
    if len(ranks) < len(rows) or stream_strict.sparse(routes, sum(rank.shape[1] for rank in ranks)):
        return None
    program = _program(source, name, routes, ranks)
    return (program, parameters) if _same(source.text, program, parameters) else None


def _route(data: dict[str, Any]) -> Route:
    name, (first, end) = data["name"], data["microbatches"]
    if not isinstance(name, str):
        raise TypeError
    return Route(name, tuple(data["ranks"]), (first, end))


def _sizes(parameters: object) -> bool:
    return isinstance(parameters, dict) and all(type(x) is int and abs(x) < 2**53 for x in parameters.values())


def _proper(routes: tuple[Route, ...], ranks: int) -> bool:
    """Whether a placement can be made of the routes at all."""
    numbers = [x for route in routes for x in (*route.ranks, *route.microbatches)]
    return (
        bool(routes)
        and all(type(x) is int and 0 <= x <= LARGEST for x in numbers)
        and all(rank < ranks for route in routes for rank in route.ranks)
        and len({len(route.ranks) for route in routes}) == 1
        and stream_strict.uneven(routes) is None
    )


def _same(text: str, program: Program, parameters: Mapping[str, int]) -> bool:
    """Whether the program, written again, is the text, fingerprint included."""
    inside = (program.microbatch < program.placement.microbatches) & (program.stage < program.placement.stages)
    if not bool(np.all(inside & (program.peer < program.ranks))):
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


# The lines of a rank as columns, for text laid out as `pipesched.stream.dumps` does, one instruction a line. What else
# stands in a line is not looked at: the columns are written again and the texts compared, so only a right one passes.
#
#     {"op":"SEND_F","stage":0,"microbatch":7,"peer":1}      the word after "op", and the numbers in their order
#     {"op":"OVERLAP","parts":[{…},{…}]}                     two lines, of which the second one begins with +


_BETWEEN = ",\n      "
_OPEN, _ = instruction_text(Instruction("OVERLAP"), 1).split("]")
_DIGITS = bytes(c if chr(c).isdigit() and c < 128 else ord(" ") for c in range(256))
_PLAIN = {op.name: int(op) for op in Op if op.name in FIELDS}


def _columns(lines: str, routes: int) -> Column | None:
    """op, stage, microbatch, peer and second of a rank, shape (5, instructions); None if a line cannot be read."""
    if not lines:
        return np.zeros((5, 0), dtype=np.int32)
    if _OPEN in lines:
        lines = lines.replace(_OPEN, "").replace('},{"op"', f'}}{_BETWEEN}+"op"')
    rows = lines.split(_BETWEEN)
    try:
        op = np.array([_PLAIN[row[7 : row.index('"', 7)]] for row in rows], dtype=np.int32)
        digits = lines.encode("ascii").translate(_DIGITS).strip()
        numbers = np.fromstring(digits, dtype=np.int64, sep=" ") if digits else np.zeros(0, dtype=np.int64)
    except (KeyError, ValueError):
        return None
    made = np.full((5, len(rows)), -1, dtype=np.int64)
    made[0] = op
    made[4] = [row[0] == "+" for row in rows]
    return made if _fill(made, numbers, routes) and int(made.max()) < 2**31 else None


def _fill(made: Column, numbers: Column, routes: int) -> bool:
    """Puts the numbers into the columns of stage, microbatch and peer; whether there are as many as fields."""
    names = {op: [name for name in FIELDS[Op(op).name] if name != "route" or routes > 1] for op in np.unique(made[0])}
    count = np.array([len(names.get(op, ())) for op in range(len(Op))])
    begin = np.cumsum(count[made[0]]) - count[made[0]]
    if int(count[made[0]].sum()) != len(numbers):
        return False
    for op, fields in names.items():
        at = np.flatnonzero(made[0] == op)
        for offset, name in enumerate(fields):
            if name != "route":
                made[{"stage": 1, "microbatch": 2, "peer": 3}[name], at] = numbers[begin[at] + offset]
    return True
