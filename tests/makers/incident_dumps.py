"""The dumps of torch's flight recorder that the ranks of a simulated job would write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.makers.torch_pickles import dumps
from tests.oracles.incidents import Incident, Step


def write(told: Incident, folder: Path, ring: int = 2000, form: str = "plain", name: str = "nccl_trace_rank_") -> None:
    """Write the dumps of an incident. ring: entries that a recorder keeps. form: of `FORMS`; name: before the rank."""
    config = {key: {"name": key, "desc": name, "ranks": str(ranks)} for key, (name, ranks) in told.groups.items()}
    for r, calls in enumerate(told.posted):
        if r in told.lost:
            continue
        entries = _entries(told, r, calls)
        mine = {key: about for key, about in config.items() if r in told.groups[key][1]}
        status = {key: dict.fromkeys(_STATUS, len(entries)) for key in mine}
        value = {"version": "2.10", "pg_config": mine, "pg_status": status, "entries": entries[-ring:]}
        data = FORMS[form](value)
        (folder / f"{name}{r}").write_bytes(data[: len(data) // 2] if r in told.damaged else data)


_STATUS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
_ORDER = [
    *("frames", "record_id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id", "p2p_seq_id"),
    *("op_id", "profiling_name", "time_created_ns", "duration_ms", "input_sizes", "input_dtypes", "output_sizes"),
    *("output_dtypes", "state", "time_discovered_started_ns", "time_discovered_completed_ns", "retired"),
    *("timeout_ms", "is_p2p"),
]
"""The fields of an entry in torch's order (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp, torch 2.13)."""


def _filled(value: dict[str, Any], **more: object) -> dict[str, Any]:
    """Return a dump with more fields in each entry. A duration is there only where the entry is completed."""
    made = []
    for entry in value["entries"]:
        every = {**entry, **more}
        if entry["state"] != "completed":
            every.pop("duration_ms", None)
        made.append({key: every[key] for key in _ORDER if key in every})
    return {**value, "entries": made}


def _threads(value: dict[str, Any]) -> bytes:
    """Return the dump of torch 2.9 and later, with the states of NCCL's communicators."""
    comm = {"0x7f": {"rank": "0", "nRanks": "4"}}
    more = {"comm_lib_version": "2.27.5", "nccl_comm_state": comm}
    return dumps({**_filled(value, thread_name="pt_main_thread", thread_id="140735"), **more})


def _stacks(value: dict[str, Any]) -> bytes:
    """Return a dump with timings and stacks: one frame in each entry."""
    frames = [{"name": "step", "filename": "train.py", "line": 12}]
    return dumps(_filled(value, frames=frames, thread_name="pt", thread_id="1", duration_ms=0.25))


def _json(value: dict[str, Any]) -> bytes:
    """Return a dump as JSON: keys sorted, times 0 for none, a duration where there is one, and no empty entries."""
    entries = _filled(value, thread_name="pt", thread_id="1", duration_ms=0.5)["entries"]
    entries = [{key: 0 if of is None else of for key, of in entry.items()} for entry in entries]
    status = {key: {word: str(count) for word, count in one.items()} for key, one in value["pg_status"].items()}
    made = {**value, "pg_status": status, "entries": entries}
    return json.dumps({key: of for key, of in made.items() if key != "entries" or of}, sort_keys=True).encode()


def _old(value: dict[str, Any]) -> bytes:
    """Return the dump of torch 2.5, version 2.4: without threads."""
    return dumps({**_filled(value), "version": "2.4"})


FORMS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "plain": dumps,
    "old": _old,
    "threads": _threads,
    "stacks": _stacks,
    "json": _json,
}
"""What torch writes, by version and settings."""


def _entries(told: Incident, r: int, calls: list[tuple[Step, str]]) -> list[dict[str, object]]:
    """Return the entries of the recorder; messages of a batch have a last entry with their state."""
    numbers: dict[str, int] = {}
    p2p, last, entries = 0, 0, list[dict[str, object]]()
    for i, (x, state) in enumerate(calls):
        ranks = told.groups[x.group][1]
        if x.peer < 0:
            numbers[x.group] = numbers.get(x.group, 0) + 1
            entries.append(entry_of(x, x.way, state, len(entries), (numbers[x.group], p2p)))
            continue
        p2p += not (x.batch and x.batch == last and i and calls[i - 1][0].peer >= 0)
        last = x.batch
        name = f"{x.way} {ranks.index(r)}{'->' if x.way == 'send' else '<-'}{ranks.index(x.peer)}"
        counts = (numbers.get(x.group, 0), p2p)
        entries.append(entry_of(x, name, "scheduled" if x.batch else state, len(entries), counts))
        if x.batch and (i + 1 == len(calls) or calls[i + 1][0].batch != x.batch):
            entries.append(entry_of(x, "coalesced", state, len(entries), counts))
    for entry in entries:
        entry["process_group"] = (entry["process_group"], told.groups[str(entry["process_group"])][0])
    return entries


def entry_of(x: Step, name: str, state: str, record: int, counts: tuple[int, int]) -> dict[str, object]:
    """Return an entry of the recorder. counts: the sequence numbers of collectives and of messages."""
    over = 1000 + record if state == "completed" else None
    tensors: list[object] = [] if name == "coalesced" else [[x.width]]
    types: list[object] = [] if name == "coalesced" else ["BFloat16"]
    return {
        "record_id": record,
        "pg_id": int(x.group),
        "process_group": x.group,
        "collective_seq_id": counts[0],
        "p2p_seq_id": counts[1],
        "op_id": record + 1,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_700_000_000_000_000_000 + 1000 * record,
        "input_sizes": tensors,
        "input_dtypes": types,
        "output_sizes": tensors,
        "output_dtypes": types,
        "state": state,
        "time_discovered_started_ns": over,
        "time_discovered_completed_ns": over,
        "retired": over is not None,
        "timeout_ms": 600000,
        "is_p2p": x.peer >= 0,
    }
