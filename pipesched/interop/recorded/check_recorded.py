"""Checks a recorded run against its plan: messages that differ from the plan, and the cause if the run stops.

PS893   a rank left no record
PS894   a rank sent or received a different message from the one at that position of the channel in the plan, or used a
        channel that the plan does not have
PS896   the two ends of a message have different sizes
PS895   the record ends within a step; the finding names the shortest cycle of waits, or the rank that others wait for
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pipesched.analysis.cycle import shortest_cycle
from pipesched.analysis.standstill import together
from pipesched.check.findings import label, limited, notes
from pipesched.diagnostics import Diagnostic, Label
from pipesched.interop.codes import InteropCode
from pipesched.interop.recorded.job import named
from pipesched.interop.recorded.recorded_run import SCHEDULED, STATES, Held, Wait
from pipesched.model.columns import Ints
from pipesched.model.ops import Instruction, Op, Result

LISTED = 8  # most ranks of a list that are named


def check_recorded(held: Held, *, written: bool) -> Iterator[Diagnostic]:
    """Yield PS893 to PS896; O(messages log messages). written: True if the file contains the messages."""
    yield from _absent(held)
    if held.recorded.cut:
        yield _cut(held)
        yield from _stopped(held)
        return
    yield from _outside(held)
    yield from _differences(held)
    if written and not held.recorded.named:
        yield from _misplaced(held)
    yield from _sizes(held)
    yield from _stopped(held)


def _rank(held: Held, rank: int) -> str:
    """Return the name of a rank of the pipeline, with its rank in the job if that differs."""
    job = held.recorded.job
    return f"rank {rank}" if not job or job[rank] == rank else f"rank {rank} ({job[rank]} of the job)"


def _name(x: Instruction) -> str:
    """Return the name of a message, after the operation that made it, as in the order notation."""
    letter = "F" if x.op.result is Result.ACTIVATION else "B"
    return f"{'the shape of ' * x.op.kind.shape}{letter}{x.source}.{x.microbatch}"


def _posted(held: Held, entry: int) -> Instruction:
    made = held.recorded
    return Instruction(Op(int(made.op[entry])), int(made.stage[entry]), int(made.microbatch[entry]))


def _absent(held: Held) -> Iterator[Diagnostic]:
    if absent := held.recorded.absent:
        yield Diagnostic(
            InteropCode.RANK_ABSENT,
            f"no record of {named([_rank(held, rank).removeprefix('rank ') for rank in absent])}",
            notes=("its messages are known only from the records of other ranks",),
            help="a rank that was killed writes no record: look at its log first",
        )


def _cut(held: Held) -> Diagnostic:
    return Diagnostic(
        InteropCode.RECORD,
        f"the dump of {held.recorded.cut}: earlier entries were overwritten, so messages cannot be counted",
        notes=("messages are not compared with the schedule; unfinished messages are paired in posting order",),
        help="set TORCH_FR_BUFFER_SIZE to more than the number of entries in a run",
    )


def _outside(held: Held) -> Iterator[Diagnostic]:
    """Report the first entry on each channel that is not in the plan."""
    made = held.recorded
    outside = np.flatnonzero(held.planned < 0)
    _, first = np.unique(np.stack([made.rank[outside], held.posted.key[outside]]), axis=1, return_index=True)
    for i, more in limited(np.sort(outside[first]).tolist()):
        x, rank, peer = _posted(held, i), int(made.rank[i]), int(made.peer[i])
        what = f" {_name(x)}" if made.named else ""
        done, towards = ("sent", "to") if x.op.send else ("received", "from")
        where = f"{towards} rank {peer}" if peer >= 0 else f"{towards} another rank"
        where += f" on communicator {made.communicator[i]}" if made.communicator[i] else ""
        yield Diagnostic(
            InteropCode.OTHER_MESSAGE,
            f"{_rank(held, rank)} {done}{what} {where}: its plan has no such message",
            notes=notes(f"entry {made.entry[i]} of {_rank(held, rank)}", more),
            help="give the schedule that ran, at the same sizes",
        )


def _first_by_channel(held: Held, wrong: Ints) -> list[int]:
    """Return the first of these entries on each channel (the sender's if both ends have one), in posting order."""
    by = wrong[np.lexsort((held.posted.key[wrong], held.position[wrong]))]
    _, first = np.unique(held.posted.key[by] // 2, return_index=True)
    chosen = by[first]
    place = chosen - held.recorded.start[held.recorded.rank[chosen]]
    found: list[int] = chosen[np.lexsort((held.recorded.rank[chosen], place))].tolist()
    return found


def _differences(held: Held) -> Iterator[Diagnostic]:
    made, program = held.recorded, held.program
    if not made.named:
        return
    at = np.maximum(held.planned, 0)
    other = np.zeros(len(made.op), dtype=np.bool_)
    for name in ("op", "stage", "microbatch"):
        other |= getattr(made, name) != getattr(program, name)[at]
    other &= held.planned >= 0
    for i, more in limited(_first_by_channel(held, np.flatnonzero(other))):
        x, planned = _posted(held, i), int(held.planned[i])
        rank, peer, end = int(made.rank[i]), int(made.peer[i]), int(held.partner[i])
        said, meant = _name(x), _name(program[planned])
        if not x.op.send:
            message = f"rank {rank} received as {said} the message that rank {peer} sent as {meant}"
        elif end >= 0 and other[end]:
            message = (
                f"rank {rank} sent {said} and rank {peer} took it for {_name(_posted(held, end))}; the plan has {meant}"
            )
        elif end >= 0:
            message = f"rank {rank} sent {said} where rank {peer} expected {meant}"
        else:
            message = f"rank {rank} sent {said} where its plan has {meant}, for rank {peer}"
        yield Diagnostic(
            InteropCode.OTHER_MESSAGE,
            message,
            (label(program, planned, f"the plan has {meant} here"),),
            notes(_where(held, i), f"{np.count_nonzero(other):,} posts differ from the planned messages", more),
            "a channel's i-th message must be the i-th in the plan: post in that order, or verify the program that ran",
        )


def _misplaced(held: Held) -> Iterator[Diagnostic]:
    """In a record without names, report each rank's first message on a different channel from the planned one."""
    for i, more in limited([i for i in held.misplaced.tolist() if i >= 0 and held.planned[i] >= 0]):
        rank, planned = int(held.recorded.rank[i]), int(held.planned[i])
        yield Diagnostic(
            InteropCode.OTHER_MESSAGE,
            f"{_rank(held, rank)} posted messages in a different order from its list: {words(held, i)}",
            (label(held.program, planned, "it arrives as this message, the next one on its channel"),),
            notes(_where(held, i), more),
            "give the program that ran",
        )


def words(held: Held, entry: int) -> str:
    """Describe an entry by its number, direction and peer, without the name of its message."""
    made = held.recorded
    send = Op(int(made.op[entry])).send
    return f"entry {made.entry[entry]} is a {'send to' if send else 'receive from'} rank {made.peer[entry]}"


def _where(held: Held, entry: int) -> str:
    """Return the position of an entry, as in ``message 3 from rank 0 to rank 1 in step 2, entry 17 of rank 0``."""
    made = held.recorded
    rank, peer = int(made.rank[entry]), int(made.peer[entry])
    source, target = (rank, peer) if Op(int(made.op[entry])).send else (peer, rank)
    number = int(held.position[entry] - held.step[entry] * held.a_step[entry]) + 1
    which = f"message {number} from rank {source} to rank {target} in step {held.step[entry] + 1}"
    return f"{which}, entry {made.entry[entry]} of {_rank(held, rank)}"


def _sizes(held: Held) -> Iterator[Diagnostic]:
    made = held.recorded
    send = held.posted.key % 2 == 0
    end = np.maximum(held.partner, 0)
    other = send & (held.partner >= 0) & (made.size >= 0) & (made.size[end] >= 0) & (made.size != made.size[end])
    for i, more in limited(_first_by_channel(held, np.flatnonzero(other))):
        sent, taken = (made.sizes[int(made.size[x])] for x in (i, held.partner[i]))
        yield Diagnostic(
            InteropCode.MESSAGE_SIZE,
            f"rank {made.rank[i]} sent {sent}, and rank {made.peer[i]} allocated {taken}",
            (label(held.program, int(held.planned[i]), "this message of the plan"),) if held.planned[i] >= 0 else (),
            notes(_where(held, i), more),
            "the two ends belong to different messages, or to models that were split differently",
        )


def _stopped(held: Held) -> Iterator[Diagnostic]:
    if held.over:
        return
    waits = {wait.rank: wait for wait in held.waits()}
    if waits.keys() <= set(held.recorded.absent):
        return  # every rank with a record has posted all of its messages
    cycle = shortest_cycle(waits, lambda rank: [x for x in (waits[rank].other,) if x in waits])
    step = "the run stops" + ("" if held.recorded.cut else f" in step {held.stands_in}")
    if cycle:
        shown, message = cycle, f"{step}: {together(cycle)}"
        help = "verify the plan under this run's communication model: `--comm one-stream` if each rank has one queue"
    else:
        roots = Counter(_root(waits, rank) for rank in waits)
        root = max(roots, key=lambda rank: (roots[rank], -rank))
        others = [rank for rank in waits if rank != root and _root(waits, rank) == root]
        shown = [root, *others[: LISTED // 2]]
        waiting = f", and {named(others)} wait{'s' * (len(others) == 1)} for it" * bool(others)
        message = f"{step}: {_root_words(held, waits, root)}{waiting}"
        help = f"look at {_rank(held, root)} first: its log, its stack, its device"
    labels = tuple(found for rank in shown if rank in waits for found in _label(held, waits[rank]))
    scheduled = np.count_nonzero(held.recorded.state == SCHEDULED)
    unstarted = f"{scheduled:,} messages were posted but never started" if scheduled else ""
    yield Diagnostic(InteropCode.RUN_STOPS, message, labels, notes(_unposted(held), unstarted), help)


def _root(waits: dict[int, Wait], rank: int) -> int:
    """Return the last rank of the chain of waits that begins at `rank`; the waits have no cycle."""
    while rank in waits and waits[rank].other >= 0:
        rank = waits[rank].other
    return rank


def _root_words(held: Held, waits: dict[int, Wait], root: int) -> str:
    wait, who = waits.get(root), _rank(held, root)
    if root in held.recorded.absent:
        return f"{who} left no record"
    if wait is None:
        return f"{who} has no message in transit" if held.recorded.cut else f"{who} has posted all its messages"
    if wait.entry >= 0:
        return f"{who} and rank {held.recorded.peer[wait.entry]} have both posted a message that has not finished"
    return f"{who} posted no further message"


def _label(held: Held, wait: Wait) -> Iterator[Label]:
    """Yield the label that names the message in which a rank waits, at its place in the plan."""
    if wait.planned < 0 and wait.entry < 0:
        return
    x = held.program[wait.planned] if wait.planned >= 0 else _posted(held, wait.entry)
    peer = x.peer if wait.planned >= 0 else held.recorded.peer[wait.entry]
    done, towards = ("send", "to") if x.op.send else ("receive", "from")
    what = f"the {done}{f' of {_name(x)}' if wait.planned >= 0 else ''} {towards} rank {peer}"
    if wait.entry < 0:
        text = f"waits in {what}, which has not sent it" if wait.other >= 0 else f"next would be {what}"
    else:
        state = int(held.recorded.state[wait.entry])
        entry = f"entry {held.recorded.entry[wait.entry]}" + (f", {STATES[state]}" if state >= 0 else "")
        why = "is queued behind another message" if wait.other >= 0 else "is also posted"
        text = f"waits in {what} ({entry}), whose other end {why if wait.queued else 'is not posted'}"
    yield label(held.program, wait.planned, text) if wait.planned >= 0 else Label(None, f"rank {wait.rank}: {text}")


def _unposted(held: Held) -> str:
    """Return a note that states, for each rank, how many messages of the step it did not post."""
    program = held.program
    if held.recorded.cut:
        return ""
    ranks = np.bincount(program.rank[held.plan.index[held.unposted]], minlength=program.ranks)
    whole = np.bincount(program.rank[held.plan.index], minlength=program.ranks)
    behind = np.flatnonzero(ranks)
    if not len(behind):
        return ""
    said = [
        f"rank {r}: {ranks[r]} of {whole[r]}, from {program[int(held.next[r])]} on" for r in behind[:LISTED].tolist()
    ]
    more = [f"{len(behind) - LISTED} more ranks"] if len(behind) > LISTED else []
    return f"messages of the step that were never posted: {'; '.join(said + more)}"
