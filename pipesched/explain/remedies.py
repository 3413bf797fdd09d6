"""Suggest remedies for a deadlock: a single change after which no rank waits forever. Each remedy is tried before it is
suggested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.pairing import pair
from pipesched.analysis.standstill import Link
from pipesched.analysis.termination import holds
from pipesched.check.channels import labels_of
from pipesched.check.dataflow import check_order
from pipesched.diagnostics import Diagnostic
from pipesched.model.columns import RESULT
from pipesched.model.schedule import Program, Schedule
from pipesched.schedule_analysis import Analysis

OPERATIONS, INSTRUCTIONS = 20_000, 2_000_000  # most, of an order and of a program
TRIED = 8  # most places of a cycle where they are tried

Order = TypeVar("Order", Schedule, Program)


def cycle(found: Sequence[Diagnostic], schedule: Schedule, waits: Sequence[tuple[int, int]]) -> Sequence[Diagnostic]:
    """Suggest the move of one operation that breaks a cycle of compute orders. waits: the operation at which each rank
    stops, and the operation for which it waits.
    """
    stopped = {int(schedule.rank[at]): at for at, _ in waits}
    for _, awaited in waits[:TRIED] if len(schedule) <= OPERATIONS and not np.any(schedule.second) else ():
        at = stopped[int(schedule.rank[awaited])]
        for source, target in ((awaited, at), (at, awaited)):
            made = Analysis(_moved(schedule, source, target))
            if made.finished and not any(check_order(made.schedule, made.dependencies)):
                where = f"{'before' if source == awaited else 'behind'} {schedule[target]}"
                help = f"on rank {int(schedule.rank[at])}, put {schedule[source]} {where}: then no rank waits forever"
                return [replace(one, help=help) for one in found]
    return found


def deadlock(
    found: Sequence[Diagnostic], program: Program, model: Model, links: Sequence[Link]
) -> Sequence[Diagnostic]:
    """Suggest a remedy for a deadlock: a receive is moved, or messages are put on more communicators."""
    cures = [*_moves(program, model, links), *_communicators(program, model)] if len(program) <= INSTRUCTIONS else []
    help = f"{'; or '.join(cures)}: then the program completes under {model}"
    return [replace(one, help=help) for one in found] if cures else found


def _moves(program: Program, model: Model, links: Sequence[Link]) -> Iterator[str]:
    """Suggest moving a receive in the cycle to an earlier place."""
    for i, link in enumerate(links):
        _, blocked, _ = links[(i + 1) % len(links)].places
        _, _, until = link.places
        if until < 0 or not program.receives[until] or not blocked < until:
            continue
        if _cured(_moved(program, until, blocked), model):
            yield f"on rank {link.other}, put {program[until]} before {program[blocked]}"
            return


def _communicators(program: Program, model: Model) -> Iterator[str]:
    """Suggest more communicators, if messages wait in the queues of a single one."""
    if not model.queued:
        return
    source, target = np.where(program.sends, (program.rank, program.peer), (program.peer, program.rank))
    for apart, words in (
        (RESULT[program.op], "put activations on one communicator and gradients on another"),
        (source * np.int64(program.ranks) + target, "use one communicator per direction between two ranks"),
    ):
        _, communicator = np.unique(np.stack([program.communicator, apart]), axis=1, return_inverse=True)
        if _cured(replace(program, communicator=communicator), model):
            yield words
            return


def _cured(program: Program, model: Model) -> bool:
    """Return True if the program completes and no message is mistaken for another message."""
    return holds(program, model) and not any(labels_of(program, pair(program)))


def _moved(order: Order, source: int, target: int) -> Order:
    """Return an order with an entry moved to another place on its rank; the entries in between shift by one."""
    return order.taken(np.insert(np.delete(np.arange(len(order)), source), target, source))
