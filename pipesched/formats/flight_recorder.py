"""Dumps of torch's flight recorder: what each rank gave to NCCL, and how far it came. Read as data, never run.

    {"version": "2.10", "pg_config": {"1": {"desc": "pp", "ranks": "[0, 4]", …}}, "entries": [
      {"profiling_name": "nccl:send 0->1", "process_group": ("1", "pp"), "p2p_seq_id": 7, "is_p2p": True,
       "state": "completed", "record_id": 12, "input_sizes": [[1, 512, 256]], "input_dtypes": ["BFloat16"], …},
      {"profiling_name": "nccl:coalesced", "p2p_seq_id": 7, "state": "started", …}]}

A file a rank, pickled or as JSON, whose name ends in the rank. The ranks of a name are those within its process group.
Of a batch each message has an entry, whose state says nothing, and at its end there is a `coalesced` with the same
p2p_seq_id, whose state is that of all of them. gloo records collectives alone. A pickle may name code to be run; a dump
holds plain containers, and a file with anything else is refused before it is run.

Source: torch 2.13, torch.distributed.flight_recorder (components/loader.py, builder.py, types.py); version 2.10.
"""

from __future__ import annotations

import ast
import io
import pickle
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from pipesched.analysis.recorded_run import COMPLETED, STATES, Recorded
from pipesched.diagnostics import Code, fail
from pipesched.foreign import Foreign, foreign, json_of
from pipesched.model.columns import Ints, among
from pipesched.model.ops import SHAPES, Op
from pipesched.model.schedule import Program

BY = "torch's flight recorder"
_PEERS = re.compile(r"\w+:(?:(send) (\d{1,9})->(\d{1,9})|recv (\d{1,9})<-(\d{1,9}))")
_RANK = re.compile(r"(\d{1,9})(?:\.\w+)?$")
_COUNTED = frozenset({"Bool", "Byte", "Char", "Int", "Long", "Short"})
"""Types of shapes and of pickled objects, which the trainer sends with activations and gradients."""


class Unsafe(Exception):
    """What a pickle would run."""


class _Plain(pickle.Unpickler):
    """Reads containers, numbers and texts; nothing is imported, so nothing can be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise Unsafe(f"{module}.{name}")

    def persistent_load(self, pid: object) -> Any:
        raise Unsafe("a reference to another file")


def dump(name: str, data: bytes) -> Any:
    """The value of a file.

    Raises:
        PipeschedError: PS891, it is cut off, or is no plain data.
    """
    try:
        if data.lstrip()[:1] == b"{":
            return json_of(data)
        whole = io.BufferedReader(io.BytesIO(data), len(data) + 1)  # can be looked into, so it is not read byte by byte
        return _Plain(whole).load()
    except Unsafe as error:
        message = f"{name} is a pickle that would run {error}: a dump holds plain data, so this is none"
        raise fail(Code.RECORD, message, help="nothing of it was run; ask where it comes from") from None
    except Exception as error:
        said = " ".join(str(error).split())[:80] or type(error).__name__
        message = f"{name} is cut off or damaged: {said}"
        raise fail(Code.RECORD, message, help="let every rank write its dump to the end") from None


@dataclass(frozen=True, slots=True)
class _Group:
    """A process group: its name, what it is for, and its ranks in the whole job."""

    name: Foreign
    purpose: Foreign
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Dump:
    """What is read of a file. messages: group, whether it is sent, peer, size, state and record, a row each. begins:
    the first entry of its buffer. counted: how many messages are of integers.
    """

    messages: Ints
    begins: int
    counted: int


@dataclass(frozen=True, slots=True)
class _Tables:
    """Groups and sizes by number, over all files."""

    groups: dict[_Group, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def read(files: Mapping[str, bytes], program: Program) -> list[Recorded]:
    """The runs of a folder, one for each pipeline of the job that has as many ranks as the program.

    Raises:
        PipeschedError: PS890, no messages; PS891, a file that cannot be read; PS892, of another size.
    """
    dumps: dict[int, _Dump] = {}
    shapes, tables = bool(among(program.op, SHAPES).any()), _Tables()
    for name, data in files.items():
        found = _RANK.search(name)
        if found is None:
            raise fail(Code.RECORD, f"{name} does not end in a rank", help="name the dumps rank_0, rank_1, …")
        if int(found[1]) in dumps:
            raise fail(Code.RECORD, f"{name} is a second dump of rank {int(found[1])}")
        dumps[int(found[1])] = _dump(name, dump(name, data), int(found[1]), tables, shapes=shapes)
    used = {int(group) for one in dumps.values() for group in np.unique(one.messages[0])}
    if not used:
        help = "gloo records collectives only: record such a run with `pipesched.runtime`, or run it on NCCL"
        raise fail(Code.NO_RECORD, "the dumps hold no send and no receive", help=help)
    groups = [group for group, number in tables.groups.items() if number in used]
    chosen = _pipelines(groups, program)
    pipelines: dict[tuple[int, ...], list[_Group]] = defaultdict(list)
    for group in sorted(chosen, key=lambda group: (len(group.name), group.name)):
        pipelines[group.ranks].append(group)
    left_out = [f"process group {g.name} ({g.purpose}) is no pipeline of this plan" for g in groups if g not in chosen]
    return [_recorded(of, dumps, tables, program, left_out) for _, of in sorted(pipelines.items())]


def _pipelines(groups: Sequence[_Group], program: Program) -> list[_Group]:
    """The groups with messages that have as many ranks as the plan; of these the ones that are called so."""
    fitting = [group for group in groups if len(group.ranks) == program.ranks]
    if not fitting:
        group = groups[0]
        message = (
            f"the plan has {program.ranks} ranks; the run has {len(group.ranks)}: process group {group.name} "
            f"({group.purpose}) is of ranks {', '.join(map(str, group.ranks))}"
        )
        raise fail(Code.RECORD_DIFFERS, message, help="give the schedule at the sizes of the run, with --p, --v, --m")
    called = [group for group in fitting if re.search(r"(^|_)pp($|_)|pipeline", group.purpose, re.IGNORECASE)]
    return called or fitting


def _dump(name: str, value: Any, rank: int, tables: _Tables, *, shapes: bool) -> _Dump:
    """The messages of a file, which this rank of the job wrote.

    Raises:
        PipeschedError: PS891.
    """
    try:
        groups = {str(key): _group(str(key), about) for key, about in value.get("pg_config", {}).items()}
        entries = value["entries"] if groups else value.get("entries", ())
        return (
            _messages(entries, groups, rank, tables, shapes)
            if entries
            else _Dump(np.zeros((6, 0), dtype=np.int64), 0, 0)
        )
    except _OtherRank as error:
        message = f"{name} is not of rank {rank}: it has {error}"
        raise fail(Code.RECORD, message, help="name each dump by the rank of the job that wrote it") from None
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        SyntaxError,
        MemoryError,
        RecursionError,
        OverflowError,
    ) as e:
        message = f"{name} is no dump of {BY}: {f'{type(e).__name__}: {e}'[:80]}"
        raise fail(Code.RECORD, message, help="version 2.10 is read, as torch 2.13 writes it") from None


def _group(key: str, about: Mapping[str, Any]) -> _Group:
    ranks = about["ranks"]
    listed = ast.literal_eval(ranks) if isinstance(ranks, str) else ranks
    return _Group(
        foreign(key), foreign(str(about.get("desc") or "unnamed")), tuple(sorted(int(rank) for rank in listed))
    )


_FIELDS = itemgetter(
    "profiling_name", "process_group", "p2p_seq_id", "state", "record_id", "input_sizes", "input_dtypes"
)
_NONE, _BATCH = (-1, -1, -1), (-2, -1, -1)  # what is no message; the end of a batch


class _OtherRank(Exception):
    """A message of another rank than that of the file."""


def _messages(
    entries: Sequence[Mapping[str, Any]], groups: Mapping[str, _Group], rank: int, tables: _Tables, shapes: bool
) -> _Dump:
    """The columns of a file, value by value, in the order of the records; what is not a message is left out.

    Raises:
        _OtherRank: a message is not of this rank.
    """
    entries = sorted(entries, key=itemgetter("record_id"))
    names, process_groups, numbers, states, records, lengths, kinds = zip(*map(_FIELDS, entries), strict=True)
    ends = {name: _end(name) for name in set(names)}
    send, own, peer = np.array([ends[name] for name in names]).T
    of = {name: _number(tables.groups, groups, name) for name in {group[0] for group in process_groups}}
    group = np.array([of[one[0]] for one in process_groups])
    place = np.array([x.ranks.index(rank) if rank in x.ranks else -1 for x in tables.groups])
    if len(others := np.flatnonzero((send >= 0) & (own != place[group]))):
        raise _OtherRank(f"{names[others[0]]} in process group {process_groups[others[0]][0]}")
    number = {text: i for i, text in enumerate(STATES)}
    state = np.array([number[text] for text in states])
    texts = list(map(repr, zip(kinds, lengths, strict=True)))
    sizes = {
        text: _size(*pair) for text, pair in dict(zip(texts, zip(kinds, lengths, strict=True), strict=True)).items()
    }
    size = {text: tables.sizes.setdefault(said, len(tables.sizes)) for text, (said, _) in sizes.items()}
    integers = np.array([sizes[text][1] for text in texts]) & (send >= 0) & (not shapes)
    batch = group * np.int64(2**40) + np.array(numbers, dtype=np.int64)
    ended = np.flatnonzero(send == _BATCH[0])
    ended = ended[np.argsort(batch[ended], kind="stable")]
    if len(ended):
        at = ended[np.minimum(np.searchsorted(batch[ended], batch), len(ended) - 1)]
        state = np.where(batch[at] == batch, np.maximum(state, state[at]), state)
    columns = np.stack(
        [group, send, peer, np.array([size[text] for text in texts]), state, np.array(records, dtype=np.int64)]
    )
    return _Dump(columns[:, (send >= 0) & ~integers], int(records[0]), int(integers.sum()))


def _end(name: str) -> tuple[int, int, int]:
    """Whether it is sent, the rank that posts it, and the rank at the other end."""
    found = _PEERS.fullmatch(name)
    if found is None:
        return _BATCH if name.endswith(":coalesced") else _NONE
    return (1, int(found[2]), int(found[3])) if found[1] else (0, int(found[4]), int(found[5]))


def _number(table: dict[_Group, int], groups: Mapping[str, _Group], name: str) -> int:
    """The number of a group; the one there is, where entries call it otherwise than the table of groups."""
    if name not in groups and len(groups) != 1:
        raise KeyError(f"process group {name}")
    group = groups[name] if name in groups else next(iter(groups.values()))
    return table.setdefault(group, len(table))


def _size(kinds: Sequence[str], lengths: Sequence[Sequence[int]]) -> tuple[str, bool]:
    """What a size is called, and whether it is one of integers."""
    kind = str(kinds[0]) if kinds else ""
    return f"{kind} {list(lengths[0]) if lengths else ''}".strip(), kind in _COUNTED


def _recorded(
    groups: Sequence[_Group], dumps: Mapping[int, _Dump], tables: _Tables, program: Program, notes: Sequence[str]
) -> Recorded:
    """The run of one pipeline. Its groups are the communicators of the plan, in the order of their names."""
    wanted = sorted({int(x) for x in program.communicator[program.sends | program.receives]})
    if len(groups) != len(wanted):
        names = ", ".join(group.name for group in groups)
        message = f"the plan has {len(wanted)} communicators, and the run {len(groups)}: process groups {names}"
        help = "say the communicator of each message in the plan, as in send:F0.1>1@1"
        raise fail(Code.RECORD_DIFFERS, message, help=help)
    ranks = groups[0].ranks
    late = [rank for rank in ranks if rank in dumps and dumps[rank].begins]
    cut = f"rank {late[0]} begins with entry {dumps[late[0]].begins:,}" if late else ""
    communicator = np.full(len(tables.groups), -1)
    communicator[[tables.groups[group] for group in groups]] = wanted
    parts = [dumps[rank].messages if rank in dumps else np.zeros((6, 0), dtype=np.int64) for rank in ranks]
    parts = [part[:, (communicator[part[0]] >= 0) & ((part[4] < COMPLETED) | (not cut))] for part in parts]
    group, send, peer, size, state, record = np.concatenate(parts, axis=1)
    counted = sum(dumps[rank].counted for rank in ranks if rank in dumps)
    said = [*notes]
    if len(wanted) > 1:
        pairs = zip(groups, wanted, strict=True)
        said.append(", ".join(f"process group {group.name} is communicator {number}" for group, number in pairs))
    if counted:
        said.append(f"{counted:,} messages of integers (shapes and objects) are left out")
    none = np.full(len(send), -1, dtype=np.int32)
    return Recorded(
        BY,
        np.where(send, Op.SEND_F, Op.RECV_F).astype(np.int8),
        none,
        none,
        peer.astype(np.int32),
        communicator[group].astype(np.int32),
        size,
        state.astype(np.int8),
        record,
        np.cumsum([0] + [part.shape[1] for part in parts], dtype=np.int64),
        tuple(tables.sizes),
        named=False,
        absent=tuple(i for i, rank in enumerate(ranks) if rank not in dumps),
        job=ranks,
        notes=tuple(said),
        cut=cut,
    )
