"""Builds the streams of schedules record by record from the lowered program, without code of the emitters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pipesched
from pipesched.compile import lower
from pipesched.model.ops import Op
from pipesched.model.schedule import Program
from pipesched.stream import Instruction, Route, Stream

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "dualpipe", "dualpipev")


@lru_cache(maxsize=256)
def program_of(name: str, **sizes: int) -> Program:
    schedule = pipesched.load(name, **sizes)
    return lower(schedule)


@lru_cache(maxsize=256)
def stream_of(name: str, **sizes: int) -> Stream:
    return published(program_of(name, **sizes))


def published(program: Program) -> Stream:
    """Return a program in its published form."""
    placement = program.placement
    routes = []
    for number in range(placement.routes):
        taken = [i for i, route in enumerate(placement.route_of.tolist()) if route == number]
        ranks = tuple(int(rank) for rank in placement.rank_of[number])
        routes.append(Route(str(number), ranks, (min(taken), max(taken) + 1)))
    lists = tuple(tuple(_instructions(program, rank)) for rank in range(program.ranks))
    sizes = {"p": program.ranks, "m": placement.microbatches}
    model = {"frozen": placement.frozen, "reads": dict(placement.reads), "versions": program.rule}
    return Stream(program.name, sizes, tuple(routes), lists, **model)


def _instructions(program: Program, rank: int) -> Iterator[Instruction]:
    made: list[Instruction] = []
    group = -1
    for x in program.instructions(rank):
        route = int(program.placement.route_of[x.microbatch]) if x.microbatch >= 0 else 0
        if x.op is Op.REDUCE_GRAD:
            new = Instruction("REDUCE_GRAD", x.stage)
        elif x.op is Op.SYNC:
            new = Instruction("SYNC", x.stage, peer=x.peer)
        elif x.op is Op.STEP:
            new = Instruction("STEP", x.stage)
        else:
            far = {"communicator": x.communicator, "other": x.other}
            new = Instruction(x.op.name, x.stage, x.microbatch, route, x.peer, **far)
        if x.second:
            new = Instruction("OVERLAP", parts=(made.pop(), new))
        elif x.group >= 0:
            new = Instruction("BATCH", parts=(*(made.pop().parts if x.group == group else ()), new))
        group = x.group
        made.append(new)
    return iter(made)
