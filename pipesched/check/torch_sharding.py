"""A stage computes only between its UNSHARD and its RESHARD (FSDP).

What a rank may do next with a stage depends only on what it did last, so a list is right exactly when every pair of
neighbours is:

    start ──> UNSHARD ──> compute ──> compute ──> RESHARD ──> end
                 ^                                   │
                 └───────────────────────────────────┘

From torch 2.15 on REDUCE_GRAD frees the parameters too, and a RESHARD after it is allowed and does nothing.
Source: `_perform_action` and `_assert_unsharded` of ``torch.distributed.pipelining.schedules``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.limited import notes, some
from pipesched.check.place import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.columns import Column, Ints
from pipesched.model.ops import Op
from pipesched.model.program import Program
from pipesched.model.torch_versions import TorchVersion

EDGE, UNSHARD, COMPUTE, RESHARD, REDUCE = range(5)
"""What a rank does with a stage; EDGE is the start and the end of the list."""

ALLOWED = np.zeros((5, 5), dtype=np.bool_)
for _before, _afters in {
    EDGE: (UNSHARD, REDUCE),
    UNSHARD: (COMPUTE,),
    COMPUTE: (COMPUTE, RESHARD, REDUCE),
    RESHARD: (UNSHARD, REDUCE, EDGE),
    REDUCE: (UNSHARD, RESHARD, REDUCE, EDGE),
}.items():
    ALLOWED[_before, _afters] = True

_EVENT = np.full(len(Op), -1, dtype=np.int8)
_EVENT[: Op.B + 1] = COMPUTE
_EVENT[Op.UNSHARD] = UNSHARD
_EVENT[Op.RESHARD] = RESHARD

_TWICE, _UNUSED, _OPEN = "still unsharded here", "gathered here, and nothing waits for it", "freed here"
_STORY = {
    (EDGE, COMPUTE): ("computes before its UNSHARD", "needs the whole parameters", ""),
    (RESHARD, COMPUTE): ("computes after its RESHARD", "needs the whole parameters", _OPEN),
    (REDUCE, COMPUTE): ("computes after its REDUCE_GRAD", "needs the whole parameters", _OPEN),
    (UNSHARD, UNSHARD): ("is unsharded twice", "gathers again", _TWICE),
    (COMPUTE, UNSHARD): ("is unsharded twice", "gathers again", _TWICE),
    (EDGE, RESHARD): ("is resharded before its UNSHARD", "frees what is not there", ""),
    (RESHARD, RESHARD): ("is resharded twice", "frees what is not there", _OPEN),
    (UNSHARD, RESHARD): ("is resharded before anything ran on it", "frees too early", _UNUSED),
    (UNSHARD, REDUCE): ("is reduced before anything ran on it", "reduces too early", _UNUSED),
    (COMPUTE, EDGE): ("is never resharded after its last operation", "its last operation", ""),
    (UNSHARD, EDGE): ("is unsharded and not used", "gathered for nothing", ""),
}
"""By what came before and what comes: what is wrong, and what happens at the second and the first of the two places."""


def check_sharding(program: Program, *, version: TorchVersion, fsdp: bool) -> Iterator[Diagnostic]:
    """The first wrong neighbours of each stage on each rank, where anything is sharded at all."""
    if not fsdp and not bool(np.any(program.op >= Op.UNSHARD)):
        return
    events = _EVENT.copy()
    if version.reduction_reshards:
        events[Op.REDUCE_GRAD] = REDUCE
    index = np.flatnonzero(events[program.op] >= 0)
    key = program.rank[index].astype(np.int64) * (int(program.stage.max()) + 1) + program.stage[index]
    order = np.argsort(key, kind="stable")
    index, key = index[order], key[order]
    pairs = _wrong_pairs(key, events[program.op[index]])
    for (i, pair), more in some(list(pairs.items())):
        yield _tell(program, index, i, pair, more)


def _wrong_pairs(key: Ints, event: Column) -> dict[int, tuple[int, int]]:
    """The first wrong pair of each key, by the entry that comes second (or last, before the end of the list)."""
    first = np.append(True, key[1:] != key[:-1])
    last = np.append(first[1:], True)
    before = np.where(first, EDGE, np.roll(event, 1))
    enter = np.flatnonzero(~ALLOWED[before, event])
    leave = np.flatnonzero(last & ~ALLOWED[event, EDGE])
    pairs = {int(i): (int(event[i]), EDGE) for i in leave} | {int(i): (int(before[i]), int(event[i])) for i in enter}
    places = np.array(sorted(pairs), dtype=np.int64)
    chosen = places[np.unique(key[places], return_index=True)[1]]
    return {i: pairs[i] for i in chosen.tolist()}


def _tell(program: Program, index: Ints, i: int, pair: tuple[int, int], more: str) -> Diagnostic:
    """What is wrong with one stage, at both of its places."""
    what, now, before = _STORY[pair]
    stage, rank = int(program.stage[index[i]]), int(program.rank[index[i]])
    here = label(program, int(index[i]), now)
    return Diagnostic(
        Code.TORCH_SHARDING,
        f"stage {stage} {what} on rank {rank}",
        (here, label(program, int(index[i - 1]), before)) if before else (here,),
        notes(_consequence(pair), more),
        f"{stage}UNSHARD, computes of stage {stage}, {stage}RESHARD, in this order, as often as needed",
    )


def _consequence(pair: tuple[int, int]) -> str:
    if pair == (COMPUTE, EDGE):
        return "with FSDP the first step runs, and the UNSHARD of the second step raises"
    return "with FSDP torch raises on this rank, and the other ranks wait for the timeout"
