"""Writes a program as a Python module that makes DeepSpeed's pipeline engine run it.

    F, B              ForwardPass, BackwardPass
    SEND_F, RECV_F    SendActivation, RecvActivation
    SEND_B, RECV_B    SendGrad, RecvGrad
    at the end        ReduceTiedGrads, ReduceGrads, OptimizerStep

The engine's instructions name a buffer instead of a microbatch. A microbatch uses the lowest free buffer from its first
instruction on the stage to its last, so a stage has as many buffers as simultaneous microbatches. The data loader
delivers batches in order: the first and the last stage load all microbatches up to the one of their next F.

    LoadMicroBatch(0) LoadMicroBatch(1) ForwardPass(1) ForwardPass(0)        for F1, F0

The engine stores a single loss and a single received gradient. Before the next microbatch overwrites it, `Keep` saves
the value, and `Take` restores it for the B that needs it; the module defines these two instructions:

    ForwardPass(0) Keep(0) ForwardPass(1) BackwardPass(1) Take(0) BackwardPass(0)

Source: DeepSpeed 0.19.8, `runtime/pipe/schedule.py` and `runtime/pipe/engine.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import cast

import numpy as np

from pipesched.common.features import (
    COPIES,
    EMPTY_RANKS,
    FORWARD_ONLY,
    FROZEN,
    OVERLAP,
    SKIPS,
    SLICES,
    UNEVEN_COSTS,
    Consumer,
)
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError
from pipesched.formats.targets import Head, Writer
from pipesched.model.columns import among, computes
from pipesched.model.ops import Op
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import TorchVersion
from pipesched.support.safe import line as safe

_INSTEAD = "emit it with `--target stream`, which pipesched's own runtime runs"
CONSUMER = Consumer(
    "DeepSpeed's pipeline engine",
    "run",
    Code.TARGET,
    (Op.F, Op.B),
    (EMPTY_RANKS, UNEVEN_COSTS, OVERLAP),
    help=_INSTEAD,
    because={
        COPIES: "in DeepSpeed a stage is on one rank",
        SKIPS: "in DeepSpeed a stage sends its activation only to the next stage",
        SLICES: "in DeepSpeed microbatches are independent and cannot be slices",
        FROZEN: "in DeepSpeed every stage sends a gradient to the previous stage",
        FORWARD_ONLY: "in DeepSpeed every step ends with the optimizer",
    },
    helps={COPIES: f"{_INSTEAD}; or use a schedule with one copy of each stage"},
)
NAMES = {
    Op.F: "ForwardPass",
    Op.B: "BackwardPass",
    Op.SEND_F: "SendActivation",
    Op.RECV_F: "RecvActivation",
    Op.SEND_B: "SendGrad",
    Op.RECV_B: "RecvGrad",
}
_ITS_OWN = (Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.STEP)
"""Instructions that are omitted: the engine reduces and steps by itself at the end of each rank's list."""
_WAITS = (Op.WAIT_SEND_F, Op.WAIT_SEND_B)
"""Instructions that are omitted: the engine's sends block until they are received."""
LOAD, KEEP, TAKE = "LoadMicroBatch", "Keep", "Take"
_END = "ReduceTiedGrads(), ReduceGrads(), OptimizerStep(),"

Words = list[tuple[str, int]]
"""The instructions of a stage, each with its name and microbatch."""


def _unknown(schedule: Schedule, program: Program) -> Iterator[Diagnostic]:
    """Refuse the first instruction that the engine does not have, or that is in a batch or on another communicator."""
    known = among(program.op, (*NAMES, *_ITS_OWN, *_WAITS)) | computes(program.op)
    help = "`pipesched emit FILE --target order | pipesched emit - --target deepspeed` places its messages again"
    refused = {
        "DeepSpeed does not have this instruction": ~known,
        "DeepSpeed posts each message separately": program.group >= 0,
        "DeepSpeed has only one communicator": program.communicator != 0,
    }
    for why, which in refused.items():
        for index in np.flatnonzero(which)[:1].tolist():
            place = f"rank {int(program.rank[index])}, step {program.step(index)}"
            labels = (Label(program.origin.place(index).span, place),)
            yield CONSUMER.refusal(schedule, f"its program has {program[index]}", why, help, labels)


def _head(program: Program) -> str:
    name = safe(program.name).replace("\\", "/").replace('"', "'")
    placement = program.placement
    template = Template(Path(__file__).with_name("deepspeed_module.template").read_text("utf-8"))
    return template.substitute(name=name, stages=placement.stages, microbatches=placement.microbatches)


def _stage(program: Program, rank: int) -> str:
    """Return a stage's instructions as text: one line per F or B, with the receives before and the sends after it."""
    text, line = [f"    {rank}: [\n"], ""
    last = rank == program.ranks - 1
    words = _kept(_loaded(program, rank, ends=rank == 0 or last), NAMES[Op.F if last else Op.RECV_B])
    computed = False
    for (name, _), buffer in zip(words, _buffers([microbatch for _, microbatch in words]), strict=True):
        if computed and name not in (NAMES[Op.SEND_F], NAMES[Op.SEND_B], KEEP):
            text.append(f"        {line.rstrip()}\n")
            line, computed = "", False
        line += f"{name}({buffer}), "
        computed = computed or name in (NAMES[Op.F], NAMES[Op.B])
    return "".join([*text, *([f"        {line.rstrip()}\n"] if line else []), f"        {_END}\n    ],\n"])


def _loaded(program: Program, rank: int, *, ends: bool) -> Words:
    """Return a stage's instructions, without those that DeepSpeed lacks. ends: True for the first and last stage, where
    loads are added.
    """
    here = slice(int(program.start[rank]), int(program.start[rank + 1]))
    words: Words = []
    loaded = 0
    for op, microbatch in zip(program.op[here].tolist(), program.microbatch[here].tolist(), strict=True):
        while ends and op == Op.F and loaded <= microbatch:
            words.append((LOAD, loaded))
            loaded += 1
        if op in NAMES:
            words.append((NAMES[Op(op)], microbatch))
    return words


def _kept(words: Words, maker: str) -> Words:
    """Insert Keep and Take for each loss or gradient that `maker` makes, unless its B runs next."""
    straight, newest = set(), -1
    for name, microbatch in words:
        if name == NAMES[Op.B] and microbatch == newest:
            straight.add(microbatch)
        if name in (maker, NAMES[Op.B]):
            newest = microbatch if name == maker else -1
    made: Words = []
    for name, microbatch in words:
        if name == NAMES[Op.B] and microbatch not in straight:
            made.append((TAKE, microbatch))
        made.append((name, microbatch))
        if name == maker and microbatch not in straight:
            made.append((KEEP, microbatch))
    return made


def _buffers(microbatches: list[int]) -> Iterator[int]:
    """Yield a buffer for each entry: a microbatch keeps the lowest free buffer from its first entry to its last."""
    last = {microbatch: i for i, microbatch in enumerate(microbatches)}
    of: dict[int, int] = {}
    free: list[int] = []
    for i, microbatch in enumerate(microbatches):
        if microbatch not in of:
            of[microbatch] = heapq.heappop(free) if free else len(of)
        yield of[microbatch]
        if last[microbatch] == i:
            heapq.heappush(free, of.pop(microbatch))


class Deepspeed(Writer):
    """The writer of a module with instructions of DeepSpeed's engine."""

    def require(self, schedule: Schedule, program: Program | None) -> None:
        found = [*CONSUMER.refusals(schedule), *([] if program is None else _unknown(schedule, program))]
        placement = schedule.placement
        if not placement.bidirectional and placement.rank_of[0].tolist() != list(range(schedule.ranks)):
            why = f"this schedule has its stages on ranks {' '.join(map(str, placement.rank_of[0].tolist()))}"
            help = "use a schedule with one stage per rank, such as 1F1B or GPipe"
            found.append(CONSUMER.refusal(schedule, why, "in DeepSpeed stage s is on rank s", help))
        if found:
            raise PipeschedError(found)

    def pieces(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        program = cast("Program", order)
        yield _head(program)
        yield from (_stage(program, rank) for rank in range(program.ranks))
        yield "}\n"

    def by_rank(self, order: Schedule | Program, head: Head) -> Iterator[str]:
        """Yield one module per stage, with only that stage's instructions."""
        program = cast("Program", order)
        yield from (f"{_head(program)}{_stage(program, rank)}}}\n" for rank in range(program.ranks))

    def settings(self, order: Schedule | Program, path: str, version: TorchVersion) -> list[str]:
        stages, m = order.placement.stages, order.placement.microbatches
        pairs = "DeepSpeed runs a forward and a backward that share a slot one after the other"
        return [
            f"DeepSpeed 0.19: PipelineModule(..., num_stages={stages}), and in its JSON "
            f'"gradient_accumulation_steps": {m}',
            f"put {path} next to your script, import it, and after deepspeed.initialize(...) call its use(engine)",
            *([pairs] if order.second.any() else []),
        ]


DEEPSPEED = Deepspeed()
