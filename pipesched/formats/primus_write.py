"""A program as the nodes of Primus's schedule table, JSON, a rank at a time.

    F, W, I, B        F, W, B, BW: func_type B is the backward for the input alone
    SEND_F, RECV_F    SF, RF
    SEND_B, RECV_B    SB, RB

A node has the microbatch and the chunk of its rank, and a message has where it goes in `args`. Stages of one rank hand
over by messages too, from the rank to itself. Messages in a row are one batch there. That asks no more
of their order than they do one after the other: each begins with the batch, and the rank goes on when the last ends.

Source: Primus at fd1eeab, `primus/core/pipeline_parallel/scheduler/` and the handlers of its Megatron backend.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from pipesched.diagnostics import Code, Diagnostic
from pipesched.formats.trainer_limits import BECAUSE, HELPS, INSTEAD, KNOWS, Engine
from pipesched.model.features import OVERLAP, Consumer
from pipesched.model.ops import ACTIVATION, GRADIENT, Op
from pipesched.model.schedule import Program, Schedule
from pipesched.model.verdict import placement_name
from pipesched.safe import safe

CONSUMER = Consumer(
    "Primus",
    "run",
    Code.TARGET,
    (Op.F, Op.I, Op.W, Op.B),
    KNOWS,
    INSTEAD,
    {**BECAUSE, OVERLAP: "it overlaps the two only in its own combined nodes, for mixtures of experts"},
    HELPS,
)
ENGINE = Engine(CONSUMER, "primus", batches=True)
NAMES = {
    Op.F: "F",
    Op.I: "B",
    Op.W: "W",
    Op.B: "BW",
    Op.SEND_F: "SF",
    Op.RECV_F: "RF",
    Op.SEND_B: "SB",
    Op.RECV_B: "RB",
}
HANDS = {ACTIVATION: ("SF", "RF"), GRADIENT: ("SB", "RB")}


def refused(schedule: Schedule, program: Program | None) -> Iterator[Diagnostic]:
    """PS814, what Primus cannot run."""
    yield from ENGINE.limits(schedule, program)
    placement = schedule.placement
    name = placement_name(placement)
    if placement.routes == 1 and (name == "irregular" or (name == "vee" and placement.stages != 2 * placement.ranks)):
        by_stage = " ".join(map(str, placement.rank_of[0].tolist()))
        note = "it builds one stage a rank, the loop, and the V with two stages a rank"
        yield CONSUMER.refusal(schedule, f"its stages are on ranks {by_stage}", note)
    first, last = (
        schedule.microbatch[(schedule.op == Op.F) & (schedule.stage == s)] for s in (0, placement.stages - 1)
    )
    if len(first) == len(last) and len(other := np.flatnonzero(first != last)):
        at = int(other[0])
        why = f"forward {at + 1} is of microbatch {first[at]} on the first stage, and of {last[at]} on the last"
        help = "run the forwards of the last stage in the order of the first"
        yield CONSUMER.refusal(schedule, why, "each takes the next batch of its own data loader", help)


def pieces(program: Program) -> Iterator[str]:
    """The text, a rank at a time."""
    yield f'{{\n{_head(program)}  "schedule_table": ['
    for rank in range(program.ranks):
        yield f"{',' * (rank > 0)}\n    [\n      " + ",\n      ".join(_nodes(program, rank)) + "\n    ]"
    yield "\n  ]\n}\n"


def by_rank(program: Program) -> Iterator[str]:
    """The nodes of each rank."""
    for rank in range(program.ranks):
        nodes = ",\n    ".join(_nodes(program, rank))
        yield f'{{\n{_head(program)}  "rank": {rank},\n  "nodes": [\n    {nodes}\n  ]\n}}\n'


def settings(program: Program, path: str) -> list[str]:
    """What goes with the file."""
    placement = program.placement
    vee = placement_name(placement) == "vee"
    name = "zbv-formatted" if vee else "1f1b-interleaved" if placement.stages > placement.ranks else "zero-bubble"
    base = "VFoldScheduleAlgo" if vee else "PipelineScheduleAlgo"
    return [
        f"Primus: patch_primus_pipeline: true, pp_algorithm: {name}, communication_method: batch_p2p, "
        f"{placement.stages // placement.ranks} chunks a rank, {placement.microbatches} microbatches",
        f'in its place, pp_algorithm_map["{name}"]: a {base} whose generate_schedule_table() makes '
        f'SchedulerNode(FuncType[node["func_type"]], node["mini_batch"], node["chunk"], node.get("args")) of {path}',
    ]


def _head(program: Program) -> str:
    placement = program.placement
    sizes = {
        "name": program.name,
        "pp_size": placement.ranks,
        "vpp_size": placement.stages // placement.ranks,
        "micro_batches": placement.microbatches,
    }
    lines = (f'  "{key}": {json.dumps(value, ensure_ascii=False)},\n' for key, value in sizes.items())
    return safe("".join(lines), "json")


def _nodes(program: Program, rank: int) -> Iterator[str]:
    """A line for each node of a rank, in order."""
    home = program.placement.rank_of[0].tolist()
    chunk = {
        stage: number for r in range(program.ranks) for number, (_, stage) in enumerate(program.placement.chunks(r))
    }
    here = slice(int(program.start[rank]), int(program.start[rank + 1]))
    for number, stage, microbatch in zip(
        program.op[here].tolist(), program.stage[here].tolist(), program.microbatch[here].tolist(), strict=True
    ):
        op = Op(number)
        if op not in NAMES:
            continue
        far = stage + op.kind.of
        if op.send:
            yield _message(NAMES[op], microbatch, chunk[stage], rank, home[far], "send_to_chunk", chunk[far])
        elif op.receive:
            yield _message(NAMES[op], microbatch, chunk[stage], home[far], rank, "recv_from_chunk", chunk[far])
        else:
            yield f'{{"func_type": "{NAMES[op]}", "mini_batch": {microbatch}, "chunk": {chunk[stage]}}}'
            for result, (send, receive) in HANDS.items():
                taker = stage + 1 if result is ACTIVATION else stage - 1
                if result in op.kind.makes and 0 <= taker < len(home) and home[taker] == rank:
                    yield _message(send, microbatch, chunk[stage], rank, rank, "send_to_chunk", chunk[taker])
                    yield _message(receive, microbatch, chunk[taker], rank, rank, "recv_from_chunk", chunk[stage])


def _message(name: str, microbatch: int, chunk: int, source: int, target: int, side: str, other: int) -> str:
    args = f'{{"from_pp_rank": {source}, "to_pp_rank": {target}, "{side}": {other}}}'
    return f'{{"func_type": "{name}", "mini_batch": {microbatch}, "chunk": {chunk}, "args": {args}}}'
