"""Calls generators of other projects as their own runtimes call them, to record their orders.

    pipesched verify python:tests/generators/others.py:zero_bubble --framework-path REPOSITORY --p 4 --m 8 -D name=zbv
    pipesched verify python:tests/generators/others.py:primus --framework-path REPOSITORY --p 4 --m 8 -D name=v-half
    pipesched verify python:tests/generators/others.py:jaxpp --framework-path REPOSITORY/src --p 4 --m 8 -D name=ZB

REPOSITORY is a checkout. None of their code is here: these functions import it by name, and return its result in our
words. Their results at the commits named there are in `data/others.json`.
"""

from __future__ import annotations

import enum
import os
import sys
import types
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def stub(name: str, **has: Any) -> None:
    """Stub for a module of theirs that a schedule does not depend on."""
    made = types.ModuleType(name)
    made.__dict__.update(has)
    sys.modules[name] = made


def bare(name: str) -> None:
    """Load a package and its parents, without their imports."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        stub(".".join(parts[:end]), __path__=[os.path.join(folder, *parts[:end]) for folder in sys.path])


def placed(rank: int, chunk: int, p: int, *, vee: bool) -> int:
    """Return the stage of a chunk: ranks in turn, or there and back."""
    return 2 * p - 1 - rank if vee and chunk else chunk * p + rank


def reduced(rank: int, p: int, chunks: int, *, vee: bool) -> list[str]:
    """Return the reductions, which their trainers run after the order."""
    return [f"reduce:{placed(rank, chunk, p, vee=vee)}" for chunk in range(chunks)]


BACKWARDS = {"F": "F", "B": "I", "W": "W", "BW": "B"}  # the letters of both, and ours


def message(sends: bool, letter: str, made: int, microbatch: int, peer: int) -> str:
    """Return the word of a message, by its producer."""
    return f"{'send' if sends else 'recv'}:{letter}{made}.{microbatch}{'>' if sends else '<'}{peer}"


def batched(rows: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yield the words with brackets around neighbours of one batch; None is not a batch."""
    last = None
    for word, batch in rows:
        if batch != last:
            if last is not None:
                yield ")"
            if batch is not None:
                yield "("
        last = batch
        yield word
    if last is not None:
        yield ")"


def artifact(file: str = "") -> str:
    """Return a file of the tests of pytorch/pytorch, test/distributed/pipelining/artifacts."""
    return Path(file).read_text("utf-8")


# The zero-bubble authors: sail-sg/zero-bubble-pipeline-parallelism


def zero_bubble(p: int, m: int, name: str = "zbv", cost: int = 1000) -> list[list[str]]:
    """Return zbv, v-half, v-min, 1f1b or 1f1b-v: computes, and the batches in which their runtime posts messages.

    In a batch are the neighbouring messages up to the next compute, or to the receive that it consumes, by direction:
    send to the rank before, receive from it, send to the next one, receive from it.
    """
    bare("megatron.core.pipeline_parallel.zerobubble.scheduler")
    stub("megatron.training", get_args=lambda: types.SimpleNamespace(num_seq_splits=1))
    folder = "megatron.core.pipeline_parallel.zerobubble.scheduler"
    graph, passes = import_module(f"{folder}.graph"), import_module(f"{folder}.passes")
    chunks = 1 if name == "1f1b" else 2
    flat = {key: [1000.0] * p for key in ("cost_f", "cost_b", "cost_w")} | {
        key: [x] * p for key, x in (("mem_f", 2), ("mem_b", -1), ("mem_w", -1))
    }
    config = graph.GraphConfig(**flat, cost_comm=1.0, max_chunks=chunks, n_stages=p, n_micro=m)
    if name in ("v-half", "v-min"):
        kind = import_module(f"{folder}.zbv_greedy").PipelineGraph
        order = kind(p, m, name[2:], cost, cost, cost, 1).create_schedule(config)
    elif name == "zbv":
        kind = import_module(f"{folder}.zbv").PipelineGraph
        order = kind(p, m, cost, cost, cost, 1, 2, -1, -1, max_mem=None).create_schedule(config)
    else:
        module = {"1f1b": "basic1f1b", "1f1b-v": "v1f1b"}[name]
        order = import_module(f"{folder}.{module}").create_schedule(config)
    done = passes.run_schedule_passes(config, order, validate=False)
    vee = chunks == 2
    rows = [list(batched(_zero_bubble_row(rank, row, p, vee=vee))) for rank, row in enumerate(done)]
    return [[*row, *reduced(rank, p, chunks, vee=vee)] for rank, row in enumerate(rows)]


def _zero_bubble_row(rank: int, row: list[Any], p: int, *, vee: bool) -> Iterator[tuple[str, Any]]:
    batch: list[tuple[int, str]] = []
    count = 0
    for at, node in enumerate(row):
        kind, s = node.type.name, placed(rank, node.chunk, p, vee=vee)
        if not node.type.is_communication():
            yield f"{BACKWARDS[kind]}{s}.{node.microbatch}", None
            continue
        forward, sends = kind.endswith("FORWARD"), kind.startswith("SEND")
        made = s if sends else s - 1 if forward else s + 1
        peer = node.comm_peer_stage
        before = node.comm_direction.name == "PREV"
        word = message(sends, "F" if forward else "B", made, node.microbatch, peer)
        batch.append(((0 if before else 2) + (not sends), word))
        computes = [x for x in row[at + 1 :] if x.type.is_computation()][:1]
        ends = at + 1 == len(row) or not row[at + 1].type.is_communication()
        if ends or (computes and not sends and _consumes(computes[0], node, forward)):
            yield from ((word, count) for _, word in sorted(batch, key=lambda x: x[0]))
            batch, count = [], count + 1


def _consumes(compute: Any, message: Any, forward: bool) -> bool:
    kinds = ("F",) if forward else ("B", "BW")
    same = (compute.chunk, compute.microbatch) == (message.chunk, message.microbatch)
    return same and compute.type.name in kinds


# AMD-AGI/Primus: the nodes of its schedule table


def primus(p: int, m: int, name: str = "zbv-formatted", v: int = 1) -> list[list[str]]:
    """Return an algorithm of its table: computes, and the batches in which its handler posts messages.

    In a batch are neighbouring messages of one time step, by direction, as above.
    """
    stub("primus.core.utils.module_utils", log_rank_0=print)
    factory = import_module("primus.core.pipeline_parallel.scheduler.schedule_table_factory")
    vee = name in ("zbv-formatted", "v-half", "v-min")
    chunks = 2 if vee else v
    table = factory.produce_schedule_instance(name, p, chunks, m).generate_schedule_table()
    rows = [list(batched(_primus_row(rank, row, p, vee=vee))) for rank, row in enumerate(table)]
    return [[*row, *reduced(rank, p, chunks, vee=vee)] for rank, row in enumerate(rows)]


def _primus_row(rank: int, row: list[Any], p: int, *, vee: bool) -> Iterator[tuple[str, Any]]:
    batch: list[tuple[int, str]] = []
    for at, node in enumerate(row):
        kind, s = node.func_type.name, placed(rank, node.chunk, p, vee=vee)
        if kind in BACKWARDS:
            yield f"{BACKWARDS[kind]}{s}.{node.mini_batch}", None
            continue
        source, target, sends, letter = node.args["from_pp_rank"], node.args["to_pp_rank"], kind[0] == "S", kind[1]
        if source != target:
            made = s if sends else s - 1 if letter == "F" else s + 1
            word = message(sends, letter, made, node.mini_batch, target if sends else source)
            batch.append(((2 if (source < target) == sends else 0) + (not sends), word))
        after = row[at + 1] if at + 1 < len(row) else None
        comes = after is not None and after.func_type.name not in BACKWARDS
        if not comes or after.args.get("time_step", node.args.get("time_step")) != node.args.get("time_step"):
            yield from ((word, at) for _, word in sorted(batch, key=lambda x: x[0]))
            batch = []


# NVIDIA/jaxpp: the tasks of its schedules


def jaxpp(p: int, m: int, name: str = "Interleaved1F1B", v: int = 1) -> list[list[str]]:
    """Return a schedule class of jaxpp: its computes."""

    class TaskType(enum.Enum):
        FWD, BWD, BWD_I, BWD_W = "F", "B", "I", "W"

        @property
        def default_latency(self) -> int:
            return 2 if self is TaskType.BWD else 1

    bare("jaxpp")
    stub("jaxpp.types", MpmdIdx=int, TaskType=TaskType)
    kind = getattr(import_module("jaxpp.schedules"), name)
    more = {"mpmd_dim": p} if "mpmd_dim" in kind.__dataclass_fields__ else {}
    return [list(_jaxpp_row(row)) for row in kind(num_stages=p * v, **more).tasks(m)]


def _jaxpp_row(row: list[Any]) -> Iterator[str]:
    """Yield the parts of a fused task, which are compiled together, one after the other."""
    for task in row:
        parts = task if isinstance(task, tuple) else () if task is None else (task,)
        yield from (f"{one.fwd_or_bwd.value}{one.stage_id}.{one.mubatch_idx}" for one in parts)
