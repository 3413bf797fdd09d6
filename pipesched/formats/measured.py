"""Measured runs, as Chrome's trace events: the operations of a pipeline among whatever else a trace holds.

    {"ph": "X", "name": "PP:2F1", "ts": 12.5, "dur": 80.25}                              torch's profiler
    {"ph": "X", "args": {"op": "F", "stage": 2, "microbatch": 1}, "ts": …, "dur": …}     `pipesched run --trace`

torch's pipeline runtime records each action under its name in a CSV, one file a rank (`_get_profiler_function_name`
in torch.distributed.pipelining.schedules, 2.13); the file tells its rank under `distributedInfo`, and the origin of its
times under `baseTimeNanoseconds`. Times are microseconds there, and whole nanoseconds here. A trace of ours may hold
all ranks, and tells how long an operation waited. An operation that is there several times ran in so many steps. What
the profiler repeats of an action on a device (`gpu_user_annotation`) is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from pipesched.analysis.measured_run import Measured
from pipesched.diagnostics import Code, Label, fail
from pipesched.formats.measured_steps import Entry, Record, together
from pipesched.formats.torch_cells import Bad, read_cell
from pipesched.model.torch_versions import NEWEST
from pipesched.source import Source

_PREFIX = "PP:"
_WHERE = "traces of `pipesched run --trace FILE`, or of torch's profiler with a schedule of torch's pipeline runtime"
_LONGEST = 2**62  # nanoseconds, 146 years


def read(sources: Sequence[Source]) -> Measured:
    """The run of which these are the traces, one file for all ranks or a file a rank.

    Raises:
        PipeschedError: PS816, no trace, or one without operations of a pipeline; PS818, operations are missing, or are
            there more often than others, or on two ranks.
    """
    found = [_records(source, number) for number, source in enumerate(sources)]
    made = together([record for records, _ in found for record in records])
    return replace(made, kernels=any(kernels for _, kernels in found))


def _records(source: Source, number: int) -> tuple[list[Record], bool]:
    """The slots of a file, and whether it has kernels. number: the rank of a file of torch's that does not tell it."""
    data = _json(source)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise fail(Code.TRACE, f"{source.name} is no trace: it has no list `traceEvents`", help=f"give {_WHERE}")
    about: Mapping[str, Any] = data if isinstance(data, dict) else {}
    try:
        found = list(_found(events, _rank(about, number), _base(about)))
    except _Unusable as error:
        raise fail(Code.TRACE, f"{source.name}: {error}") from None
    if not found:
        message = f"{source.name} has no operation of a pipeline among its {len(events):,} events"
        raise fail(Code.TRACE, message, help=f"give {_WHERE}")
    return found, any(isinstance(event, dict) and event.get("cat") == "kernel" for event in events)


class _Unusable(Exception):
    """An operation that is there, and cannot be read."""


def _json(source: Source) -> Any:
    """The value of a file.

    Raises:
        PipeschedError: PS816.
    """
    if not source.text.strip():
        raise fail(Code.TRACE, f"{source.name} is empty", help=f"give {_WHERE}")
    try:
        return json.loads(source.text)
    except json.JSONDecodeError as wrong:
        at = min(wrong.pos, max(len(source.text) - 1, 0))
        label = Label(source.span(at, at + 1), "the text is no JSON from here on")
        message = f"{source.name} is no trace: {wrong.msg[:1].lower()}{wrong.msg[1:]}"
        raise fail(Code.TRACE, message, label, help="a profile that was cut off must be written again") from None
    except (ValueError, RecursionError):
        raise fail(Code.TRACE, f"{source.name} is no trace: too many digits or brackets") from None


def _rank(about: Mapping[str, Any], number: int) -> int:
    told = about.get("distributedInfo")
    rank = told.get("rank") if isinstance(told, dict) else None
    return rank if isinstance(rank, int) and rank >= 0 else number


def _base(about: Mapping[str, Any]) -> int:
    base = about.get("baseTimeNanoseconds", 0)
    return base if isinstance(base, int) and 0 <= base < _LONGEST else 0


def _found(events: Sequence[Any], rank: int, base: int) -> Iterator[Record]:
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        name, args = event.get("name"), event.get("args")
        if isinstance(name, str) and name.startswith(_PREFIX):
            entries = _named(name.removeprefix(_PREFIX))
            if entries and event.get("cat") != "gpu_user_annotation":
                yield Record(rank, entries, *_span(event, base))
        elif isinstance(args, dict) and args.get("op") in ("F", "I", "W", "B"):
            own = args.get("rank", event.get("pid"))
            if not isinstance(own, int) or isinstance(own, bool):
                raise _Unusable(f"an operation has no rank: {_short(event)}")
            yield Record(own, _told(args), *_span(event, base), _waited(args))


def _named(text: str) -> tuple[Entry, ...]:
    """The computes of an action's name; none for sends, receives and the like."""
    entries = read_cell(text, NEWEST)
    if isinstance(entries, Bad):
        raise _Unusable(f"{_PREFIX}{text} is no action of torch's pipeline runtime")
    return tuple(entries) if entries[0][0].compute else ()


def _told(args: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The operation of an event, and the second part of an overlap pair."""
    found: list[Entry] = []
    for part in (args, args.get("with")):
        if part is None:
            continue
        op, stage, microbatch = (part.get(x) if isinstance(part, dict) else None for x in ("op", "stage", "microbatch"))
        entries = read_cell(f"{stage}{op}{microbatch}", NEWEST)
        if isinstance(entries, Bad):
            raise _Unusable(f"no operation: {_short(part)}")
        found += entries
    return tuple(found)


def _span(event: Mapping[str, Any], base: int) -> tuple[int, int]:
    """Begin and end in nanoseconds."""
    begin, length = (_nanoseconds(event.get(key), 1000) for key in ("ts", "dur"))
    if begin is None or length is None or length < 0:
        raise _Unusable(f"an operation without `ts` and `dur`: {_short(event)}")
    return base + begin, base + begin + length


def _waited(args: Mapping[str, Any]) -> int:
    waited = _nanoseconds(args.get("waited"), 10**9)
    return -1 if waited is None else max(waited, 0)


def _nanoseconds(value: object, unit: int) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        return None
    return round(value * unit) if abs(value) * unit < _LONGEST else None


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
