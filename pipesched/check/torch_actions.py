"""The actions that a version of torch accepts, and the waits that it needs (since 2.15).

From 2.15 on every send is waited for by name, and so is every reduction, of which a rank has one at a time:

    0SEND_F1  …  0WAIT_SEND_F1          0REDUCE_GRAD  …  0WAIT_REDUCE_GRAD  …  2REDUCE_GRAD

Before 2.15 there are no waits: sends are waited for at the end of the step. Source: `_validate_send_waits` and
`_prepare_schedule_with_comms` of ``torch.distributed.pipelining.schedules`` 2.15.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.check.limited import notes, some
from pipesched.check.place import label
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.model.program import Program
from pipesched.model.torch_versions import ACTIONS, VERSIONS, WAITS, TorchVersion, first_with


def check_actions(program: Program, *, version: TorchVersion) -> Iterator[Diagnostic]:
    """PS807 actions that this version does not know; PS808, from 2.15 on, waits that are missing or out of place."""
    yield from _unknown(program, version)
    if not version.needs_waits:
        return
    refused = f"torch {version} refuses the file"
    if bool(np.any(np.isin(program.op, list(WAITS)))):
        yield from _send_waits(program, refused)
        yield from _reduction_waits(program, refused)
    else:
        yield from _no_waits(program, refused)


def _unknown(program: Program, version: TorchVersion) -> Iterator[Diagnostic]:
    """STEP is not an action of torch either, but there the caller steps, so nothing is lost."""
    unknown = ~np.isin(program.op, [*version.accepts, Op.STEP])
    for index, more in some(np.flatnonzero(unknown).tolist()):
        op = Op(int(program.op[index]))
        since = f"it came with {first_with(op)}" if op in ACTIONS else "no version has it"
        yield Diagnostic(
            Code.TORCH_VERSION,
            f"torch {version} has no {op.name}: {since}",
            (label(program, index, f"{program[index]}"),),
            notes(more),
        )


def _no_waits(program: Program, refused: str) -> Iterator[Diagnostic]:
    """A file from before 2.15: one finding, not one a send."""
    wanting = np.flatnonzero(program.sends | (program.op == Op.REDUCE_GRAD))
    if len(wanting):
        without = [version for version in VERSIONS if not version.needs_waits]
        yield Diagnostic(
            Code.TORCH_WAIT,
            f"none of the {len(wanting):,} sends and reductions is waited for: {refused}",
            (label(program, int(wanting[0]), "the first that wants its WAIT"),),
            (f"torch {without[-1]} and earlier have no waits, and misread them",),
            "write WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD, or let torch lower the computes alone",
        )


def _send_waits(program: Program, refused: str) -> Iterator[Diagnostic]:
    """Every message of a rank is one send and then one wait: sorted by message, a list of such pairs."""
    index = np.flatnonzero(program.sends | np.isin(program.op, (Op.WAIT_SEND_F, Op.WAIT_SEND_B)))
    key = _message(program, index)
    order = np.argsort(key, kind="stable")
    index, key = index[order], key[order]
    begin = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    size = np.diff(begin, append=len(key))
    send = np.append(program.sends[index], False)
    wrong = np.flatnonzero((size != 2) | ~send[begin] | send[begin + 1])
    groups = sorted(index[begin[i] : begin[i] + size[i]].tolist() for i in wrong.tolist())
    for group, more in some(groups):
        yield _tell_send(program, group, refused, more)


def _message(program: Program, index: Ints) -> Ints:
    """A number for (rank, stage, microbatch, activation or gradient)."""
    gradient = np.isin(program.op[index], (Op.SEND_B, Op.WAIT_SEND_B))
    stages, microbatches = int(program.stage.max(initial=0)) + 1, int(program.microbatch.max(initial=0)) + 1
    held = program.rank[index].astype(np.int64) * stages + program.stage[index]
    return np.asarray((held * microbatches + program.microbatch[index]) * 2 + gradient)


def _tell_send(program: Program, group: list[int], refused: str, more: str) -> Diagnostic:
    """What is wrong with the sends and waits of one message, in the order of the list."""
    sends = [i for i in group if program.sends[i]]
    waits = [i for i in group if not program.sends[i]]
    name = str(program[group[0]]).replace("WAIT_", "")
    wait = name.replace("SEND", "WAIT_SEND")
    help = "one send, and after it one wait"
    if len(sends) > 1:
        what = f"{name} is there {len(sends)} times"
        labels = [label(program, sends[1], "sent again"), label(program, sends[0], "sent here already")]
    elif not sends or (waits and waits[0] < sends[0]):
        what = f"{wait} comes without an earlier {name}"
        labels = [label(program, waits[0], "waits for a send that is not posted yet")]
        labels += [label(program, i, "posted only here") for i in sends]
    elif len(waits) > 1:
        what = f"{wait} is there {len(waits)} times"
        labels = [label(program, waits[1], "waits again"), label(program, waits[0], "waited for here already")]
    else:
        what = f"{name} has no {wait}"
        labels = [label(program, sends[0], "nothing waits for this send")]
        help = f"add {wait} where the other rank has posted its receive for sure, at the latest at the end of the row"
    return Diagnostic(Code.TORCH_WAIT, f"{what}: {refused}", tuple(labels), notes(more), help)


def _reduction_waits(program: Program, refused: str) -> Iterator[Diagnostic]:
    """A rank has at most one reduction under way, and waits for each."""
    index = np.flatnonzero(np.isin(program.op, (Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD)))
    found: list[tuple[int, int, str, str]] = []
    for rank in np.unique(program.rank[index]).tolist():
        found += _reductions(program, index[program.rank[index] == rank].tolist())
    for (i, other, here, what), more in some(sorted(found)):
        labels = [label(program, i, here)]
        labels += [label(program, other, "still under way")] if other >= 0 else []
        help = "REDUCE_GRAD, then WAIT_REDUCE_GRAD of the same stage, before the next REDUCE_GRAD of the rank"
        yield Diagnostic(Code.TORCH_WAIT, f"{what}: {refused}", tuple(labels), notes(more), help)


def _reductions(program: Program, index: list[int]) -> Iterator[tuple[int, int, str, str]]:
    """What is wrong with the reductions of one rank: where, the one under way or -1, what happens there, the fact."""
    pending = -1
    for i in index:
        stage = int(program.stage[i])
        if program.op[i] == Op.REDUCE_GRAD:
            if pending >= 0:
                yield i, pending, "begins too early", f"{program[i]} begins while {program[pending]} is under way"
            pending = i
        elif pending < 0 or program.stage[pending] != stage:
            yield (
                i,
                pending,
                "no such reduction is under way",
                f"{program[i]} comes without an earlier {stage}REDUCE_GRAD",
            )
        else:
            pending = -1
    if pending >= 0:
        yield (
            pending,
            -1,
            "nothing waits for it",
            f"{program[pending]} has no {int(program.stage[pending])}WAIT_REDUCE_GRAD",
        )
