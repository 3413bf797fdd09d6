"""Dumps of torch's flight recorder: the messages that each rank issued to NCCL, and their states. Dumps are read, never
executed.

    {"version": "2.10", "pg_config": {"1": {"desc": "pp", "ranks": "[0, 4]", …}}, "entries": [
      {"profiling_name": "nccl:send 0->1", "process_group": ("1", "pp"), "p2p_seq_id": 7, "is_p2p": True,
       "state": "completed", "record_id": 12, "input_sizes": [[1, 512, 256]], "input_dtypes": ["BFloat16"], …},
      {"profiling_name": "nccl:coalesced", "p2p_seq_id": 7, "state": "started", …}]}

There is one file per rank, pickled or as JSON, whose name ends in the rank. The ranks in a `profiling_name` are ranks
within the process group. Each message of a batch has an entry with a meaningless state; at the end of the batch a
`coalesced` entry with the same p2p_seq_id has the state of the whole batch. gloo records only collectives. A pickle can
name code to run; a dump contains only plain containers, so a file with anything else is refused before any of it runs.

Source: torch 2.13, torch.distributed.flight_recorder (components/loader.py, builder.py, types.py); version 2.10.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import TypedDict, cast

import numpy as np

from pipesched.common.budget import Budget
from pipesched.diagnostics import budgeted, fail
from pipesched.interop.codes import InteropCode
from pipesched.interop.recorded.pickles import NotPlain, Reader
from pipesched.interop.recorded.recorded_run import COMPLETED, STATES, Recorded
from pipesched.model.columns import Bools, Ints, among
from pipesched.model.ops import SHAPES, Op
from pipesched.model.schedule import Program
from pipesched.support.foreign import Foreign, foreign, json_of

BY = "torch's flight recorder"
PACKED = (b"\x1f\x8b", b"PK\x03\x04")  # the first bytes of what gzip and zip write
_PEERS = re.compile(r"\w+:(?:(send) (\d{1,9})->(\d{1,9})|recv (\d{1,9})<-(\d{1,9}))")
RANK = re.compile(r"(\d{1,9})(?:\.\w+)?$")
_COUNTED = frozenset({"Bool", "Byte", "Char", "Int", "Long", "Short"})
"""Types of the integer messages by which the trainer sends shapes and pickled objects along with activations and
gradients."""
_DIGITS = re.compile(r"\s*[0-9]{1,9}\s*")
ENTRY = 32  # units of work per entry, which has at least a hundred bytes
_WIDEST = 64  # most letters in the name of a type; most dimensions of a tensor in torch
_SHOWN = 16  # most ranks of a group that a message names


class File(TypedDict, total=False):
    """The value of a dump file."""

    pg_config: Mapping[str, Mapping[str, object]]
    entries: Sequence[Mapping[str, object]]


def dump(name: str, data: bytes, reader: Callable[[bytes], Reader] = Reader) -> File:
    """Read the value of a dump file. reader: reads pickles.

    Raises:
        PipeschedError: PS891 if the file is cut off or not plain data; PS843 if reading it exceeds the budget.
    """
    try:
        with budgeted(name):
            return cast("File", json_of(data) if data.lstrip()[:1] == b"{" else reader(data).value())
    except NotPlain as error:
        message = f"{name} is a pickle that would run {error}: a dump has only plain data, so this is not a dump"
        raise fail(InteropCode.RECORD, message, help="none of it was run; find out where the file comes from") from None
    except ValueError as error:
        if data.startswith(PACKED):
            raise fail(InteropCode.RECORD, f"{name} is compressed", help="unpack it") from None
        message = f"{name} is cut off or damaged: {' '.join(str(error).split())[:80]}"
        raise fail(InteropCode.RECORD, message, help="let every rank finish writing its dump") from None


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its name, its purpose, and its ranks in the whole job."""

    name: Foreign
    purpose: Foreign
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Dump:
    """The messages of one file. messages: six rows: group, 1 for a send, peer, size, state and record id. begins: id of
    the first entry in the buffer. counted: the number of integer messages, which are omitted.
    """

    messages: Ints
    begins: int
    counted: int


@dataclass(frozen=True, slots=True)
class _Tables:
    """The process groups and tensor sizes of all files, each with its number."""

    groups: dict[Group, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def read(files: Mapping[str, bytes], program: Program) -> list[Recorded]:
    """Read the runs in a folder, one for each pipeline of the job that has as many ranks as the program.

    Raises:
        PipeschedError: PS890 if there are no messages; PS891 if a file cannot be read; PS892 if the sizes differ.
    """
    dumps: dict[int, _Dump] = {}
    shapes, tables = bool(among(program.op, SHAPES).any()), _Tables()
    for name, data in files.items():
        found = RANK.search(name)
        if found is None:
            raise fail(
                InteropCode.RECORD, (f"{name} does not end in a rank number"), help="name the dumps rank_0, rank_1, …"
            )
        if int(found[1]) in dumps:
            raise fail(InteropCode.RECORD, f"{name} is a second dump of rank {int(found[1])}")
        value, left = dump(name, data), Budget(len(data))
        with budgeted(name):
            dumps[int(found[1])] = _dump(name, value, int(found[1]), tables, left, shapes=shapes)
    used = {int(group) for one in dumps.values() for group in np.unique(one.messages[0])}
    if not used:
        help = "gloo records collectives only: record such a run with `pipesched.runtime`, or run it on NCCL"
        raise fail(InteropCode.NO_RECORD, "the dumps contain no sends or receives", help=help)
    groups = [group for group, number in tables.groups.items() if number in used]
    chosen = _pipelines(groups, program)
    pipelines: dict[tuple[int, ...], list[Group]] = defaultdict(list)
    for group in sorted(chosen, key=lambda group: (len(group.name), group.name)):
        pipelines[group.ranks].append(group)
    left_out = [f"process group {g.name} ({g.purpose}) does not belong to this plan" for g in groups if g not in chosen]
    return [_recorded(of, dumps, tables, program, left_out) for _, of in sorted(pipelines.items())]


def _pipelines(groups: Sequence[Group], program: Program) -> list[Group]:
    """Return the groups with the plan's number of ranks; if some are called `pp` or `pipeline`, only these groups."""
    fitting = [group for group in groups if len(group.ranks) == program.ranks]
    if not fitting:
        group = groups[0]
        message = (
            f"the plan has {program.ranks} ranks; the run has {len(group.ranks)}: process group {group.name} "
            f"({group.purpose}) has ranks {_listed(group.ranks)}"
        )
        raise fail(
            InteropCode.RECORD_DIFFERS, message, help="give the schedule at the sizes of the run, with --p, --v, --m"
        )
    called = [group for group in fitting if re.search(r"(^|_)pp($|_)|pipeline", group.purpose, re.IGNORECASE)]
    return called or fitting


def _listed(ranks: Sequence[int]) -> str:
    """Return the ranks as a list in a message: at most the first `_SHOWN`."""
    return ", ".join([*map(str, ranks[:_SHOWN]), *(["…"] if len(ranks) > _SHOWN else [])])


def _dump(name: str, value: File, rank: int, tables: _Tables, left: Budget, *, shapes: bool) -> _Dump:
    """Read the messages of a file that rank `rank` of the job wrote.

    Raises:
        PipeschedError: PS891 if the file is not a dump, or if another rank wrote it.
    """
    try:
        with not_a_dump(name, value):
            groups = {key: group_of(key, about, left) for key, about in value.get("pg_config", {}).items()}
            entries = entries_of(value)
            left.spend(ENTRY * len(entries), "entries")
            return (
                _messages(entries, groups, rank, tables, shapes)
                if entries
                else _Dump(np.zeros((6, 0), dtype=np.int64), 0, 0)
            )
    except _OtherRank as error:
        message = f"{name} is not the dump of rank {rank}: it has {error}"
        raise fail(InteropCode.RECORD, message, help="name each dump after the job rank that wrote it") from None


@contextmanager
def not_a_dump(name: str, value: File) -> Iterator[None]:
    """Report a dump with a value that torch does not write.

    Raises:
        PipeschedError: PS891.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as e:
        reason = f"it has no {e}" if isinstance(e, KeyError) else str(e)
        given = cast("object", value)
        given = given.get("version") if isinstance(given, dict) else None
        version = f" of version {given}" if isinstance(given, str) and len(given) < 10 else ""
        message = f"{name}{version} is not a dump of {BY}: {reason[:80]}"
        raise fail(InteropCode.RECORD, message, help="versions 2.4 to 2.10 are read; torch 2.13 writes 2.10") from None


def entries_of(value: File) -> Sequence[Mapping[str, object]]:
    """Return the entries of a dump; () for JSON without calls, or if only the groups were requested."""
    return value.get("entries", ()) if "version" in value or not value.get("pg_config") else value["entries"]


def group_of(key: str, about: Mapping[str, object], left: Budget) -> Group:
    """Read a process group, whose ranks are a list, or a list in a string."""
    given, purpose = about["ranks"], about.get("desc") or "unnamed"
    if not isinstance(purpose, str) or not isinstance(given, str | list):
        raise TypeError("the name or the ranks of a process group are missing")
    ranks = _of_text(given) if isinstance(given, str) else tuple(sorted(map(_rank, given)))
    left.spend(len(ranks), "process groups")
    return Group(foreign(key), foreign(purpose), ranks)


@lru_cache(maxsize=64)
def _of_text(given: str) -> tuple[int, ...]:
    """Parse a list of ranks; the dumps of a job contain many equal lists."""
    return tuple(sorted(_rank(rank) for rank in given.strip().strip("[]()").split(",") if rank))


def _rank(given: object) -> int:
    if isinstance(given, str) and _DIGITS.fullmatch(given):
        return int(given)
    if type(given) is not int:
        raise TypeError("a process group contains a rank that is not a number")
    return given


_LISTS = frozenset({list, tuple})
_TYPES: Mapping[str, frozenset[type]] = {
    "profiling_name": frozenset({str}),
    "process_group": _LISTS,
    "p2p_seq_id": frozenset({int}),
    "state": frozenset({str}),
    "record_id": frozenset({int}),
    "input_sizes": _LISTS,
    "input_dtypes": _LISTS,
}
"""The fields of an entry that are read, with their types. Comparing or hashing values of other types might never
end."""
FIELDS = itemgetter(*_TYPES)
_NONE, _BATCH = (-1, -1, -1), (-2, -1, -1)  # an entry that is not a message; the end of a batch


class _OtherRank(Exception):
    """Raised if another rank posted a message in the file."""


def _messages(
    entries: Sequence[Mapping[str, object]], groups: Mapping[str, Group], rank: int, tables: _Tables, shapes: bool
) -> _Dump:
    """Return the messages of a file as columns, in the order of their record ids; all other entries are omitted.

    Raises:
        _OtherRank: if another rank posted a message.
    """
    require_types(zip(*map(FIELDS, entries), strict=True))
    entries = sorted(entries, key=itemgetter("record_id"))
    names, process_groups, numbers, states, records, lengths, kinds = zip(*map(FIELDS, entries), strict=True)
    ends = {name: end_of(name) for name in set(names)}
    send, own, peer = np.array([ends[name] for name in names]).T
    called = [text(one[0]) for one in process_groups]
    of = {name: _number(tables.groups, groups, name) for name in {*called}}
    group = np.array([of[name] for name in called])
    known, place = list(tables.groups), np.full(len(tables.groups), -1)
    for number in of.values():
        ranks = known[number].ranks
        place[number] = ranks.index(rank) if rank in ranks else -1
    if len(others := np.flatnonzero((send >= 0) & (own != place[group]))):
        raise _OtherRank(f"{names[others[0]]} in process group {process_groups[others[0]][0]}")
    at_state = {text: i for i, text in enumerate(STATES)}
    state = np.array([at_state[text] for text in states])
    size, counted = _sizes([tensor(*pair) for pair in zip(kinds, lengths, strict=True)], tables)
    integers = counted & (send >= 0) & (not shapes)
    batch = group * np.int64(2**40) + np.array(numbers, dtype=np.int64)
    ended = np.flatnonzero(send == _BATCH[0])
    ended = ended[np.argsort(batch[ended], kind="stable")]
    if len(ended):
        at = ended[np.minimum(np.searchsorted(batch[ended], batch), len(ended) - 1)]
        state = np.where(batch[at] == batch, np.maximum(state, state[at]), state)
    columns = np.stack([group, send, peer, size, state, np.array(records, dtype=np.int64)])
    return _Dump(columns[:, (send >= 0) & ~integers], int(records[0]), int(integers.sum()))


def _sizes(tensors: Sequence[tuple[str, tuple[int, ...] | None]], tables: _Tables) -> tuple[Ints, Bools]:
    """Return, for each tensor, the number of its size in `tables`, and True if it contains integers."""
    said = {tensor: size_of(*tensor) for tensor in dict.fromkeys(tensors)}
    number = {tensor: tables.sizes.setdefault(text, len(tables.sizes)) for tensor, (text, _) in said.items()}
    return np.array([number[x] for x in tensors]), np.array([said[x][1] for x in tensors])


@lru_cache(maxsize=1024)
def end_of(name: str) -> tuple[int, int, int]:
    """Return 1 (send) or 0 (receive), the rank and the peer of a message; `_BATCH` or `_NONE` for other entries."""
    found = _PEERS.fullmatch(name)
    if found is None:
        return _BATCH if name.endswith(":coalesced") else _NONE
    return (1, int(found[2]), int(found[3])) if found[1] else (0, int(found[4]), int(found[5]))


def _number(table: dict[Group, int], groups: Mapping[str, Group], name: str) -> int:
    """Return the number of a group. If there is only one group, any name refers to it."""
    if name not in groups and len(groups) != 1:
        raise KeyError(f"process group {name}")
    group = groups[name] if name in groups else next(iter(groups.values()))
    return table.setdefault(group, len(table))


def require_types(columns: Iterable[Sequence[object]]) -> None:
    """Raise TypeError if a value of an entry has a type that torch does not use there."""
    for (name, types), column in zip(_TYPES.items(), columns, strict=True):
        if not {*map(type, column)} <= types:
            raise TypeError(f"the {name} of an entry is missing or has the wrong type")


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a name in an entry is not a string")
    return value


def tensor(kinds: Sequence[object], lengths: Sequence[object]) -> tuple[str, tuple[int, ...] | None]:
    """Return the type of the first tensor, and its size if that is recorded."""
    kind, size = kinds[0] if kinds else "", lengths[0] if lengths else None
    if not isinstance(kind, str) or len(kind) > _WIDEST:
        raise TypeError("the tensor type in an entry is not a string, or is too long")
    if size is None:
        return kind, None
    if not isinstance(size, list | tuple) or len(size) > _WIDEST or not {*map(type, size)} <= {int}:
        raise TypeError("the tensor size in an entry is not a list of integers, or is too long")
    return kind, tuple(size)


def size_of(kind: str, size: tuple[int, ...] | None) -> tuple[str, bool]:
    """Return the size as text, and True if the tensor contains integers."""
    return f"{foreign(kind)} {'' if size is None else list(size)}".strip(), kind in _COUNTED


def _recorded(
    groups: Sequence[Group], dumps: Mapping[int, _Dump], tables: _Tables, program: Program, notes: Sequence[str]
) -> Recorded:
    """Return the run of one pipeline. groups: its process groups, one per communicator of the plan."""
    wanted = np.unique(program.communicator[program.sends | program.receives]).tolist()
    _require_as_many(groups, wanted)
    ranks = groups[0].ranks
    late = [rank for rank in ranks if rank in dumps and dumps[rank].begins]
    cut = f"rank {late[0]} begins with entry {dumps[late[0]].begins:,}" if late else ""
    communicator = np.full(len(tables.groups), -1)
    communicator[[tables.groups[group] for group in groups]] = wanted
    parts = [dumps[rank].messages if rank in dumps else np.zeros((6, 0), dtype=np.int64) for rank in ranks]
    parts = [part[:, (communicator[part[0]] >= 0) & ((part[4] < COMPLETED) | (not cut))] for part in parts]
    group, send, peer, size, state, record = np.concatenate(parts, axis=1)
    none = np.full(len(send), -1, dtype=np.int32)
    return Recorded(
        BY,
        np.where(send, Op.SEND_F, Op.RECV_F).astype(np.int8),
        none,
        none,
        peer.astype(np.int32),
        communicator=communicator[group].astype(np.int32),
        size=size,
        state=state.astype(np.int8),
        entry=record,
        start=np.cumsum([0] + [part.shape[1] for part in parts], dtype=np.int64),
        sizes=tuple(tables.sizes),
        named=False,
        absent=tuple(i for i, rank in enumerate(ranks) if rank not in dumps),
        job=ranks,
        notes=(*notes, *_notes(groups, wanted, [dumps[rank] for rank in ranks if rank in dumps])),
        cut=cut,
    )


def _require_as_many(groups: Sequence[Group], wanted: Sequence[int]) -> None:
    """Raise PipeschedError, PS892, if the run and the plan have different numbers of communicators."""
    if len(groups) != len(wanted):
        names = ", ".join(group.name for group in groups)
        message = f"the plan has {len(wanted)} communicators, and the run has {len(groups)}: process groups {names}"
        help = "give the communicator of each message in the plan, such as send:F0.1>1@1"
        raise fail(InteropCode.RECORD_DIFFERS, message, help=help)


def _notes(groups: Sequence[Group], wanted: Sequence[int], dumps: Sequence[_Dump]) -> Iterator[str]:
    """Yield notes: the communicator of each process group, and the number of omitted messages."""
    if len(wanted) > 1:
        pairs = zip(groups, wanted, strict=True)
        yield ", ".join(f"process group {group.name} is communicator {number}" for group, number in pairs)
    if counted := sum(dump.counted for dump in dumps):
        yield f"{counted:,} messages of integers (shapes and objects) are ignored"
