"""The strict reader of streams: every deviation from the contract is reported with its place.

`pipesched.stream.loads` checks JSON, version, fields and fingerprint; here its errors get codes and places, and valid
JSON that cannot be a program is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError
from pipesched.model.columns import Column
from pipesched.model.placement import RANKS
from pipesched.orders.limits import LARGEST, SHOWN, SPARE
from pipesched.stream import Instruction, Route, Stream, StreamError, loads
from pipesched.support.foreign import json_of
from pipesched.support.source import Source


def right(source: Source) -> Stream:
    """Parse the text of a stream.

    Raises PipeschedError: PS811: the text is not a stream; PS812: its version is not supported; PS813: its fingerprint
    is wrong; PS304: a number is out of bounds.
    """
    try:
        json_of(source.text)  # its errors have places, and a budget
        made = loads(source.text)
    except json.JSONDecodeError as wrong:
        raise PipeschedError([_not_json(source, wrong)]) from None
    except StreamError as error:
        raise PipeschedError([_finding(source, error)]) from None
    if problems := [*islice(_problems(source, made), SHOWN)]:
        raise PipeschedError(problems)
    return made


def uneven(routes: tuple[Route, ...]) -> str | None:
    """Describe the first gap, overlap or reversal in the microbatches of the routes, or return None."""
    ends = sorted(route.microbatches for route in routes if route.microbatches[0] != route.microbatches[1])
    if not ends:
        return "no route has microbatches"
    for (_, end), (first, last) in pairwise([(0, 0), *ends]):
        if first != end or last < first:
            return f"microbatch {min(first, end)} has {'no route' if first > end else 'two routes'}"
    return None


def sparse(routes: tuple[Route, ...], ranks: int, operations: int) -> bool:
    """Return True if there are more stages or ranks than the operations can fill."""
    microbatches = max(route.microbatches[1] for route in routes)
    return len(routes[0].ranks) * microbatches > SPARE + 4 * operations or ranks > RANKS + operations


def route_of(routes: tuple[Route, ...]) -> Column:
    """Return the route of every microbatch, shape (microbatches,)."""
    made = np.zeros(max(route.microbatches[1] for route in routes), dtype=np.int32)
    for number, route in enumerate(routes):
        made[slice(*route.microbatches)] = number
    return made


def _finding(source: Source, error: StreamError) -> Diagnostic:
    """Convert an error of `loads` into a finding at its position in the text."""
    if error.path == "version":
        help = "emit the stream again from its schedule"
        return Diagnostic(Code.STREAM_VERSION, error.message, _at(source, error.path, "the version"), help=help)
    if error.path == "fingerprint":
        message = "the fingerprint does not match this placement and these instructions"
        help = "emit the stream again from its schedule: a stream changed by hand is a different, unverified program"
        return Diagnostic(Code.FINGERPRINT, message, _at(source, error.path, "of another program"), help=help)
    help = "emit/README.md describes the fields of a stream and of each instruction"
    if error.path == "ranks" and '"instructions"' in source.text:
        help = "this is the file of one rank, written by `emit --per-rank`: verify the stream of all ranks"
    where = f"{error.path}: " if error.path else ""
    labels = _at(source, error.path, error.path) if error.path else ()
    return Diagnostic(Code.STREAM, f"not a stream: {where}{error.message}", labels, (), help)


def _not_json(source: Source, wrong: json.JSONDecodeError) -> Diagnostic:
    """Return a finding at the position where the text stops being JSON."""
    label = Label(source.span(wrong.pos, wrong.pos + 1), "from here on the text is not JSON")
    ended = not source.text[wrong.pos :].strip()
    help = "the file ends too early: write it again" if ended else "correct the JSON there, or emit the stream again"
    return Diagnostic(Code.STREAM, f"not a stream: {wrong.msg[:1].lower()}{wrong.msg[1:]}", (label,), (), help)


def _at(source: Source, path: str, text: str) -> tuple[Label, ...]:
    begin = begin_of(source.text, path)
    return (Label(source.span(begin, _end(source.text, begin)), text),)


def _problems(source: Source, made: Stream) -> Iterator[Diagnostic]:
    """Yield the faults of a stream that is valid JSON but cannot be a program."""
    wrong, operations = uneven(made.placement), sum(map(len, made.ranks))
    if wrong is not None:
        help = "every microbatch takes one route: the ranges of the routes follow each other, beginning at 0"
        yield Diagnostic(Code.STREAM, f"not a stream: {wrong}", _at(source, "placement", "the routes"), (), help)
    elif sparse(made.placement, len(made.ranks), operations):
        many = f"{len(made.ranks):,} ranks, " if len(made.ranks) > RANKS else ""
        sizes = f"{many}{made.stages:,} stages and {made.microbatches:,} microbatches"
        message = f"{sizes}, but only {operations:,} instructions"
        yield Diagnostic(Code.OUT_OF_RANGE, message, _at(source, "placement", "these are declared here"))
    else:
        yield from _nowhere(source, made)
        routes = route_of(made.placement).tolist()
        for rank, instructions in enumerate(made.ranks):
            for index, instruction in enumerate(instructions):
                if (found := _wrong(instruction, routes, made)) is not None:
                    labels = _at(source, f"ranks[{rank}][{index}]", f"rank {rank}, step {index + 1}")
                    yield Diagnostic(found[0], f"not a stream: {found[1]}", labels)


def _nowhere(source: Source, made: Stream) -> Iterator[Diagnostic]:
    """Yield a fault for each stage on a rank that does not exist."""
    for number, route in enumerate(made.placement):
        for stage, rank in enumerate(route.ranks):
            if rank >= len(made.ranks):
                path = f"placement[{number}].ranks[{stage}]"
                message = f"stage {stage} is on rank {rank}, but the stream has {len(made.ranks)} ranks"
                yield Diagnostic(Code.STREAM, f"not a stream: {message}", _at(source, path, "no such rank"))


def _wrong(instruction: Instruction, routes: list[int], made: Stream) -> tuple[Code, str] | None:
    for x in instruction.parts or (instruction,):
        if max(x.stage, x.microbatch, x.peer, x.communicator) > LARGEST:
            return Code.OUT_OF_RANGE, f"{x.op} has a number beyond the limit of {LARGEST:,}"
        if 0 <= x.microbatch < len(routes) and routes[x.microbatch] != x.route:
            return Code.STREAM, f"microbatch {x.microbatch} takes route {routes[x.microbatch]}, not {x.route}"
        reader, source = max(x.stage, x.other), min(x.stage, x.other)
        if x.other >= 0 and source not in made.read(reader, x.route if 0 <= reader < made.stages else -1):
            return Code.STREAM, f"stage {reader} does not read stage {source}"
    return None


# Positions of values in a JSON text. They are needed only for errors, so the text is scanned instead of indexed.

_NEXT = re.compile(r'[\s,]*(?:("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*)?')
"""The text before a value: a comma, and in an object also its key."""
_STEP = re.compile(r"\.?([A-Za-z_]+)|\[(\d+)\]")
_decode = json.JSONDecoder(object_pairs_hook=lambda pairs: None).raw_decode


def _end(text: str, at: int) -> int:
    """Return the end of the value that begins at `at`."""
    return int(_decode(text, at)[1])


def _inside(text: str, at: int) -> Iterator[tuple[str | int, int]]:
    """Yield the key or the index of each entry of the object or list that begins at `at`, and its offset.

    Values are decoded only to find the next one.
    """
    end, number = at + 1 if text[at] in "[{" else len(text), 0
    while (found := _NEXT.match(text, end)) and text[found.end() : found.end() + 1] not in ("", "]", "}"):
        yield json_of(found[1]) if found[1] else number, found.end()
        end, number = _end(text, found.end()), number + 1


def begin_of(text: str, path: str) -> int:
    """Return the offset of the value at a path such as ``ranks[0][3].stage``, or of the innermost one that exists."""
    at = len(text) - len(text.lstrip())
    for key, index in _STEP.findall(path):
        wanted = int(index) if index else key
        inner = next((begin for name, begin in _inside(text, at) if name == wanted), None)
        if inner is None:
            break
        at = inner
    return at
