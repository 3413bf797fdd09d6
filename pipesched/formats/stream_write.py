"""A program as a stream (``emit/README.md``), a rank at a time: columns to lines, without an object per instruction.

An instruction's line is decided by its operation, stage, route and peer, all but the microbatch. So each kind of line
is written once, by `pipesched.stream` itself, around a place for that number; what comes out is `stream.dumps` to the
byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.formats import numbered
from pipesched.model.columns import Ints
from pipesched.model.numbers import ranges
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.program import Program
from pipesched.stream import (
    BATCH,
    FIELDS,
    NEWEST,
    VERSION,
    Instruction,
    Route,
    fingerprint,
    instruction_text,
    placement_text,
    text,
)

_BETWEEN = ",\n      "  # lines of a rank in the text
_MARK = 10**15  # no stage, rank or microbatch is as large
_OPEN = {op: instruction_text(Instruction(op), 1).partition("[]")[0] for op in ("OVERLAP", BATCH)}
_CLOSE = "}"


def pieces(program: Program, parameters: Mapping[str, int]) -> Iterator[str]:
    """The text of a stream, a rank at a time. Lines are made twice: the fingerprint stands before them.

    Raises:
        PipeschedError: PS814, what no version has words for.
    """
    placement, mark = _placed(program)
    ranks = ([_rank(program, rank)] for rank in range(program.ranks))
    yield from text(program.name, parameters, placement, ranks, mark, version_of(program))


def by_rank(program: Program, parameters: Mapping[str, int]) -> Iterator[str]:
    """The text of each rank's own file: its instructions, under the fingerprint of the whole stream.

    Raises:
        PipeschedError: PS814, what no version has words for.
    """
    placement, mark = _placed(program)
    whole = "".join(text(program.name, parameters, placement, [], mark, version_of(program)))
    head, _, _ = whole.rpartition('  "ranks": [')
    for rank in range(program.ranks):
        lines = _rank(program, rank).replace(_BETWEEN, ",\n    ")
        yield f'{head}  "rank": {rank},\n  "instructions": [' + (f"\n    {lines}\n  ]\n}}\n" if lines else "]\n}\n")


def _placed(program: Program) -> tuple[str, str]:
    """The text of the placement, and the fingerprint."""
    placement = placement_text(routes_of(program.placement))
    require_words(program, NEWEST)
    lines = ([_rank(program, rank).replace(_BETWEEN, "\n")] for rank in range(program.ranks))
    return placement, fingerprint(placement, lines)


def routes_of(placement: Placement) -> tuple[Route, ...]:
    """The routes, each with its microbatches as one range.

    Raises:
        PipeschedError: PS814, the microbatches of a route are no range, or a stage reads others than the one before it.
    """
    if not placement.chain:
        message = f"a stream of version 1 cannot say that {placement.skip}: each stage reads the one before it"
        raise fail(Code.TARGET, message, help="write another schedule, or keep this one as a .ps file")
    return tuple(
        Route(name, tuple(ranks), _range(placement, number, name))
        for number, (name, ranks) in enumerate(
            zip(placement.route_names or ("",) * placement.routes, placement.rank_of.tolist(), strict=True)
        )
    )


def _range(placement: Placement, route: int, name: str) -> tuple[int, int]:
    taken = np.flatnonzero(placement.route_of == route)
    if not len(taken):
        return 0, 0
    first, end = int(taken[0]), int(taken[-1]) + 1
    if end - first != len(taken):
        raise PipeschedError([_scattered(placement, route, name)])
    return first, end


def _scattered(placement: Placement, route: int, name: str) -> Diagnostic:
    taken = np.flatnonzero(placement.route_of == route)
    gap = int(taken[np.flatnonzero(np.diff(taken) > 1)[0]]) + 1
    return Diagnostic(
        Code.TARGET,
        f"the microbatches of route {name or route} are no range: {gap - 1} takes it and {gap} does not",
        (),
        ("a stream gives each route the microbatches from a first to a last one",),
        "number the microbatches so that those of a route follow each other",
    )


def require_trained(placement: Placement) -> None:
    """Whether all stages are trained.

    Raises:
        PipeschedError: PS814.
    """
    if placement.frozen:
        message = f"a stream of version 1 cannot say which stages are frozen: {ranges(placement.frozen)}"
        raise fail(Code.TARGET, message, help="`--target torch-csv` has B on frozen stages, as torch wants")


def version_of(program: Program) -> int:
    """The oldest version that has words for it."""
    return NEWEST if bool(np.any(program.group >= 0) or np.any(program.communicator)) else VERSION


def require_words(program: Program, version: int = VERSION) -> None:
    """Whether a version has an instruction for everything here.

    Raises:
        PipeschedError: PS814.
    """
    known = np.array([op.name in FIELDS for op in Op])
    require_trained(program.placement)
    found = [*_refused(program, np.flatnonzero(~known[program.op]), "it is torch's own, for sharded stages and waits")]
    if version == VERSION:
        found += _refused(program, np.flatnonzero(program.group >= 0), "it has no fused batches of messages")
        found += _refused(program, np.flatnonzero(program.communicator != 0), "it has one communicator")
    if found:
        raise PipeschedError(found)


def _refused(program: Program, at: Ints, why: str) -> Iterator[Diagnostic]:
    for index in at[:1].tolist():
        rank = int(program.rank[index])
        more = f"and {len(at) - 1} more of this kind" if len(at) > 1 else ""
        place = Label(program.origin.place(index).span, f"rank {rank}, step {program.step(index)}")
        yield Diagnostic(
            Code.TARGET,
            f"a stream of version 1 cannot say {program[index]}: {why}",
            (place,),
            (more,) if more else (),
            "emit its computes alone, so that sends and receives are made anew: "
            "`pipesched order FILE | pipesched emit - --target stream`",
        )


def _rank(program: Program, rank: int) -> str:
    """The lines of a rank, with what stands between them."""
    here = slice(int(program.start[rank]), int(program.start[rank + 1]))
    op, microbatch = program.op[here], program.microbatch[here]
    inside = np.clip(microbatch, 0, program.placement.microbatches - 1)
    route = np.where(microbatch >= 0, program.placement.route_of[inside], 0)
    part = numbered.parts(op, program.second[here])
    peer, communicator, batch = program.peer[here], program.communicator[here], numbered.batches(program.group[here])
    kinds, kind = numbered.distinct(op, part, route, program.stage[here], peer, communicator, *batch)
    heads = [_kind(*row, routes=program.placement.routes) for row in kinds]
    return numbered.write(heads, kind, microbatch).removesuffix(_BETWEEN)


def _kind(
    op: int,
    part: int,
    route: int,
    stage: int,
    peer: int,
    communicator: int,
    inside: int,
    opens: int,
    closes: int,
    *,
    routes: int,
) -> tuple[str, str]:
    """Head and tail of the lines of one kind. inside, opens, closes: of a batch."""
    message = Instruction(Op(op).name, stage, _MARK, route, peer, communicator=communicator)
    head, _, tail = instruction_text(message, routes).partition(str(_MARK))
    if part == numbered.FIRST or opens:
        head = f"{_OPEN[BATCH if opens else 'OVERLAP']}[{head}"
    if part == numbered.SECOND or closes:
        tail += f"]{_CLOSE}"
    return head, tail + ("," if part == numbered.FIRST or inside > closes else _BETWEEN)
