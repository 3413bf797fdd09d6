"""Reads a stream as a program (``emit/README.md``), strictly: text that does not exactly follow a known version is
refused.

in our layout   read as columns, written again and compared with the text: correct if equal
other texts     checked against the contract, with one object per instruction (`stream_strict`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from pipesched.diagnostics import Code, Label, PipeschedError, budgeted, fail
from pipesched.formats import stream_write
from pipesched.model.columns import Column, Ints, among, running_sum
from pipesched.model.lists import Nowhere
from pipesched.model.ops import SAME, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program
from pipesched.orders import stream_strict
from pipesched.orders.implied import short
from pipesched.orders.limits import LARGEST, other_stage
from pipesched.orders.stream_strict import begin_of
from pipesched.orders.words import Entry, Notation, TextOrigin
from pipesched.stream import BATCH, FIELDS, Stream, dumps, header
from pipesched.support.foreign import json_of
from pipesched.support.source import Source

_OPS = {op.name: op for op in Op if op.name in FIELDS}
_INNERMOST = re.compile(r"\{[^{}]*\}")  # after the beginning of the ranks, an instruction that is not a compound

_RANK, _BATCHED = -1, len(Op)
"""The codes of lines: an Op for an instruction, plus `_BATCHED` for a part of a batch; and the head of a rank."""
_BLOCK = 1_000_000  # characters that are read at once
_FIELDS = {"stage": -1, "microbatch": -1, "peer": -1, "communicator": 0, "other": -1}
_BETWEEN = "      "
"""The indentation of an instruction's line."""


def read(source: Source, given: Mapping[str, int] | None = None) -> tuple[Program, dict[str, int]]:
    """Return the program of a stream, and its parameters.

    given: parameters with which the file must agree; p and m may always be given. Raises PipeschedError: PS811: the
    text is not a stream; PS812: its version is not supported; PS813: its fingerprint is wrong; PS304: a number is out
    of bounds; PS803: the file disagrees with `given`; PS843: reading exceeds the budget.
    """
    with budgeted(source):
        found = _as_written(source) or _columns(dumps(stream_strict.right(source)))
    assert found is not None
    everything = np.array([0, len(found[0])])
    origin = TextOrigin(source, everything, _INNERMOST, lambda _: (begin_of(source.text, "ranks"), len(source.text)))
    program, parameters = replace(found[0], origin=origin), dict(found[1].parameters)
    here = {**parameters, "p": program.ranks, "m": program.placement.microbatches}
    if (m := parameters.get("m", here["m"])) != here["m"]:
        at = begin_of(source.text, "parameters")
        message = f"not a stream: parameters: m is {short(str(m))}, but the routes have {here['m']} microbatches"
        raise fail(Code.STREAM, message, Label(source.span(at, at + 1), "the sizes of this schedule"))
    for name, value in (given or {}).items():
        if here.get(name) != value:
            what = f"has {name} = {here[name]}" if name in here else f"has no parameter {name}"
            help = "a stream has only one size: emit it again for another size"
            raise fail(Code.FILE_DISAGREES, f"{source.name} {what}, but {name} = {value} was given", help=help)
    return program, parameters


def _meaning(shape: str) -> list[Entry] | None:
    """Return the instruction of a line, the parts of a batch, or the head of a rank; [] for a closing bracket."""
    if not shape.startswith(_BETWEEN):
        return [(_RANK, ())] if shape.startswith("    [") else []
    try:
        found = json_of(re.sub("0+", "0", shape.rstrip(",")))
        batched = _BATCHED * (found["op"] == BATCH)
        return [(_OPS[x["op"]] + batched, [*x][1:]) for x in found.get("parts", [found])]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _as_written(source: Source) -> tuple[Program, Stream] | None:
    """Return the program and the header of text that is exactly as we write it, or None."""
    found = _columns(source.text)
    return found if found is not None and _same(source.text, *found) else None


def _columns(text: str) -> tuple[Program, Stream] | None:
    """Return the program and the header of text in our layout.

    The result is None if the text is laid out differently. `_same` checks whether it is correct.
    """
    before, ranks, lines = text.partition('\n  "ranks": [')
    try:
        head = header(json_of(f"{before}{ranks}]}}")) if lines else None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    if head is None or max(max(*route.ranks, *route.microbatches) for route in head.placement) > LARGEST:
        return None
    notation, found = Notation(_FIELDS, _meaning), []
    for block in _blocks(lines):
        words = notation.read(block, "\n")
        if len(words.bad):
            return None
        found.append(words.columns)
    columns = np.concatenate(found, axis=1)
    begins = np.flatnonzero(columns[0] == _RANK)
    sparse = stream_strict.sparse(head.placement, len(begins), columns.shape[1] - len(begins))
    if begins[:1].tolist() != [0] or sparse or stream_strict.uneven(head.placement):
        return None
    return _program(head, columns, begins), head


def _blocks(text: str) -> Iterator[str]:
    """Yield the text in blocks of whole lines, so that little memory is needed."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + _BLOCK)
        end = len(text) if end < 0 else end
        yield text[at:end]
        at = end + 1


def _same(text: str, program: Program, head: Stream) -> bool:
    """Return True if writing the program again yields the same text, including the fingerprint."""
    placement = program.placement
    inside = (program.microbatch < placement.microbatches) & (program.stage < placement.stages)
    if not bool(np.all(inside & (program.peer < program.ranks))) or int(placement.rank_of.max()) >= program.ranks:
        return False
    at = 0
    try:
        for piece in stream_write.pieces(program, head.parameters):
            if not text.startswith(piece, at):
                return False
            at += len(piece)
    except PipeschedError:
        return False  # an instruction that streams do not have
    return at == len(text)


def _program(head: Stream, columns: Column, begins: Ints) -> Program:
    start = np.append(begins - np.arange(len(begins)), columns.shape[1] - len(begins))
    code, part, stage, microbatch, peer, communicator, other = np.delete(columns, begins, axis=1)
    batched, op = code >= _BATCHED, (code % _BATCHED).astype(np.int8)
    group = np.where(batched, running_sum((batched & (part == 0)).astype(np.int64), start) - 1, -1).astype(np.int32)

    routes = head.placement
    rank_of = np.array([route.ranks for route in routes], dtype=np.int32)
    names = tuple(route.name for route in routes)
    model = head.frozen, head.reads, head.slices
    ways, out = stream_strict.route_of(routes), bool((rank_of < 0).any())
    placement = Placement(rank_of, ways, len(begins), names, *model, left_out=out)
    second = (part > 0) & ~batched
    made = Program(
        head.name,
        placement,
        op,
        stage,
        microbatch,
        peer=peer,
        group=group,
        communicator=communicator,
        second=second,
        start=start,
        origin=Nowhere(),
        rule=head.versions,
    )
    if placement.chain:
        return made
    ends = among(op, [x for x in _OPS.values() if x.kind.of != SAME and not x.compute])
    return replace(made, other=np.where(ends & (other < 0), other_stage(op, stage), other))
