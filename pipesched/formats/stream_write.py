"""Writes a program as a stream (``emit/README.md``), rank by rank, from columns, without an object per instruction.

An instruction's line is determined by its operation, stage, route and peer, except for the microbatch. Each kind of
line is therefore made once, by `pipesched.stream` itself, with a gap for the microbatch; the result is byte-equal to
`stream.dumps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats import numbered
from pipesched.formats.targets import Head, Writer
from pipesched.model import ops
from pipesched.model.numbers import whole
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.stream import FIELDS, Instruction, Route, Stream, fingerprint, instruction_text, text
from pipesched.support.foreign import real
from pipesched.support.safe import safe

_BETWEEN = ",\n      "  # lines of a rank in the text
_MARK = 10**15  # larger than any stage, rank or microbatch
_OPEN, _CLOSE = instruction_text(Instruction("OVERLAP"), 1).split("[]")
_BATCH, _ = instruction_text(Instruction("BATCH"), 1).split("[]")


def pieces(program: Program, parameters: Mapping[str, int]) -> Iterator[str]:
    """Yield the text of a stream, one rank at a time. Lines are made twice, since the fingerprint precedes them.

    Raises:
        PipeschedError: PS814 if a stream cannot express an operation.
    """
    head, mark = _head(program, parameters)
    yield from text(head, ([_rank(program, rank)] for rank in range(program.ranks)), mark)


def by_rank(program: Program, parameters: Mapping[str, int]) -> Iterator[str]:
    """Yield the text of each rank's own file: its instructions, with the fingerprint of the whole stream.

    Raises:
        PipeschedError: PS814 if a stream cannot express an operation.
    """
    stream, mark = _head(program, parameters)
    head, _, _ = "".join(text(stream, [], mark)).rpartition('  "ranks": [')
    for rank in range(program.ranks):
        lines = _rank(program, rank).replace(_BETWEEN, ",\n    ")
        yield f'{head}  "rank": {rank},\n  "instructions": [' + (f"\n    {lines}\n  ]\n}}\n" if lines else "]\n}\n")


def _head(program: Program, parameters: Mapping[str, int]) -> tuple[Stream, str]:
    """Return the stream without its ranks, and the fingerprint."""
    require_words(program.placement, program)
    placement = program.placement
    model = placement.frozen, placement.reads, placement.slices
    own = {real(name): value for name, value in parameters.items()}
    synced = map(placement.copies, np.unique(program.stage[program.op == Op.SYNC]).tolist())
    sync = "any" if any(len(copies) & len(copies) - 1 for copies in synced) else ""
    head = Stream(real(program.name), own, routes_of(placement), (), *model, versions=program.rule, sync=sync)
    lines = ([_rank(program, rank).replace(_BETWEEN, "\n")] for rank in range(program.ranks))
    return head, fingerprint(head.head, lines)


def routes_of(placement: Placement) -> tuple[Route, ...]:
    """Return the routes, each with one range of microbatches.

    Raises:
        PipeschedError: PS814 if the microbatches of a route are not a range.
    """
    routes = []
    for number, ranks in enumerate(placement.rank_of.tolist()):
        name = placement.route_names[number] if placement.route_names else ""
        taken = np.flatnonzero(placement.route_of == number)
        gaps = taken[:-1][np.diff(taken) > 1] + 1
        if len(gaps):
            takes = f"microbatch {gaps[0] - 1} takes the route, but {gaps[0]} does not"
            message = f"the microbatches of route {name or number} are not a range: {takes}"
            note = "in a stream the microbatches of a route form one range"
            help = "number the microbatches of each route consecutively"
            raise fail(Code.TARGET, message, help=help, notes=(note,))
        first, last = (int(taken[0]), int(taken[-1])) if len(taken) else (0, -1)
        routes.append(Route(real(name), tuple(ranks), (first, last + 1)))
    return tuple(routes)


def require_words(placement: Placement, program: Program | None) -> None:
    """Require that a stream can express a placement and a program.

    Raises:
        PipeschedError: PS814.
    """
    routes_of(placement)
    if program is None:
        return
    known = np.array([op.name in FIELDS for op in Op])
    refused = {
        "it does not have this instruction": ~known[program.op],
        "a batch has only sends and receives": (program.group >= 0) & ~(program.sends | program.receives),
    }
    found = [(why, np.flatnonzero(which)) for why, which in refused.items() if which.any()]
    if found:
        raise PipeschedError(_refused(program, int(at[0]), len(at) - 1, why) for why, at in found)


def _refused(program: Program, index: int, more: int, why: str) -> Diagnostic:
    where = f"rank {int(program.rank[index])}, step {program.step(index)}"
    return Diagnostic(
        Code.TARGET,
        f"a stream cannot express {program[index]}: {why}",
        (Label(program.origin.place(index).span, where),),
        (f"and {more} more of this kind",) if more else (),
        "emit only the compute operations; sends and receives are then placed again: "
        "`pipesched emit FILE --target order | pipesched emit -`",
    )


def _rank(program: Program, rank: int) -> str:
    """Return the lines of a rank, with separators."""
    here = slice(int(program.start[rank]), int(program.start[rank + 1]))
    op, microbatch, group = program.op[here], program.microbatch[here], program.group[here]
    inside = np.clip(microbatch, 0, program.placement.microbatches - 1)
    route = np.where(microbatch >= 0, program.placement.route_of[inside], 0)
    part, (opens, closes) = numbered.parts(op, program.second[here]), numbered.brackets(group)
    columns = [op, part, route, program.stage[here], program.peer[here], program.communicator[here]]
    columns += [] if program.other is None else [program.other[here]]
    columns += [group >= 0, opens, closes] if opens.any() else []
    first, kind = numbered.distinct(*columns)
    texts = []
    for i in first:
        line = _line(program[here.start + i], int(route[i]), program.placement.routes)
        if part[i] == numbered.FIRST:
            texts.append(f"{_OPEN}[{line},")
        elif group[i] >= 0:
            texts.append(f"{_BATCH}[" * int(opens[i]) + line + (f"]{_CLOSE}{_BETWEEN}" if closes[i] else ","))
        else:
            texts.append(line + f"]{_CLOSE}" * int(part[i] == numbered.SECOND) + _BETWEEN)
    return numbered.write(texts, kind, microbatch).removesuffix(_BETWEEN)


def _line(x: ops.Instruction, route: int, routes: int) -> str:
    """Return the canonical text of an instruction, with ``%d`` for its microbatch."""
    one = Instruction(x.op.name, x.stage, _MARK, route, x.peer, other=x.other, communicator=x.communicator)
    return instruction_text(one, routes).replace(str(_MARK), "%d")


class Streams(Writer):
    """The writer of streams, the published form."""

    def require(self, schedule: Schedule, program: Program | None) -> None:
        require_words(schedule.placement, program)

    def pieces(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        return (safe(piece, "json") for piece in pieces(cast("Program", order), whole(head.parameters)))

    def by_rank(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        return (safe(piece, "json") for piece in by_rank(cast("Program", order), whole(head.parameters)))


STREAM = Streams()
