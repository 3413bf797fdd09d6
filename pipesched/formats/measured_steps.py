"""What ran on every rank, put together: the order of the operations, and their times by step.

    rank 0   F0 F0 B0 F0 F0 B0 …        the k-th time that an operation runs is in step k
             ---step 0-- ---step 1--

Every operation runs once a step, and a step has the same order each time, as a list of instructions has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pipesched.analysis.measured_run import Measured
from pipesched.diagnostics import Code, fail
from pipesched.formats.rows import SPARE, place, rank_table
from pipesched.model.columns import Column, Ints
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule

Entry: TypeAlias = tuple[Op, int, int]

_WHOLE_STEPS = "profile whole steps, and give the traces of all ranks of one pipeline"


@dataclass(frozen=True, slots=True)
class Record:
    """One slot that ran: its one or two operations, on a rank, in nanoseconds. waited: -1 where nobody tells."""

    rank: int
    entries: tuple[Entry, ...]
    begin: int
    end: int
    waited: int = -1


Slot: TypeAlias = tuple[Entry, ...]


def together(records: Sequence[Record]) -> Measured:
    """The run of which these are the slots.

    Raises:
        PipeschedError: PS818, operations are missing, or are there more often than others, or on two ranks.
    """
    slots = _slots(records)
    steps = _steps(slots)
    ranks = sorted({found[0].rank for found in slots.values()})
    orders: list[list[Slot]] = [[] for _ in ranks]
    for slot, found in sorted(slots.items(), key=lambda item: (item[1][0].begin, item[1][0].end)):
        orders[ranks.index(found[0].rank)].append(slot)
    schedule = _schedule(orders)
    _require_all(schedule)
    zero = min(record.begin for record in records)
    listed = [slots[slot] for order in orders for slot in order for _ in slot]

    def column(name: str, less: int) -> Ints:
        values = [[getattr(found[step], name) - less for found in listed] for step in range(steps)]
        return np.array(values, dtype=np.int64)

    waited = column("waited", 0)
    return Measured(schedule, column("begin", zero), column("end", zero), None if (waited < 0).any() else waited)


def _slots(records: Sequence[Record]) -> dict[Slot, list[Record]]:
    """The times of every slot, in order."""
    slots: dict[Slot, list[Record]] = defaultdict(list)
    owner: dict[Entry, tuple[int, Slot]] = {}
    for record in sorted(records, key=lambda record: (record.begin, record.end, record.rank)):
        slots[record.entries].append(record)
        for entry in record.entries:
            rank, slot = owner.setdefault(entry, (record.rank, record.entries))
            if rank != record.rank:
                message = f"{name(entry)} ran on two ranks, {min(rank, record.rank)} and {max(rank, record.rank)}"
                raise fail(Code.TRACE_INCOMPLETE, message, help="give the traces of the ranks of one pipeline alone")
            if slot != record.entries:
                message = f"{name(entry)} ran in two slots, once in a pair"
                raise fail(Code.TRACE_INCOMPLETE, message, help="give the traces of one schedule alone")
    return slots


def _steps(slots: Mapping[Slot, Sequence[Record]]) -> int:
    """How often everything ran."""
    counts = {slot: len(found) for slot, found in slots.items()}
    most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if counts[most] != counts[least]:
        often = f"{_times(counts[least])} and {name(most[0])} {_times(counts[most])}"
        raise fail(Code.TRACE_INCOMPLETE, f"{name(least[0])} ran {often}", help=_WHOLE_STEPS)
    return counts[most]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _schedule(orders: Sequence[Sequence[Slot]]) -> Schedule:
    """The order of the first step. A rank holds a stage if it ran its operations."""
    flat = [(rank, entry) for rank, order in enumerate(orders) for slot in order for entry in slot]
    rank, op, stage, microbatch = (np.array(column) for column in zip(*((r, *e) for r, e in flat), strict=True))
    shape = int(stage.max()) + 1, int(microbatch.max()) + 1
    if shape[0] * shape[1] > SPARE + 4 * len(flat):
        message = f"{len(flat)} operations for {shape[0]:,} stages and {shape[1]:,} microbatches: most are missing"
        raise fail(Code.TRACE_INCOMPLETE, message, help=_WHOLE_STEPS)
    forward_first: Column = np.argsort(op != Op.F, kind="stable")
    table = rank_table(shape, [(stage[forward_first], microbatch[forward_first], rank[forward_first])])
    listed = [
        [Compute(Op(op), stage, microbatch, i > 0) for slot in order for i, (op, stage, microbatch) in enumerate(slot)]
        for order in orders
    ]
    return Schedule.from_orders(listed, place(table, len(orders)), "measured")


def _require_all(schedule: Schedule) -> None:
    """Whether every stage ran a forward of every microbatch, and each backward that others of its kind did.

    Raises:
        PipeschedError: PS818.
    """
    stages, microbatches = schedule.stages, schedule.microbatches
    halves = {"F": (Op.F,)} if schedule.forward_only else {"F": (Op.F,), "I or B": (Op.I, Op.B), "W or B": (Op.W, Op.B)}
    for letters, ops in halves.items():
        seen = np.zeros((stages, microbatches), dtype=np.bool_)
        chosen = np.isin(schedule.op, ops)
        seen[schedule.stage[chosen], schedule.microbatch[chosen]] = True
        missing = np.argwhere(~seen)
        if len(missing):
            stage, microbatch = missing[0].tolist()
            more = f", and {len(missing) - 1:,} more are missing" if len(missing) > 1 else ""
            message = f"no {letters} of stage {stage} and microbatch {microbatch} was measured{more}"
            raise fail(Code.TRACE_INCOMPLETE, message, help=_WHOLE_STEPS)


def name(entry: Entry) -> str:
    """An operation as people read it."""
    return str(Compute(*entry))
