"""Reads a folder with the records of a run's ranks: torch flight recorder dumps, pipesched traces, or orders.

    {"entries": [...], "pg_config": {...}}     or a pickle: `flight_recorder`; one file per rank
    {"traceEvents": [...]}                     `recorder`, `pipesched run --trace`; one file, or one per rank
    rank 0: send:F0.0>1 recv:B1.0<1 …          order notation with messages, step after step; one file, or one per rank

A pipesched trace contains only finished instructions. It does not name peers; they are taken from the plan.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pipesched.diagnostics import PipeschedError, budgeted, fail
from pipesched.interop.codes import InteropCode
from pipesched.interop.recorded import flight_recorder
from pipesched.interop.recorded.recorded_run import COMPLETED, Recorded
from pipesched.model.columns import Column
from pipesched.model.ops import RECEIVES, SENDS, Op
from pipesched.model.schedule import Program
from pipesched.orders import order_text
from pipesched.support.files import LARGEST
from pipesched.support.foreign import json_of
from pipesched.support.source import Source

GIVE = "give a folder with dumps of torch's flight recorder, traces of `pipesched.runtime`, or orders with messages"
_MESSAGE = re.compile(rf"(\d{{1,8}})({'|'.join(op.name for op in (*SENDS, *RECEIVES))})(\d{{1,8}})(?:[<>]\d{{1,8}})?")


def read(folder: str, program: Program) -> list[Recorded]:
    """Read the runs in a folder: one, or one for each pipeline of a job.

    Raises:
        PipeschedError: PS890 if there is no run; PS891 if a file cannot be read; PS892 if the sizes differ.
    """
    with without_cycles():
        return _read(folder, program)


@contextmanager
def without_cycles() -> Iterator[None]:
    """Pause garbage collection while millions of small values are read, which form no reference cycles."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _read(folder: str, program: Program) -> list[Recorded]:
    files = read_files(folder)
    kinds = {name: kind_of(data) for name, data in files.items()}
    other = next((name for name, kind in kinds.items() if kind is None), None)
    if other is not None:
        raise fail(
            InteropCode.NO_RECORD,
            f"{other} in {folder} is not the record of a rank",
            help=f"{GIVE}, and nothing else",
        )
    if len(found := sorted({kind for kind in kinds.values() if kind is not None})) > 1:
        raise fail(
            InteropCode.NO_RECORD,
            f"{folder} contains records of several kinds: {', '.join(found)}",
            help="give one run",
        )
    if found == ["dump"]:
        return flight_recorder.read(files, program)
    made = _traces(files, program) if found == ["trace"] else _orders(files, program)
    if made.absent and not np.isin(made.peer, made.absent).any():  # no message goes to an absent rank
        _require_ranks(made.ranks - len(made.absent), program)
    return [made]


def read_files(folder: str, *, pickles: bool = True) -> dict[str, bytes]:
    """Read the files of a folder. pickles: if False, only the first byte of a pickle is read.

    Raises:
        PipeschedError: PS890 if there is no readable file; PS891 if a file is too large.
    """
    try:
        found = (path for path in Path(folder).iterdir() if path.is_file() and path.name[0] != ".")
        paths = sorted(found, key=lambda path: path.name)
        made = {path.name: file_of(path, pickles=pickles) for path in paths}
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "it cannot be read").lower()
        raise fail(InteropCode.NO_RECORD, f"cannot read {folder}: {reason}", help=GIVE) from None
    if not made:
        inner = sum(path.is_dir() for path in Path(folder).iterdir())
        only = (
            f", only {inner} folder{'s' * (inner != 1)}: put the records of all ranks into one folder" if inner else ""
        )
        raise fail(InteropCode.NO_RECORD, f"{folder} has no files{only}", help=GIVE)
    if all(data.startswith(flight_recorder.PACKED) for data in made.values()):
        raise fail(InteropCode.NO_RECORD, f"{folder} has only compressed files", help="unpack them")
    return made


def file_of(path: Path, *, pickles: bool = True) -> bytes:
    if os.path.getsize(path) > LARGEST:
        raise fail(InteropCode.RECORD, f"{path.name} is larger than {LARGEST // 2**20} MiB, the limit for a record")
    with path.open("rb") as file:
        first = file.read(1)
        return first if first == b"\x80" and not pickles else (first + file.read()).removeprefix(b"\xef\xbb\xbf")


def kind_of(data: bytes) -> str | None:
    """Return the kind of a file by its first bytes: dump, trace, order, or None."""
    if data[:1] == b"\x80":
        return "dump"
    if data.lstrip()[:1] == b"{":
        return "trace" if b'"traceEvents"' in data else "dump"
    words = next((line for line in data[:100_000].splitlines() if line.strip() and line[:1] != b"#"), b"")
    return "order" if re.match(rb"\s*rank\s+\d+\s*:", words) else None


def _orders(files: Mapping[str, bytes], program: Program) -> Recorded:
    """Read the orders of all files as one run; the file of a rank may be missing."""
    texts = [decoded(name, data) for name, data in files.items()]
    said = Counter(
        int(rank) for rank in re.findall(r"^[ \t]*rank[ \t]+(\d{1,9})[ \t]*:", "\n".join(texts), re.MULTILINE)
    )
    _require_once([rank for rank, lines in said.items() if lines > 1], "orders")
    absent = sorted(set(range(program.ranks)) - set(said))
    lines = [*texts, *(f"rank {rank}:" for rank in absent)]
    lines = sorted(filter(str.strip, "\n".join(lines).splitlines()), key=_rank)
    try:
        made = order_text.read(Source("the recorded orders", "\n".join(lines) + "\n"))
    except PipeschedError as error:
        raise fail(InteropCode.RECORD, f"the recorded orders cannot be read: {error.diagnostics[0].message}") from None
    if not isinstance(made, Program):
        help = "record sends and receives, such as send:F0.1>1"
        raise fail(InteropCode.NO_RECORD, "the recorded orders have no messages", help=help)
    _require_ranks(made.ranks, program)
    chosen = np.flatnonzero(made.sends | made.receives)
    start = np.searchsorted(chosen, made.start)
    return Recorded(
        "orders",
        made.op[chosen],
        made.stage[chosen],
        made.microbatch[chosen],
        made.peer[chosen],
        communicator=made.communicator[chosen],
        size=np.full(len(chosen), -1),
        state=np.full(len(chosen), -1, dtype=np.int8),
        entry=chosen - made.start[made.rank[chosen]] + 1,
        start=start.astype(np.int64),
        absent=tuple(absent),
    )


def _rank(line: str) -> int:
    """Return the sort key of a line: its first number, 0 if it has none."""
    found = re.search(r"[0-9]{1,9}", line)
    return int(found[0]) if found else 0


def decoded(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise fail(InteropCode.RECORD, f"{name} is not text") from None


def _traces(files: Mapping[str, bytes], program: Program) -> Recorded:
    """Read the messages of all traces, by rank, in the order in which they finished."""
    found: dict[int, list[tuple[float, int, Op, int, int]]] = defaultdict(list)
    for where, time, text in events(files):
        if match := _MESSAGE.fullmatch(text):
            here = found[where]
            here.append((time, len(here), Op[match[2]], int(match[1]), int(match[3])))
    if not any(found.values()):
        raise fail(
            InteropCode.NO_RECORD, "the traces contain no sends or receives", help="give traces from `Recorder.dumps`"
        )
    _require_ranks(max(program.ranks, max(found) + 1), program)
    flat = [(rank, *row[2:]) for rank in range(program.ranks) for row in sorted(found[rank], key=lambda row: row[:2])]
    rank, op, stage, microbatch = (np.array(column, dtype=np.int32) for column in zip(*flat, strict=True))
    peer, communicator = _addressed(rank, op, stage, microbatch, program)
    if (peer < 0).any():  # a message that is not in the plan: only the traces tell the number of ranks
        _require_ranks(max(found) + 1, program)
    start = np.searchsorted(rank, np.arange(program.ranks + 1)).astype(np.int64)
    return Recorded(
        "pipesched's recorder",
        op.astype(np.int8),
        stage,
        microbatch,
        peer,
        communicator=communicator,
        size=np.full(len(op), -1),
        state=np.full(len(op), COMPLETED, dtype=np.int8),
        entry=np.arange(len(op)) - start[rank] + 1,
        start=start,
        blocking=True,
        absent=tuple(r for r in range(program.ranks) if not found[r]),
    )


def events(files: Mapping[str, bytes]) -> Iterator[tuple[int, float, str]]:
    """Yield the rank, the time and the name of each instruction in traces, and of each message in a batch.

    Raises:
        PipeschedError: PS891 if a file is cut off or not a trace, or if a rank has several traces.
    """
    seen: set[int] = set()
    for name, data in files.items():
        try:
            with budgeted(name):
                here = [one for event in json_of(data)["traceEvents"] for one in _instructions(event)]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            said = f"{type(error).__name__}: {error}"[:80]
            raise fail(InteropCode.RECORD, f"{name} is cut off or not a trace: {said}", help="write it again") from None
        ranks = {rank for rank, _, _ in here}
        _require_once([*(ranks & seen)], "traces")
        seen |= ranks
        yield from here


def _instructions(event: Mapping[str, Any]) -> list[tuple[int, float, str]]:
    """Return (rank, time, name) of an event's instruction, or of each message in a batch; empty for other events."""
    args = event.get("args", {})
    if event["ph"] != "X" or "index" not in args:
        return []
    if (rank := int(args["rank"])) < 0:
        raise ValueError(f"{rank} is not a rank")
    return [(rank, float(event["ts"]), str(text)) for text in args.get("messages") or [event["name"]]]


def _addressed(rank: Column, op: Column, stage: Column, microbatch: Column, program: Program) -> tuple[Column, Column]:
    """Return each message's planned peer and communicator; the peer is -1 if its rank has no such message."""
    index = np.flatnonzero(program.sends | program.receives)[::-1]  # the first of equal messages
    rows = zip(*(x[index].tolist() for x in (program.rank, program.op, program.stage, program.microbatch)), strict=True)
    planned = dict(zip(rows, index.tolist(), strict=True))
    asked = zip(*(x.tolist() for x in (rank, op, stage, microbatch)), strict=True)
    at = np.array([planned.get(row, -1) for row in asked])
    known = at >= 0
    return np.where(known, program.peer[at], -1), np.where(known, program.communicator[at], 0)


def _require_once(ranks: Sequence[int], kind: str) -> None:
    if ranks:
        message = f"rank {min(ranks)} has several {kind}, in one file or in several"
        raise fail(InteropCode.RECORD, message, help="give the folder of a single run, with each rank in it only once")


def _require_ranks(ranks: int, program: Program) -> None:
    if ranks != program.ranks:
        message = f"the plan has {program.ranks} ranks; the run has {ranks}"
        raise fail(
            InteropCode.RECORD_DIFFERS, message, help="give the schedule at the sizes of the run, with --p, --v, --m"
        )
