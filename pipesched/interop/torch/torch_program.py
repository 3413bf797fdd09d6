"""Checks torch's rules on the actions of a program: the version has them, sends have waits, and parameters are
gathered.

    sharding    a stage computes only between its UNSHARD and its RESHARD (FSDP). Whether an action on a stage is
                allowed depends only on the stage's previous action, so a list is correct if all its pairs are:

                    start ──> UNSHARD ──> compute ──> compute ──> RESHARD ──> end
                                 ^                                   │
                                 └───────────────────────────────────┘

                From torch 2.15 on REDUCE_GRAD also frees the parameters, and a RESHARD after it does nothing
    actions     the version of torch must have them (`model.torch_versions`)
    waits       from 2.15 on, every send and reduction needs its own wait; a rank runs one reduction at a time:

                    0SEND_F1  …  0WAIT_SEND_F1          0REDUCE_GRAD  …  0WAIT_REDUCE_GRAD  …  2REDUCE_GRAD

torch's own lowering adds all of these to a pure compute order. Source: `_perform_action`, `_assert_unsharded`,
`_validate_send_waits` and `_prepare_schedule_with_comms` of ``torch.distributed.pipelining.schedules``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes
from pipesched.diagnostics import Diagnostic
from pipesched.interop.codes import InteropCode
from pipesched.model.columns import Column, Ints, fresh
from pipesched.model.ops import COMPUTES, Op
from pipesched.model.schedule import Program
from pipesched.model.torch_versions import ACTIONS, VERSIONS, WAITS, TorchVersion, first_with

EDGE, UNSHARD, COMPUTE, RESHARD, REDUCE = range(5)
"""The kinds of actions of a rank on a stage; EDGE is the start and the end of the list."""

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
_EVENT[list(COMPUTES)] = COMPUTE
_EVENT[Op.UNSHARD] = UNSHARD
_EVENT[Op.RESHARD] = RESHARD

_TWICE, _UNUSED, _OPEN = "still unsharded here", "gathered here, but not used", "freed here"
_STORY = {
    (EDGE, COMPUTE): ("computes before its UNSHARD", "needs the whole parameters", ""),
    (RESHARD, COMPUTE): ("computes after its RESHARD", "needs the whole parameters", _OPEN),
    (REDUCE, COMPUTE): ("computes after its REDUCE_GRAD", "needs the whole parameters", _OPEN),
    (UNSHARD, UNSHARD): ("is unsharded twice", "gathers again", _TWICE),
    (COMPUTE, UNSHARD): ("is unsharded twice", "gathers again", _TWICE),
    (EDGE, RESHARD): ("is resharded before its UNSHARD", "frees parameters that are not gathered", ""),
    (RESHARD, RESHARD): ("is resharded twice", "frees parameters that are not gathered", _OPEN),
    (UNSHARD, RESHARD): ("is resharded before any operation runs on it", "frees too early", _UNUSED),
    (UNSHARD, REDUCE): ("is reduced before any operation runs on it", "reduces too early", _UNUSED),
    (COMPUTE, EDGE): ("is never resharded after its last operation", "its last operation", ""),
    (UNSHARD, EDGE): ("is unsharded but not used", "gathered needlessly", ""),
}
"""For each wrong pair (kind before, kind after): the fault, and the labels of the second and of the first action."""
_AT_ONCE = "torch raises an error on this rank, and the other ranks hang until the timeout"
_LATER = "the first step runs, and the UNSHARD of the second step raises an error"


@dataclass(frozen=True)
class Sharding:
    """The option for sharded stages. fsdp: whether stages are sharded even if the file has no sharding actions."""

    fsdp: bool = False


def check_torch_program(x: Subject) -> Iterator[Diagnostic]:
    """Yield PS805 for compute outside UNSHARD and RESHARD, PS807 for unknown actions, PS808 for wrong waits."""
    program, version = x.own, x.torch
    if x.of(Sharding).fsdp or bool(np.any(program.op >= Op.UNSHARD)):
        yield from _sharding(program, version)
    yield from _unknown(program, version)
    if version.needs_waits:
        yield from _waits(program, f"torch {version} refuses the file")


def _sharding(program: Program, version: TorchVersion) -> Iterator[Diagnostic]:
    """Report, for each stage on each rank, the first pair of consecutive actions that is not allowed."""
    events = _EVENT.copy()
    if version.reduction_reshards:
        events[Op.REDUCE_GRAD] = REDUCE
    index = np.flatnonzero(events[program.op] >= 0)
    key = program.rank[index].astype(np.int64) * (int(program.stage.max()) + 1) + program.stage[index]
    order = np.argsort(key, kind="stable")
    index, key = index[order], key[order]
    pairs = _wrong_pairs(key, events[program.op[index]])
    for (i, pair), more in limited(list(pairs.items())):
        yield _unsharded(program, index, i, pair, more)


def _wrong_pairs(key: Ints, event: Column) -> dict[int, tuple[int, int]]:
    """Return the first wrong pair of events of each key, under the index of the second event, or of the last event if
    the pair contains the end of the list.
    """
    first = fresh(key)
    last = np.append(first[1:], True)
    before = np.where(first, EDGE, np.roll(event, 1))
    enter = np.flatnonzero(~ALLOWED[before, event])
    leave = np.flatnonzero(last & ~ALLOWED[event, EDGE])
    pairs = {int(i): (int(event[i]), EDGE) for i in leave} | {int(i): (int(before[i]), int(event[i])) for i in enter}
    places = np.array(sorted(pairs), dtype=np.int64)
    chosen = places[np.unique(key[places], return_index=True)[1]]
    return {i: pairs[i] for i in chosen.tolist()}


def _unsharded(program: Program, index: Ints, i: int, pair: tuple[int, int], more: str) -> Diagnostic:
    """Return the finding on a wrong pair of actions of one stage, with labels at both."""
    what, now, before = _STORY[pair]
    stage, rank = int(program.stage[index[i]]), int(program.rank[index[i]])
    here = label(program, int(index[i]), now)
    return Diagnostic(
        InteropCode.TORCH_SHARDING,
        f"stage {stage} {what} on rank {rank}",
        (here, label(program, int(index[i - 1]), before)) if before else (here,),
        notes(f"with FSDP {_LATER if pair == (COMPUTE, EDGE) else _AT_ONCE}", more),
        f"write {stage}UNSHARD, then compute operations of stage {stage}, then {stage}RESHARD; repeat as needed",
    )


def _unknown(program: Program, version: TorchVersion) -> Iterator[Diagnostic]:
    """Report actions that the version lacks; STEP is allowed, since the caller of torch's runtime performs it."""
    unknown = ~np.isin(program.op, [*version.accepts, Op.STEP])
    for index, more in limited(np.flatnonzero(unknown).tolist()):
        op = Op(int(program.op[index]))
        since = f"it was introduced in {first_with(op)}" if op in ACTIONS else "no version has it"
        yield Diagnostic(
            InteropCode.TORCH_VERSION,
            f"torch {version} has no {op.name}: {since}",
            (label(program, index, f"{program[index]}"),),
            notes(more),
        )


def _waits(program: Program, refused: str) -> Iterator[Diagnostic]:
    """Report missing and wrong waits; a file without any wait gets one finding instead of one per send."""
    if bool(np.any(np.isin(program.op, list(WAITS)))):
        yield from _send_waits(program, refused)
        yield from _reduction_waits(program, refused)
        return
    unwaited = np.flatnonzero(program.sends | (program.op == Op.REDUCE_GRAD))
    if len(unwaited):
        without = [version for version in VERSIONS if not version.needs_waits]
        yield Diagnostic(
            InteropCode.TORCH_WAIT,
            f"none of the {len(unwaited):,} sends and reductions is waited for: {refused}",
            (label(program, int(unwaited[0]), "the first one without a WAIT"),),
            (f"torch {without[-1]} and earlier have no waits, and misread them",),
            "write WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD, or give torch only the compute order to lower",
        )


def _send_waits(program: Program, refused: str) -> Iterator[Diagnostic]:
    """Report each message of a rank that does not have exactly one send followed by one wait."""
    index = np.flatnonzero(program.sends | np.isin(program.op, (Op.WAIT_SEND_F, Op.WAIT_SEND_B)))
    key = _message(program, index)
    order = np.argsort(key, kind="stable")
    index, key = index[order], key[order]
    begin = np.flatnonzero(fresh(key))
    size = np.diff(begin, append=len(key))
    send = np.append(program.sends[index], False)
    wrong = np.flatnonzero((size != 2) | ~send[begin] | send[begin + 1])
    groups = sorted(index[begin[i] : begin[i] + size[i]].tolist() for i in wrong.tolist())
    for group, more in limited(groups):
        yield _send_finding(program, group, refused, more)


def _message(program: Program, index: Ints) -> Ints:
    """Return a key for the message of each entry: unique for (rank, stage, microbatch, activation or gradient)."""
    gradient = np.isin(program.op[index], (Op.SEND_B, Op.WAIT_SEND_B))
    stages, microbatches = int(program.stage.max(initial=0)) + 1, int(program.microbatch.max(initial=0)) + 1
    held = program.rank[index].astype(np.int64) * stages + program.stage[index]
    return np.asarray((held * microbatches + program.microbatch[index]) * 2 + gradient)


def _send_finding(program: Program, group: list[int], refused: str, more: str) -> Diagnostic:
    """Return the finding on the sends and waits of one message; group: their indices in the order of the list."""
    sends = [i for i in group if program.sends[i]]
    waits = [i for i in group if not program.sends[i]]
    name = str(program[group[0]]).replace("WAIT_", "")
    wait = name.replace("SEND", "WAIT_SEND")
    help = "each message needs exactly one send, followed by one wait"
    if len(sends) > 1:
        what = f"{name} occurs {len(sends)} times"
        labels = [label(program, sends[1], "sent again"), label(program, sends[0], "sent here already")]
    elif not sends or (waits and waits[0] < sends[0]):
        what = f"{wait} has no earlier {name}"
        labels = [label(program, waits[0], "waits for a send that is not posted yet")]
        labels += [label(program, i, "posted only here") for i in sends]
    elif len(waits) > 1:
        what = f"{wait} occurs {len(waits)} times"
        labels = [label(program, waits[1], "waits again"), label(program, waits[0], "already waited for here")]
    else:
        what = f"{name} has no {wait}"
        labels = [label(program, sends[0], "this send has no wait")]
        help = f"add {wait} where the other rank has certainly posted its receive, at the latest at the end of the row"
    return Diagnostic(InteropCode.TORCH_WAIT, f"{what}: {refused}", tuple(labels), notes(more), help)


def _reduction_waits(program: Program, refused: str) -> Iterator[Diagnostic]:
    """Report two concurrent reductions of a rank, and reductions or waits without their counterpart."""
    index = np.flatnonzero(np.isin(program.op, (Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD)))
    found: list[tuple[int, int, str, str]] = []
    for rank in np.unique(program.rank[index]).tolist():
        found += _reductions(program, index[program.rank[index] == rank].tolist())
    for (i, other, here, what), more in limited(sorted(found)):
        labels = [label(program, i, here)]
        labels += [label(program, other, "still pending")] if other >= 0 else []
        help = "each REDUCE_GRAD needs a WAIT_REDUCE_GRAD of its stage before the next REDUCE_GRAD of the rank"
        yield Diagnostic(InteropCode.TORCH_WAIT, f"{what}: {refused}", tuple(labels), notes(more), help)


def _reductions(program: Program, index: list[int]) -> Iterator[tuple[int, int, str, str]]:
    """Yield (index, index of the pending reduction or -1, label text, message) for each fault in the reductions."""
    pending = -1
    for i in index:
        stage = int(program.stage[i])
        if program.op[i] == Op.REDUCE_GRAD:
            if pending >= 0:
                yield i, pending, "begins too early", f"{program[i]} begins while {program[pending]} is pending"
            pending = i
        elif pending < 0 or program.stage[pending] != stage:
            yield (
                i,
                pending,
                "no such reduction is pending",
                f"{program[i]} has no earlier {stage}REDUCE_GRAD",
            )
        else:
            pending = -1
    if pending >= 0:
        yield (
            pending,
            -1,
            "it has no wait",
            f"{program[pending]} has no {int(program.stage[pending])}WAIT_REDUCE_GRAD",
        )
