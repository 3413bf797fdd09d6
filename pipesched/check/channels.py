"""Checks that each message has one sender and one receiver, and that both ends agree on its contents.

    PS404   the peer is not a rank, or it is the rank itself
    PS405   a message is sent or received twice
    PS402   a send without its receive, or a receive without its send
    PS403   the i-th send and the i-th receive of a channel carry different messages: no error, wrong data

PS403 is the most dangerous: torch's messages have no tags, so a receive takes the first message that arrives.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesched.analysis.pairing import Pairing
from pipesched.check.checks import Subject
from pipesched.check.findings import label, limited, notes, repeats, rows
from pipesched.check.rows import CheckCode
from pipesched.diagnostics import Diagnostic
from pipesched.model.columns import Ints
from pipesched.model.numbers import interval
from pipesched.model.ops import Op, Result
from pipesched.model.schedule import Program


def check_channels(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS402 to PS405; O(messages log messages)."""
    program, pairing = subject.analysis.program, subject.analysis.pairing
    if program is None or pairing is None:
        return
    if matched(program, pairing):
        return
    yield from _peers(program)
    yield from _again(program)
    yield from _unmatched(program, pairing)
    yield from _swapped(program, pairing)


def matched(program: Program, pairing: Pairing) -> bool:
    """Return True if each message is sent and received once, in the same order, and each SYNC has its partner."""
    sends = np.flatnonzero(program.sends)
    receives = pairing.partner[sends]
    if len(sends) != np.count_nonzero(program.receives) or (receives < 0).any():
        return False
    sync = np.flatnonzero(program.op == Op.SYNC)
    ends, sent = np.concatenate([sends, sync]), message_of(program, sends)
    if (program.peer[ends] == program.rank[ends]).any() or (pairing.partner[sync] < 0).any():
        return False
    if not np.array_equal(sent, message_of(program, receives)):
        return False
    if 0 <= int(sent.min(initial=0)) <= int(sent.max(initial=0)) < 8 * len(program):  # marks are faster than a sort
        marks = np.zeros(int(sent.max(initial=0)) + 1, dtype=np.bool_)
        marks[sent] = True
        return bool(np.count_nonzero(marks) == len(sent))
    return len(np.unique(sent)) == len(sent)


_RESULTS = 2 * len(Result)
_RESULT = np.array([(op.kind.result or 0) + len(Result) * op.kind.shape for op in Op], dtype=np.int16)
_OF_KIND = np.array([_RESULTS * (op.receive * op.kind.of + 1) for op in Op], dtype=np.int16) + _RESULT
"""For each kind of message, a number for its result (or the shape of the result) and its producer."""


def message_of(program: Program, index: Ints) -> Ints:
    """Return one number for the message of each send or receive: (producing stage, result or its shape, microbatch).

    RECV_F names the receiving stage, so the producer is the stage before; for RECV_B, it is the stage after. If the
    file names the stages that each stage reads, a message is identified by the stages at both of its ends.
    """
    stage, wide = program.stage[index], int(program.microbatch.max(initial=0)) + 2
    if program.other is not None or _RESULTS * (int(program.stage.max(initial=0)) + 3) * wide >= 2**31:
        stage = stage.astype(np.int64)
    if program.other is not None:
        sends, other = program.sends[index], program.other[index]
        ends = np.where(sends, stage, other) * program.placement.stages + np.where(sends, other, stage)
        return np.asarray((_RESULTS * ends + _RESULT[program.op[index]]) * wide + program.microbatch[index] + 1)
    return np.asarray((_RESULTS * stage + _OF_KIND[program.op[index]]) * wide + program.microbatch[index] + 1)


def _name(program: Program, index: int) -> str:
    """Return the name of a message, including the stage that reads it if that stage is not a neighbour."""
    x = program[index]
    reader = f" for stage {x.stage if x.op.receive else x.other}" if program.other is not None and x.other >= 0 else ""
    what = "shape of the " * x.op.kind.shape + x.op.result.words
    return f"the {what} of stage {x.source}, microbatch {x.microbatch}{reader}"


def _peers(program: Program) -> Iterator[Diagnostic]:
    message = program.sends | program.receives | (program.op == Op.SYNC)
    outside = (program.peer < 0) | (program.peer >= program.ranks) | (program.peer == program.rank)
    for i, more in limited(np.flatnonzero(message & outside).tolist()):
        x, rank = program[i], int(program.rank[i])
        if x.peer == rank:
            what, why = f"{x} names its own rank {rank} as its peer", "a rank cannot send to itself"
            help = "stages on one rank exchange values without a message: remove the send and its receive"
        elif x.peer < 0:
            neighbour = x.stage + x.op.kind.of
            what, why = f"{x} has no peer: no rank runs stage {neighbour}", "waits forever"
            help = "the first stage receives no activation and the last stage no gradient; check the stage number"
        else:
            what, why = f"{x} names rank {x.peer}; ranks are {interval(0, program.ranks)}", "no such rank"
            help = "check the placement"
        yield Diagnostic(CheckCode.PEER, what, (label(program, i, why),), notes(more), help)


def _again(program: Program) -> Iterator[Diagnostic]:
    found = []
    for side in (program.sends, program.receives):
        at = np.flatnonzero(side)
        found += repeats(at, message_of(program, at))
    for (i, before), more in limited(found):
        done = "sent" if program.sends[i] else "received"
        yield Diagnostic(
            CheckCode.SENT_TWICE,
            f"{_name(program, i)} is {done} twice",
            (label(program, i, f"{program[i]} again"), label(program, before, "already here")),
            notes(more),
            "keep one",
        )


def _unmatched(program: Program, pairing: Pairing) -> Iterator[Diagnostic]:
    """Yield findings on messages that only one side lists or, if there are none, on ends without a partner."""
    sends, receives = np.flatnonzero(program.sends), np.flatnonzero(program.receives)
    sent, received = message_of(program, sends), message_of(program, receives)
    alone = [*sends[~np.isin(sent, received)].tolist(), *receives[~np.isin(received, sent)].tolist()]
    proper = (program.peer >= 0) & (program.peer < program.ranks) & (program.peer != program.rank)
    if not alone:
        alone = np.flatnonzero((program.sends | program.receives) & (pairing.partner < 0)).tolist()
    alone += np.flatnonzero((program.op == Op.SYNC) & (pairing.partner < 0)).tolist()
    for i, more in limited([i for i in alone if proper[i]]):
        x, rank = program[i], int(program.rank[i])
        if x.op is Op.SYNC:
            message, other = f"{x} of rank {rank} has no matching SYNC on rank {x.peer}", "SYNC"
        elif program.sends[i]:
            message, other = f"{x} of rank {rank} is never received by rank {x.peer}", "receive"
        else:
            message, other = f"{x} of rank {rank} is never sent by rank {x.peer}", "send"
        yield Diagnostic(
            CheckCode.UNMATCHED,
            message,
            (label(program, i, "waits forever, since the other end is missing"),),
            notes(more),
            f"add the {other} on rank {x.peer}",
        )


def labels_of(program: Program, pairing: Pairing) -> list[tuple[int, ...]]:
    """Return the indices (send, receive) of pairs whose ends carry different messages, in the order of the sends."""
    sends = np.flatnonzero(program.sends & (pairing.partner >= 0))
    receives = pairing.partner[sends]
    wrong = message_of(program, sends) != message_of(program, receives)
    return rows(sends[wrong], receives[wrong])


def _swapped(program: Program, pairing: Pairing) -> Iterator[Diagnostic]:
    """Yield a finding on the first difference on each channel; later differences may follow from it."""
    first: dict[tuple[int, ...], tuple[int, ...]] = {}
    for send, receive in labels_of(program, pairing):
        channel = tuple(int(column[send]) for column in (program.communicator, program.rank, program.peer))
        first.setdefault(channel, (send, receive))
    for (send, receive), more in limited(list(first.values())):
        source, target = int(program.rank[send]), int(program.rank[receive])
        place = int(pairing.sends.place[pairing.sends.at == send][0]) + 1
        yield Diagnostic(
            CheckCode.SWAPPED,
            f"message {place} from rank {source} to rank {target} is {program[send]}, received as {program[receive]}",
            (
                label(program, receive, f"gets {_name(program, send)} instead of {_name(program, receive)}"),
                label(program, send, "the message that arrives instead is sent here"),
            ),
            notes("messages on a channel have no tags and arrive in the order in which they were sent", more),
            "receive on each channel in the order of the sends; no runtime detects the mix-up if the shapes are equal",
        )
