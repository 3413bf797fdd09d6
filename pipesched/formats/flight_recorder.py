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
import json
import pickle
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesched.analysis.recorded_run import STATES, Recorded
from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Column, among
from pipesched.model.ops import SHAPES, Op
from pipesched.model.program import Program

BY = "torch's flight recorder"
_PEERS = re.compile(r"\w+:(?:(send) (\d{1,9})->(\d{1,9})|recv (\d{1,9})<-(\d{1,9}))")
_RANK = re.compile(r"(\d{1,9})(?:\.\w+)?$")
_COUNTED = frozenset({"Bool", "Byte", "Char", "Int", "Long", "Short"})
"""Types of shapes and of pickled objects, which the trainer sends beside activations and gradients."""


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
        return json.loads(data) if data[:1] == b"{" else _Plain(io.BytesIO(data)).load()
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

    name: str
    purpose: str
    ranks: tuple[int, ...]


_Entry = tuple[bool, int, str, int, int]  # whether it is sent, peer, size, state, record


@dataclass(frozen=True, slots=True)
class _Dump:
    """What is read of a file: the messages by group; where its buffer begins; how many messages are of integers."""

    messages: Mapping[_Group, list[_Entry]]
    begins: int
    counted: int


def read(files: Mapping[str, bytes], program: Program) -> list[Recorded]:
    """The runs of a folder, one for each pipeline of the job that has as many ranks as the program.

    Raises:
        PipeschedError: PS890, no messages; PS891, a file that cannot be read; PS892, of another size.
    """
    dumps: dict[int, _Dump] = {}
    shapes = bool(among(program.op, SHAPES).any())
    for name, data in files.items():
        found = _RANK.search(name)
        if found is None:
            raise fail(Code.RECORD, f"{name} does not end in a rank", help="name the dumps rank_0, rank_1, …")
        if int(found[1]) in dumps:
            raise fail(Code.RECORD, f"{name} is a second dump of rank {int(found[1])}")
        dumps[int(found[1])] = _dump(name, dump(name, data), shapes=shapes)
    groups = dict.fromkeys(group for one in dumps.values() for group in one.messages)
    if not groups:
        help = "gloo records collectives only: record such a run with `pipesched.runtime`, or run it on NCCL"
        raise fail(Code.NO_RECORD, "the dumps hold no send and no receive", help=help)
    chosen = _pipelines(groups, program)
    pipelines: dict[tuple[int, ...], list[_Group]] = defaultdict(list)
    for group in sorted(chosen, key=lambda group: (len(group.name), group.name)):
        pipelines[group.ranks].append(group)
    left_out = [f"process group {g.name} ({g.purpose}) is no pipeline of this plan" for g in groups if g not in chosen]
    return [_recorded(ranks, of, dumps, program, left_out) for ranks, of in sorted(pipelines.items())]


def _pipelines(groups: Mapping[_Group, None], program: Program) -> list[_Group]:
    """The groups with messages that have as many ranks as the plan; of these the ones that are called so."""
    fitting = [group for group in groups if len(group.ranks) == program.ranks]
    if not fitting:
        group = next(iter(groups))
        message = (
            f"the plan has {program.ranks} ranks; the run has {len(group.ranks)}: process group {group.name} "
            f"({group.purpose}) is of ranks {', '.join(map(str, group.ranks))}"
        )
        raise fail(Code.RECORD_DIFFERS, message, help="give the schedule at the sizes of the run, with --p, --v, --m")
    called = [group for group in fitting if re.search(r"(^|_)pp($|_)|pipeline", group.purpose, re.IGNORECASE)]
    return called or fitting


def _dump(name: str, value: Any, *, shapes: bool) -> _Dump:
    """The messages of a file.

    Raises:
        PipeschedError: PS891.
    """
    try:
        groups = {str(key): _group(str(key), about) for key, about in value.get("pg_config", {}).items()}
        return _messages(value["entries"] if groups else value.get("entries", ()), groups, shapes)
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        SyntaxError,
        MemoryError,
        RecursionError,
    ) as error:
        said = f"{type(error).__name__}: {error}"[:80]
        help = "version 2 is read, as torch 2.5 to 2.13 write it"
        raise fail(Code.RECORD, f"{name} is no dump of {BY}: {said}", help=help) from None


def _group(key: str, about: Mapping[str, Any]) -> _Group:
    ranks = about["ranks"]
    listed = ast.literal_eval(ranks) if isinstance(ranks, str) else ranks
    return _Group(key, str(about.get("desc") or "unnamed"), tuple(sorted(int(rank) for rank in listed)))


def _messages(entries: Sequence[Mapping[str, Any]], groups: Mapping[str, _Group], shapes: bool) -> _Dump:
    found: dict[_Group, list[_Entry]] = defaultdict(list)
    batches: dict[tuple[str, int], int] = {}
    of: dict[_Group, list[tuple[str, int]]] = defaultdict(list)
    peers: dict[str, tuple[bool, int] | None] = {}
    sizes: dict[tuple[object, ...], str] = {}
    counted = 0
    for entry in entries:
        name, pg = entry["profiling_name"], entry["process_group"][0]
        if name not in peers:
            peers[name] = _peer(name)
        end = peers[name]
        if end is None:
            if name.endswith(":coalesced") and entry.get("is_p2p", True):
                batches[pg, entry["p2p_seq_id"]] = STATES.index(entry["state"])
            continue
        kind = entry["input_dtypes"][0] if entry.get("input_dtypes") else ""
        if kind in _COUNTED and not shapes:
            counted += 1
            continue
        shape = entry["input_sizes"][0] if entry["input_sizes"] else entry["output_sizes"][0]
        size = (kind, *shape)
        if size not in sizes:
            sizes[size] = f"{kind} [{', '.join(map(str, shape))}]".strip()
        group = groups[pg] if pg in groups else _only(groups, pg)
        found[group].append((*end, sizes[size], STATES.index(entry["state"]), int(entry["record_id"])))
        of[group].append((pg, entry["p2p_seq_id"]))
    ended = {
        group: [(*e[:3], max(e[3], batches.get(batch, 0)), e[4]) for e, batch in zip(rows, of[group], strict=True)]
        for group, rows in found.items()
    }
    return _Dump(ended, int(entries[0]["record_id"]) if entries else 0, counted)


def _only(groups: Mapping[str, _Group], name: str) -> _Group:
    """The one group there is, where entries call it otherwise than the table of groups."""
    if len(groups) != 1:
        raise KeyError(f"process group {name}")
    return next(iter(groups.values()))


def _peer(name: str) -> tuple[bool, int] | None:
    """Whether it is sent, and the rank at the other end; None of what is no message."""
    found = _PEERS.fullmatch(name)
    if found is None:
        return None
    return (True, int(found[3])) if found[1] else (False, int(found[5]))


def _recorded(
    ranks: tuple[int, ...], groups: Sequence[_Group], dumps: Mapping[int, _Dump], program: Program, notes: Sequence[str]
) -> Recorded:
    """The run of one pipeline. Its groups are the communicators of the plan, in the order of their names."""
    wanted = sorted({int(x) for x in program.communicator[program.sends | program.receives]})
    if len(groups) != len(wanted):
        names = ", ".join(group.name for group in groups)
        message = f"the plan has {len(wanted)} communicators, and the run {len(groups)}: process groups {names}"
        raise fail(
            Code.RECORD_DIFFERS, message, help="say the communicator of each message in the plan, as in send:F0.1>1@1"
        )
    begun = {rank: dumps[rank].begins for rank in ranks if rank in dumps}
    late = next((rank for rank, first in begun.items() if first), None)
    if late is not None:
        message = f"the dump of rank {late} begins with entry {begun[late]:,}: those before are overwritten"
        help = "messages are counted from the first one on: set TORCH_FR_BUFFER_SIZE to more than a run records"
        raise fail(Code.RECORD, message, help=help)
    rows, start = [], [0]
    for rank in ranks:
        here = [(number, *e) for number, group in zip(wanted, groups, strict=True) for e in _of(dumps, rank, group)]
        rows += sorted(here, key=lambda row: row[5])
        start.append(len(rows))
    sizes = {text: i for i, text in enumerate(dict.fromkeys(row[3] for row in rows))}
    counted = sum(dumps[rank].counted for rank in ranks if rank in dumps)
    said = [*notes]
    if len(wanted) > 1:
        said.append(
            ", ".join(f"process group {g.name} is communicator {c}" for c, g in zip(wanted, groups, strict=True))
        )
    if counted:
        said.append(f"{counted:,} messages of integers (shapes and objects) are left out")

    def column(i: int, kind: type) -> Column:
        return np.array([row[i] for row in rows], dtype=kind)

    none = np.full(len(rows), -1, dtype=np.int32)
    return Recorded(
        BY,
        np.where(column(1, np.bool_), Op.SEND_F, Op.RECV_F).astype(np.int8),
        none,
        none,
        column(2, np.int32),
        column(0, np.int32),
        np.array([sizes[row[3]] for row in rows], dtype=np.int64),
        column(4, np.int8),
        column(5, np.int64),
        np.array(start, dtype=np.int64),
        tuple(sizes),
        named=False,
        absent=tuple(i for i, rank in enumerate(ranks) if rank not in dumps),
        job=ranks,
        notes=tuple(said),
    )


def _of(dumps: Mapping[int, _Dump], rank: int, group: _Group) -> Iterator[_Entry]:
    return iter(dumps[rank].messages.get(group, ())) if rank in dumps else iter(())
