"""Lowers a program to torch's actions: gathering and freeing of sharded stages, waits for sends and reductions.

    UNSHARD, RESHARD     before every slot the next three different stages of the rank are gathered, no others:

        slots     F0 F2 F4 F0 …                      stages by next use at F0: 0 2 4, so all three are gathered;
        before    UNSHARD 0, 2, 4 | - | RESHARD 2, UNSHARD 6 | …           any other stage is freed

    WAIT_SEND_F          from 2.15: after the I or B of the same stage and microbatch, since the other rank has used
                         the message by then; without such an operation, at the end. WAIT_SEND_B: at the end
    WAIT_REDUCE_GRAD     from 2.15: after its REDUCE_GRAD
    SYNC, STEP           removed: torch has no such actions; the runtime's caller steps the optimizer

An overlap pair is one slot: if the third stage is the first part of a pair, a fourth stage is gathered too. A program
with its own sharding actions keeps them. Source: `_add_unshard_reshard` and `_add_wait_send` of torch's
``schedules.py``, which follow the same rule; here the slots are visited once, from the last to the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipesched.model.columns import Column, Ints, computes, makes
from pipesched.model.lists import Chosen
from pipesched.model.ops import Op, Result
from pipesched.model.schedule import Program
from pipesched.model.torch_versions import WAITS, TorchVersion

RESIDENT = 3
"""The number of stages that a rank keeps gathered: one runs forward, one runs backward, one is prefetched."""

_BEFORE, _ITSELF, _AFTER, _END = range(4)


def torch_actions(program: Program, version: TorchVersion) -> Program:
    """Return the program with the sharding actions and waits of this version of torch; O(instructions)."""
    kept = program.taken(np.flatnonzero(~np.isin(program.op, (*WAITS, Op.SYNC, Op.STEP))))
    added = [] if bool(np.any(kept.op >= Op.UNSHARD)) else [_sharding(kept)]
    if version.needs_waits:
        reductions = np.flatnonzero(kept.op == Op.REDUCE_GRAD)
        op, none = np.full(len(reductions), Op.WAIT_REDUCE_GRAD), np.full(len(reductions), -1)
        added += [_send_waits(kept), Added(4 * reductions + _AFTER, op, kept.stage[reductions], none)]
    return _with(kept, added)


@dataclass(frozen=True, eq=False)
class Added:
    """Instructions to insert. at: four times the index of a neighbour in the program, plus _BEFORE, _AFTER or _END."""

    at: Ints
    op: Column
    stage: Column
    microbatch: Column


def _sharding(program: Program) -> Added:
    rows = [row for rank in range(program.ranks) for row in _shard_rank(program, rank)]
    at, op, stage = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Added(at, op, stage, np.full(len(at), -1))


def _shard_rank(program: Program, rank: int) -> Iterator[tuple[int, int, int]]:
    """Yield (position as in `Added.at`, UNSHARD or RESHARD, stage) for one rank, in order."""
    slots = _slots(program, rank)
    whole: dict[int, None] = {}  # in the order in which they were gathered
    for (index, _), wanted in zip(slots, _resident([stages for _, stages in slots]), strict=True):
        if wanted == tuple(whole):
            continue
        for stage in [stage for stage in whole if stage not in wanted]:
            del whole[stage]
            yield 4 * index + _BEFORE, Op.RESHARD, stage
        for stage in wanted:
            if stage not in whole:
                whole[stage] = None
                yield 4 * index + _BEFORE, Op.UNSHARD, stage
    for stage in whole:
        yield 4 * int(program.start[rank + 1] - 1) + _END, Op.RESHARD, stage


def _slots(program: Program, rank: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return, for each slot of a rank, the index of its first operation and its stages."""
    low, high = int(program.start[rank]), int(program.start[rank + 1])
    index = low + np.flatnonzero(computes(program.op[low:high]))
    joined = program.second[index] & (np.diff(index, prepend=-2) == 1)
    stages = program.stage[index].tolist()
    first = np.flatnonzero(~joined).tolist()
    ends = [*first[1:], len(stages)][: len(first)]
    return [(int(index[i]), tuple(stages[i:end])) for i, end in zip(first, ends, strict=True)]


def _resident(slots: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return, for each slot, the stages to be gathered, sorted by their next use from that slot on."""
    resident: list[tuple[int, ...]] = []
    upcoming: list[int] = []
    used: dict[int, int] = {}
    for number in range(len(slots) - 1, -1, -1):
        for stage in reversed(slots[number]):
            if not upcoming or upcoming[0] != stage:
                if stage in used:
                    upcoming.remove(stage)
                upcoming.insert(0, stage)
            used[stage] = number
        count = RESIDENT
        while count < len(upcoming) and used[upcoming[count]] == used[upcoming[count - 1]]:
            count += 1
        resident.append(tuple(upcoming[:count]))
    return resident[::-1]


def _send_waits(program: Program) -> Added:
    """Return the waits for all sends, each at a position where it does not block the rank."""
    sends = np.flatnonzero(program.sends)
    table = np.full(program.stages * program.microbatches, -1, dtype=np.int64)
    done = np.flatnonzero(makes(program.op, Result.GRADIENT))[::-1]
    table[program.key(done)] = done
    after = table[program.key(sends)]
    forward = (program.op[sends] == Op.SEND_F) & (after >= 0)
    last = program.start[program.rank[sends] + 1] - 1
    at = np.where(forward, 4 * after + _AFTER, 4 * last + _END)
    op = np.where(program.op[sends] == Op.SEND_F, Op.WAIT_SEND_F, Op.WAIT_SEND_B)
    return Added(at, op, program.stage[sends], program.microbatch[sends])


def _with(program: Program, added: list[Added]) -> Program:
    """Insert instructions into a program. The sort is stable: instructions added at the same place keep their order."""
    size = len(program)
    extra = sum(len(more.at) for more in added)
    at = np.concatenate([4 * np.arange(size) + _ITSELF, *(more.at for more in added)])
    order = np.argsort(at, kind="stable")

    def column(name: str, own: Column, fill: int) -> Column:
        more = [getattr(more, name) for more in added] if name else [np.full(extra, fill)]
        return np.concatenate([own, *more])[order].astype(own.dtype)

    return replace(
        program,
        op=column("op", program.op, -1),
        stage=column("stage", program.stage, -1),
        microbatch=column("microbatch", program.microbatch, -1),
        peer=column("", program.peer, -1),
        group=column("", program.group, -1),
        communicator=column("", program.communicator, 0),
        second=column("", program.second, 0),
        start=np.searchsorted(at[order] // 4, program.start).astype(np.int64),
        origin=Chosen(program.origin, np.concatenate([np.arange(size), np.full(extra, -1)])[order]),
    )
