"""Reads measured runs from Chrome's trace events, which may contain many other events.

    {"ph": "X", "name": "PP:2F1", "ts": 12.5, "dur": 80.25}                              torch's profiler
    {"ph": "X", "args": {"op": "F", "stage": 2, "microbatch": 1}, "ts": …, "dur": …}     `pipesched run --trace`

torch's pipeline runtime records each action under its CSV name, one file per rank (`_get_profiler_function_name` in
torch.distributed.pipelining.schedules, 2.13); the file gives its rank under `distributedInfo`, and the origin of its
times under `baseTimeNanoseconds`. Times are microseconds in the file, and whole nanoseconds here. A trace of `pipesched
run` can contain all ranks, and records how long an operation waited. An operation occurs once per step.
Copies of an action that the profiler adds for a device (`gpu_user_annotation`) are ignored.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from os import PathLike, fsdecode
from typing import TypeAlias

import numpy as np

from pipesched.diagnostics import Code, Label, budgeted, fail
from pipesched.library.inputs import read_path
from pipesched.model.columns import Column, Ints, makes
from pipesched.model.ops import LETTERS, MAKERS, Compute, Op, Result
from pipesched.model.schedule import Schedule
from pipesched.model.torch_versions import NEWEST
from pipesched.orders.implied import Bad, place, rank_table
from pipesched.orders.limits import SPARE
from pipesched.orders.torch_csv import read_cell
from pipesched.runtime.codes import RuntimeCode
from pipesched.runtime.measured.measured_run import Measured
from pipesched.support import budget
from pipesched.support import files as opened
from pipesched.support.foreign import json_of
from pipesched.support.source import Source

_PREFIX = "PP:"
_WHERE = "traces of `pipesched run --trace FILE`, or of torch's profiler around a schedule of torch's pipeline runtime"
_LONGEST = 2**62  # nanoseconds, 146 years
_STAGES = 4096


def read(sources: Sequence[Source]) -> Measured:
    """Read a run from its traces: one file for all ranks, or one per rank.

    Raises:
        PipeschedError: PS816 if there is no trace, or no pipeline operation in it; PS818 if operations are missing,
            occur more often than others, or on two ranks; PS843 if reading exceeds its budget.
    """
    found = [_records(source, number) for number, source in enumerate(sources)]
    with budgeted("the trace"):
        made = together([record for records, _ in found for record in records])
    return replace(made, kernels=any(kernels for _, kernels in found))


def files(given: Iterable[object]) -> list[Source]:
    """Return the files of a measured run; files that end in ``.gz``, as torch's profiler writes them, are unpacked.

    Raises:
        PipeschedError: PS809 if a file is missing, is not valid gzip, or is not text.
    """
    paths = [x if isinstance(x, Source) else fsdecode(x) for x in given if isinstance(x, Source | str | PathLike)]
    return [x if isinstance(x, Source) else _unpacked(x) if x.endswith(".gz") else read_path(x) for x in paths]


def _unpacked(path: str) -> Source:
    try:
        with gzip.open(path, "rb") as stream:
            return Source(path, opened.text(iter(lambda: stream.read(2**20), b"")).decode("utf-8"))
    except opened.NotText as error:
        raise fail(Code.UNREADABLE, f"{path} {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not a valid gzip file"
        raise fail(Code.UNREADABLE, f"cannot read {path}: {reason.lower()}") from None


def _records(source: Source, number: int) -> tuple[list[Record], bool]:
    """Return the measured slots in a file, and whether it has GPU kernels. number: the rank if the file names none."""
    data = _json(source)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise fail(
            RuntimeCode.TRACE, f"{source.name} is not a trace: the list `traceEvents` is missing", help=f"give {_WHERE}"
        )
    about: Mapping[str, object] = data if isinstance(data, dict) else {}
    try:
        base = about.get("baseTimeNanoseconds", 0)
        base = base if isinstance(base, int) and 0 <= base < _LONGEST else 0
        found = list(_found(events, _rank(about, number), base))
    except _Unusable as error:
        raise fail(RuntimeCode.TRACE, f"{source.name}: {error}") from None
    if not found:
        message = f"{source.name} has no pipeline operation among its {len(events):,} events"
        raise fail(RuntimeCode.TRACE, message, help=f"give {_WHERE}")
    return found, any(isinstance(event, dict) and event.get("cat") == "kernel" for event in events)


class _Unusable(Exception):
    """Raised if an operation in a trace cannot be read."""


def _json(source: Source) -> object:
    """Parse a file.

    Raises:
        PipeschedError: PS816; PS843 if reading exceeds its budget.
    """
    if not source.text.strip():
        raise fail(RuntimeCode.TRACE, f"{source.name} is empty", help=f"give {_WHERE}")
    try:
        with budgeted(source):
            return json_of(source.text)
    except json.JSONDecodeError as wrong:
        at = min(wrong.pos, max(len(source.text) - 1, 0))
        label = Label(source.span(at, at + 1), "from here on, the text is not JSON")
        message = f"{source.name} is not a trace: {wrong.msg[:1].lower()}{wrong.msg[1:]}"
        raise fail(RuntimeCode.TRACE, message, label, help="record the profile again if it was cut off") from None


def _rank(about: Mapping[str, object], number: int) -> int:
    given = about.get("distributedInfo")
    rank = given.get("rank") if isinstance(given, dict) else None
    return rank if isinstance(rank, int) and rank >= 0 else number


def _found(events: Sequence[object], rank: int, base: int) -> Iterator[Record]:
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        name, args = event.get("name"), event.get("args")
        if isinstance(name, str) and name.startswith(_PREFIX):
            entries = _named(name.removeprefix(_PREFIX))
            if entries and event.get("cat") != "gpu_user_annotation":
                yield Record(rank, entries, *_span(event, base))
        elif isinstance(args, dict) and args.get("op") in tuple(LETTERS):
            own = args.get("rank", event.get("pid"))
            if not isinstance(own, int) or isinstance(own, bool) or not 0 <= own < 2**31:
                raise _Unusable(f"an operation has no rank: {_short(event)}")
            yield Record(own, _operations(args), *_span(event, base), _waited(args))


def _named(text: str) -> tuple[Entry, ...]:
    """Return the compute operations in an action's name; none for sends, receives and other actions."""
    entries = read_cell(text, NEWEST)
    if isinstance(entries, Bad):
        raise _Unusable(f"{_PREFIX}{text} is not an action of torch's pipeline runtime")
    return tuple(entries) if entries[0][0].compute else ()


def _operations(args: Mapping[str, object]) -> tuple[Entry, ...]:
    """Return the operation of an event, with the second part of an overlap."""
    found: list[Entry] = []
    for part in (args, args.get("with")):
        if part is None:
            continue
        op, stage, microbatch = (part.get(x) if isinstance(part, dict) else None for x in ("op", "stage", "microbatch"))
        numbers = [x for x in (stage, microbatch) if isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 2**31]
        if op not in tuple(LETTERS) or len(numbers) < 2:
            raise _Unusable(f"this is not an operation: {_short(part)}")
        found.append((Op[op], numbers[0], numbers[1]))
    return tuple(found)


def _span(event: Mapping[str, object], base: int) -> tuple[int, int]:
    """Return the start and the end in nanoseconds."""
    begin, length = (_nanoseconds(event.get(key), 1000) for key in ("ts", "dur"))
    if begin is None or length is None or length < 0:
        raise _Unusable(f"an operation lacks a valid `ts` or `dur`: {_short(event)}")
    return base + begin, base + begin + length


def _waited(args: Mapping[str, object]) -> int:
    waited = _nanoseconds(args.get("waited"), 10**9)
    return -1 if waited is None else max(waited, 0)


def _nanoseconds(value: object, unit: int) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        return None
    return round(value * unit) if abs(value) * unit < _LONGEST else None


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


# Slots are grouped by step: the k-th occurrence of an operation belongs to step k. Every operation runs once per step,
# and all steps have the same order.  rank 0   F0 F0 B0 F0 F0 B0 … ---step 0-- ---step 1--


Entry: TypeAlias = tuple[Op, int, int]

_WHOLE_STEPS = "profile whole steps, and give the traces of all ranks of one pipeline"


@dataclass(frozen=True, slots=True)
class Record:
    """A measured slot: its one or two operations, its rank, and its times in nanoseconds. waited: -1 if unknown."""

    rank: int
    entries: tuple[Entry, ...]
    begin: int
    end: int
    waited: int = -1


Slot: TypeAlias = tuple[Entry, ...]


def together(records: Sequence[Record]) -> Measured:
    """Combine the records of slots into a run.

    Raises:
        PipeschedError: PS818 if operations are missing, occur more often than others, or on two ranks.
    """
    slots = _slots(records)
    steps = _steps(slots)
    ranks = sorted({found[0].rank for found in slots.values()})
    row, orders = {rank: i for i, rank in enumerate(ranks)}, [list[Slot]() for _ in ranks]
    for slot, found in sorted(slots.items(), key=lambda item: (item[1][0].begin, item[1][0].end)):
        orders[row[found[0].rank]].append(slot)
    schedule = _schedule(orders)
    if schedule.stages > _STAGES:
        raise budget.Spent(f"it has {schedule.stages:,} stages; at most {_STAGES:,} can be fitted individually")
    _require_all(schedule)
    zero = min(record.begin for record in records)
    listed = [slots[slot] for order in orders for slot in order for _ in slot]

    def column(name: str, less: int) -> Ints:
        values = [[getattr(found[step], name) - less for found in listed] for step in range(steps)]
        return np.array(values, dtype=np.int64)

    waited = column("waited", 0)
    return Measured(schedule, column("begin", zero), column("end", zero), None if (waited < 0).any() else waited)


def _slots(records: Sequence[Record]) -> dict[Slot, list[Record]]:
    """Return the records of every slot, in order of time."""
    slots: dict[Slot, list[Record]] = defaultdict(list)
    owner: dict[Entry, tuple[int, Slot]] = {}
    for record in sorted(records, key=lambda record: (record.begin, record.end, record.rank)):
        slots[record.entries].append(record)
        for entry in record.entries:
            rank, slot = owner.setdefault(entry, (record.rank, record.entries))
            if rank != record.rank:
                message = f"{name(entry)} ran on two ranks, {min(rank, record.rank)} and {max(rank, record.rank)}"
                raise fail(
                    RuntimeCode.TRACE_INCOMPLETE, message, help="give only the traces of the ranks of one pipeline"
                )
            if slot != record.entries:
                message = f"{name(entry)} ran in two different slots, at least one of them an overlap pair"
                raise fail(RuntimeCode.TRACE_INCOMPLETE, message, help="give only the traces of one schedule")
    return slots


def _steps(slots: Mapping[Slot, Sequence[Record]]) -> int:
    """Return the number of steps, the same for every slot."""
    counts = {slot: len(found) for slot, found in slots.items()}
    most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if counts[most] != counts[least]:
        often = f"{_times(counts[least])} and {name(most[0])} {_times(counts[most])}"
        raise fail(RuntimeCode.TRACE_INCOMPLETE, f"{name(least[0])} ran {often}", help=_WHOLE_STEPS)
    return counts[most]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _schedule(orders: Sequence[Sequence[Slot]]) -> Schedule:
    """Return the schedule in the order of the first step. A rank holds the stages whose operations it ran."""
    flat = [(rank, entry) for rank, order in enumerate(orders) for slot in order for entry in slot]
    rank, op, stage, microbatch = (np.array(column) for column in zip(*((r, *e) for r, e in flat), strict=True))
    shape = int(stage.max()) + 1, int(microbatch.max()) + 1
    if shape[0] * shape[1] > SPARE + 4 * len(flat):
        message = f"{len(flat)} operations for {shape[0]:,} stages and {shape[1]:,} microbatches: most are missing"
        raise fail(RuntimeCode.TRACE_INCOMPLETE, message, help=_WHOLE_STEPS)
    forward_first: Column = np.argsort(~makes(op, Result.ACTIVATION), kind="stable")
    table = rank_table(shape, [(stage[forward_first], microbatch[forward_first], rank[forward_first])])
    listed = [
        [Compute(Op(op), stage, microbatch, i > 0) for slot in order for i, (op, stage, microbatch) in enumerate(slot)]
        for order in orders
    ]
    return Schedule.from_orders(listed, place(table, len(orders)), "measured")


def _require_all(schedule: Schedule) -> None:
    """Require that every stage ran each microbatch's forward and, unless the run is forward-only, its backward.

    Raises:
        PipeschedError: PS818.
    """
    stages, microbatches = schedule.stages, schedule.microbatches
    for result in (
        [Result.ACTIVATION] if schedule.forward_only else [Result.ACTIVATION, Result.GRADIENT, Result.WEIGHTS]
    ):
        letters = " or ".join(op.name for op in MAKERS[result])
        seen = np.zeros((stages, microbatches), dtype=np.bool_)
        chosen = makes(schedule.op, result)
        seen[schedule.stage[chosen], schedule.microbatch[chosen]] = True
        missing = np.argwhere(~seen)
        if len(missing):
            stage, microbatch = missing[0].tolist()
            more = f", and {len(missing) - 1:,} more are missing" if len(missing) > 1 else ""
            message = f"no {letters} of stage {stage} and microbatch {microbatch} was measured{more}"
            raise fail(RuntimeCode.TRACE_INCOMPLETE, message, help=_WHOLE_STEPS)


def name(entry: Entry) -> str:
    """Return the readable name of an operation."""
    return str(Compute(*entry))
