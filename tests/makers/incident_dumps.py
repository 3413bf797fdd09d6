"""The dumps of torch's flight recorder that the ranks of a simulated job leave."""

from __future__ import annotations

from pathlib import Path

from tests.makers.torch_pickles import dumps
from tests.oracles.incidents import Incident, Step


def write(told: Incident, folder: Path, ring: int = 2000) -> None:
    """Write the dumps of an incident. ring: entries that a recorder keeps."""
    config = {key: {"name": key, "desc": name, "ranks": str(ranks)} for key, (name, ranks) in told.groups.items()}
    for r, calls in enumerate(told.posted):
        if r in told.lost:
            continue
        entries = _entries(told, r, calls)
        mine = {key: about for key, about in config.items() if r in told.groups[key][1]}
        data = dumps({"version": "2.10", "pg_config": mine, "pg_status": {}, "entries": entries[-ring:]})
        (folder / f"nccl_trace_rank_{r}").write_bytes(data[: len(data) // 2] if r in told.damaged else data)


def _entries(told: Incident, r: int, calls: list[tuple[Step, str]]) -> list[dict[str, object]]:
    """Return the entries of the recorder; messages of a batch have a last entry with their state."""
    numbers: dict[str, int] = {}
    p2p, last, entries = 0, 0, list[dict[str, object]]()
    for i, (x, state) in enumerate(calls):
        ranks = told.groups[x.group][1]
        if x.peer < 0:
            numbers[x.group] = numbers.get(x.group, 0) + 1
            entries.append(_entry(x, x.way, state, len(entries), (numbers[x.group], p2p)))
            continue
        p2p += not (x.batch and x.batch == last and i and calls[i - 1][0].peer >= 0)
        last = x.batch
        name = f"{x.way} {ranks.index(r)}{'->' if x.way == 'send' else '<-'}{ranks.index(x.peer)}"
        counts = (numbers.get(x.group, 0), p2p)
        entries.append(_entry(x, name, "scheduled" if x.batch else state, len(entries), counts))
        if x.batch and (i + 1 == len(calls) or calls[i + 1][0].batch != x.batch):
            entries.append(_entry(x, "coalesced", state, len(entries), counts))
    for entry in entries:
        entry["process_group"] = (entry["process_group"], told.groups[str(entry["process_group"])][0])
    return entries


def _entry(x: Step, name: str, state: str, record: int, counts: tuple[int, int]) -> dict[str, object]:
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
