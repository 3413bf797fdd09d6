"""From the records of a stopped job the incident desk finds the rank that failed first, without guessing.

The oracle is a simulator of jobs (``oracles/incidents.py``) that knows which rank it made fail, and does not use the
desk.
"""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pipesched
from pipesched.interop.recorded import entries
from tests.depth import deep
from tests.interop.incidents_at_length import count
from tests.makers import recorded_runs, torch_pickles
from tests.makers.incident_dumps import FORMS, entry_of, write
from tests.oracles.incidents import Step, incident
from tests.readers.typed import typed

_GLOO = """
import os, sys, torch, torch.distributed as d
d.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
for _ in range(3): d.all_reduce(torch.ones(4))
sys.stdout.buffer.write(torch._C._distributed_c10d._dump_fr_trace(True, sys.argv[2] == "stacks"))
sys.stdout.buffer.flush()
os._exit(0)  # gloo's threads end with the process; torch may abort when it ends them
"""


def test_the_first_rank_is_the_one_that_failed() -> None:
    """Kills, stops, calls left out, exchanged or misdirected, in pipelines and collectives: 95 of 100 are named."""
    cases = deep(30, usual=12)
    right, wrong = count(range(7000, 7000 + cases))
    assert right.total() > 0.94 * cases, wrong


@pytest.mark.nightly
@pytest.mark.parametrize("stacks", ["stacks", "none"])
def test_dumps_of_torch_are_read(stacks: str, tmp_path: Path) -> None:
    """A dump of torch itself is read; without stacks, the tests' writer gives it the same bytes."""
    run = [sys.executable, "-c", _GLOO, str(tmp_path / "store"), stacks]
    data = subprocess.run(run, env={"TORCH_FR_BUFFER_SIZE": "10"}, capture_output=True, timeout=60, check=True).stdout
    assert (torch_pickles.dumps(pickle.loads(data)) == data) == (stacks == "none")
    log = entries.read("rank_0", data)
    assert [log.named[x] for x in log.call] == [("0", "gloo:all_reduce", "Float [4]", False)] * 3
    assert log.collective.tolist() == [1, 2, 3]


@pytest.mark.parametrize("seed", range(4))
def test_runs_of_entries_are_read_as_single_ones(seed: int, tmp_path: Path) -> None:
    """The same dump as torch pickles it, as Python pickles it and as JSON has the same calls."""
    write(incident(seed, "stop"), tmp_path)
    data = next(path for path in sorted(tmp_path.iterdir())).read_bytes()
    value = pickle.loads(data)
    forms = [data, pickle.dumps(value, 2), json.dumps(value).encode()]
    logs = [entries.read("rank_0", form) for form in forms]
    rows = [
        [
            (x.named[c], *rest)
            for c, *rest in zip(*(getattr(x, k).tolist() for k in ("call", "collective", "p2p", "state", "record")))  # noqa: B905
        ]
        for x in logs
    ]
    assert rows[0] == rows[1] == rows[2] and len(rows[0]) > 10


@pytest.mark.parametrize(("seed", "ring"), [(2, 2000), (6, 40), (10, 2000), (13, 24)])
def test_every_form_of_a_dump_is_read_alike(seed: int, ring: int, tmp_path: Path) -> None:
    """With threads, durations, stacks, as JSON or of version 2.4, with overwritten calls: the verdict is the same."""
    made, told = incident(seed), dict[str, str]()
    for form in FORMS:
        (folder := tmp_path / form).mkdir()
        name = f"trace-{form}_rank" if form in ("old", "threads") else "nccl_trace_rank_"
        write(made, folder, ring, form, name)
        text = typed("verify", "--recorded", str(folder)).out.decode()
        told[form] = text.replace(str(folder), "DIR").replace(name, "NAME").partition(" is cut off")[0]
    assert len({*told.values()}) == 1, told


@pytest.mark.parametrize("end", ["ALLGATHER_coalesced", "coalesced"])
@pytest.mark.parametrize("arrived", [True, False])
def test_collectives_of_a_batch_have_the_state_of_its_end(end: str, arrived: bool, tmp_path: Path) -> None:
    """NCCL records no event for the parts of a coalesced collective: they stay `scheduled` when the batch is over."""
    groups = {"0": ("default_pg", [0, 1])}
    parts = [("_broadcast_oop", "scheduled", 1), ("_broadcast_oop", "scheduled", 1), (end, "completed", 1)]
    for rank in range(2):
        rows = [("barrier", "completed", 0), *parts] if arrived else [("barrier", "completed", 0)]
        if not arrived and rank:
            rows += [(name, "scheduled", number) for name, _, number in parts]
        values = [
            entry_of(Step(name, "0", width=4), name, state, at, (number + 1, 0))
            for at, (name, state, number) in enumerate(rows)
        ]
        values = [{**one, "process_group": ("0", "default_pg")} for one in values]
        config = {"0": {"name": "0", "desc": groups["0"][0], "ranks": "[0, 1]"}}
        data = torch_pickles.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": values})
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(data)
    report = pipesched.verify(recorded=tmp_path)
    assert report.ok == arrived and report.to_json()["incident"]["first"] == (None if arrived else 0)  # type: ignore[index]


def test_what_is_missing_is_said_and_not_guessed(tmp_path: Path) -> None:
    """A rank without a dump and one with half a dump are named with the reason; the rest is judged."""
    made = incident(1, "stop", "collective")
    others = [rank for rank in range(len(made.posted)) if rank != made.rank]
    made.lost, made.damaged = {others[0]}, {others[1]}
    write(made, tmp_path)
    told = typed("verify", "--recorded", str(tmp_path))
    assert told.status == 1
    text = told.out.decode()
    assert f"no record of rank {others[0]}\n" in text
    assert f"error[PS891]: nccl_trace_rank_{others[1]} is cut off or damaged" in text
    assert f"the job stops: rank {made.rank} made no further call" in text


def test_a_file_with_the_name_of_a_dump_is_a_damaged_one(tmp_path: Path) -> None:
    """A file without any part of a dump is damaged; beside a rank's own dump, such a file is ignored."""
    made = incident(1, "stop", "collective")
    made.lost, made.damaged = set(), set()
    write(made, tmp_path)
    (tmp_path / "log_rank_0.txt").write_text("started")
    other = next(rank for rank in range(1, len(made.posted)) if rank != made.rank)
    (tmp_path / f"nccl_trace_rank_{other}").write_text("garbage")
    text = typed("verify", "--recorded", str(tmp_path)).out.decode()
    assert text.count("PS891") == 1 and f"nccl_trace_rank_{other} is cut off or damaged" in text
    assert f"the job stops: rank {made.rank} made no further call" in text


def test_a_dump_of_another_version_is_said(tmp_path: Path) -> None:
    """The finding has the version and the missing field; the rest is judged."""
    made = incident(1, "stop", "collective")
    made.lost, made.damaged = set(), set()
    write(made, tmp_path)
    other = next(rank for rank in range(1, len(made.posted)) if rank != made.rank)
    dump = {"version": "3.0", "pg_config": {}, "entries": [{"id": 1}]}
    (tmp_path / f"nccl_trace_rank_{other}").write_bytes(torch_pickles.dumps(dump))
    text = typed("verify", "--recorded", str(tmp_path)).out.decode()
    assert f"nccl_trace_rank_{other} of version 3.0 is not a dump of torch's flight recorder: it has no '" in text
    assert f"the job stops: rank {made.rank} made no further call" in text


def test_compressed_dumps_and_inner_folders_are_said(tmp_path: Path) -> None:
    """A compressed dump is one that cannot be read, and the remedy is to unpack it; dumps by host are not searched."""
    made = incident(1, "stop", "collective")
    made.lost, made.damaged = set(), set()
    (tmp_path / "host0").mkdir()
    write(made, tmp_path / "host0")
    assert f"{tmp_path} has no files, only 1 folder" in typed("verify", "--recorded", str(tmp_path)).err.decode()
    for file in [*(tmp_path / "host0").iterdir()]:
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert "has only compressed files" in typed("verify", "--recorded", str(tmp_path)).err.decode()
    first, second, *_ = sorted((tmp_path / "host0").iterdir())
    first.rename(tmp_path / first.name)
    (tmp_path / f"{first.name}.gz").unlink()
    text = typed("verify", "--recorded", str(tmp_path)).out.decode()
    assert f"error[PS891]: {second.name}.gz is compressed\n" in text


def test_dumps_of_another_rank_or_job_are_said(tmp_path: Path) -> None:
    """A dump with the name of a rank that its groups do not have is not judged; two of one rank are both named."""
    made = incident(1, "stop", "collective")
    made.lost, made.damaged = set(), set()
    write(made, tmp_path)
    data = (tmp_path / "nccl_trace_rank_0").read_bytes()
    (tmp_path / "nccl_trace_rank_7777").write_bytes(data)
    text = typed("verify", "--recorded", str(tmp_path)).out.decode()
    assert "nccl_trace_rank_7777 is not the dump of rank 7777" in text
    assert f"the job stops: rank {made.rank} made no further call" in text
    (tmp_path / "other_rank_0").write_bytes(data)
    text = typed("verify", "--recorded", str(tmp_path)).out.decode()
    assert "other_rank_0 is a second dump of rank 0, in addition to nccl_trace_rank_0" in text


def test_a_job_that_ended_is_ok(tmp_path: Path) -> None:
    """Where every call of every rank is completed, the desk has no finding."""
    made = incident(3, "stop")
    made.posted = [calls[:2] for calls in made.posted]  # a barrier and a broadcast, which all ranks have completed
    made.lost, made.damaged = set(), set()
    write(made, tmp_path)
    report = pipesched.verify(recorded=tmp_path)
    assert report.ok and str(report).startswith(
        f"ok  {tmp_path}   {len(made.posted)} ranks, {2 * len(made.posted)} calls"
    )


@pytest.mark.parametrize("write_run", [recorded_runs.orders, recorded_runs.traces])
def test_other_recorders_are_read(write_run: Callable[..., None], tmp_path: Path) -> None:
    """In orders and in pipesched's traces of three steps, the rank that stops in the third is first."""
    text = typed("emit", "1f1b", "--p=4", "--m=6", "--target=program").out.decode()
    program = pipesched.load(pipesched.Source("plan.txt", text)).program
    assert program is not None
    lists = [program.instructions(rank) for rank in range(4)]
    run = recorded_runs.play(
        lists, steps=3, stopped={2: 2 * len(lists[2]) + 14}, eager=write_run is recorded_runs.traces
    )
    write_run(run, tmp_path)
    report = pipesched.verify(recorded=tmp_path)
    assert report.to_json()["incident"]["first"] == 2, report  # type: ignore[index]


def test_neither_a_schedule_nor_a_record() -> None:
    """A command without a file and without a folder of records is refused, as is the function."""
    told = typed("verify")
    assert told.status == 2 and b"missing argument 'FILES...'" in told.err
    with pytest.raises(pipesched.PipeschedError, match="missing argument"):
        pipesched.verify()


def test_many_empty_lists_are_read_in_linear_time() -> None:
    """Entries with a hundred lists that torch does not write are refused, and not searched forever."""
    value = {"entries": [{"record_id": 1, **{f"x{i}": [] for i in range(100)}}] * 3, "pg_config": {}}
    with pytest.raises(pipesched.PipeschedError, match="PS891"):
        entries.read("rank_0", torch_pickles.dumps(value))
