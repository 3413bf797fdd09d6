"""Measured runs with known times: simulated ones, and one that torch's profiler wrote.

`played` runs a schedule on `simulate.run` and writes what a runtime would have recorded: an operation begins when the
rank is free, waits for its input, works, ends.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.costs import Costs
from pipesched.model.schedule import Schedule
from tests.oracles import simulate

Captured = pytest.CaptureFixture[str]
Events = list[dict[str, Any]]
DATA = Path(__file__).parents[1] / "data"
TORCH = [str(DATA / f"torch_profile_rank{rank}.json") for rank in range(2)]
ASLEEP = {"F": (10, 11, 12, 13), "I": (14, 15, 16, 17), "W": (8, 9, 8, 10)}  # ms by stage, as the fixture says
LIBRARY = {
    "gpipe": {"p": 3, "m": 4},
    "1f1b": {"p": 4, "m": 8},
    "interleaved": {"p": 2, "v": 2, "m": 4},
    "zb_h1": {"p": 4, "m": 8},
    "zb_v": {"p": 2, "m": 5},
    "dualpipe": {"p": 4, "m": 8},
    "dualpipev": {"p": 2, "m": 6},
}
COSTS = "F=241/2,I=170,W=90,B=275,FB=410,C=15"  # microseconds; no two sums of two are the same


def built(name: str) -> Schedule:
    return pipesched.load(name, **LIBRARY[name])


def played(schedule: Schedule, costs: str, *, torch: bool, late: tuple[int, int, int] | None = None) -> list[Events]:
    """Return the events of every rank. torch: in its profiler's form, else in ours. late: rank, position, delay."""
    run = simulate.run(schedule, simulate.rows(Costs.parse(costs), schedule.stages))
    made = []
    for rank, order in enumerate(run.orders):
        events, free = [], Fraction(0)
        for slot in simulate.slots(order):
            start, end = run.start[rank, slot[0]], run.end[rank, slot[-1]]
            if late is not None and late[0] == rank and slot[0] >= late[1]:
                start, end = start + late[2], end + late[2]
            parts = [(x.op.name, x.stage, x.microbatch) for x in (order[i] for i in slot)]
            events.append(event(rank, parts, free, start, end, torch=torch))
            free = end
        made.append(events)
    return made


def event(
    rank: int, parts: list[tuple[str, int, int]], begin: Fraction, start: Fraction, end: Fraction, *, torch: bool
) -> dict[str, Any]:
    names = [f"{stage}{op}{microbatch}" for op, stage, microbatch in parts]
    name = names[0] if len(names) == 1 else f"({';'.join(names)})OVERLAP_F_B"
    if torch:
        return {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"PP:{name}",
            "ts": float(begin),
            "dur": float(end - begin),
        }
    first, *others = ({"op": op, "stage": stage, "microbatch": microbatch} for op, stage, microbatch in parts)
    args = {"rank": rank, **first, "waited": float(start - begin) / 1e6}
    if others:
        args["with"] = others[0]
    return {"ph": "X", "pid": rank, "name": name, "ts": float(begin), "dur": float(end - begin), "args": args}


def written(folder: Path, ranks: list[Events], *, torch: bool) -> list[str]:
    """Write a file per rank for torch, with its rank in `distributedInfo`, in shuffled order; else one file."""
    if not torch:
        file = folder / "run.json"
        file.write_text(json.dumps({"traceEvents": [x for events in ranks for x in events]}), "utf-8")
        return [str(file)]
    files = []
    for rank, events in enumerate(ranks):
        file = folder / f"rank{rank}.json"
        base = 1_790_857_026_000_000_000 + rank * 1_000_000  # each file counts from a time of its own
        about = {"distributedInfo": {"rank": rank}, "baseTimeNanoseconds": base}
        moved = [{**x, "ts": x["ts"] - rank * 1000} for x in events]
        file.write_text(json.dumps({**about, "traceEvents": moved}), "utf-8")
        files.append(str(file))
    return files[::-1]


def later(events: Events, by: float, slower: float = 1) -> Events:
    """Return the same operations once more, later, and slower by a factor."""
    return [{**x, "ts": by + x["ts"] * slower, "dur": x["dur"] * slower} for x in events]


def shown(name: str, files: list[str], capsys: Captured, *options: str) -> tuple[int, str, str]:
    """Return the status, stdout and stderr of ``show --measured``."""
    sizes = [x for key, value in LIBRARY[name].items() for x in (f"--{key}", str(value))]
    given = [x for file in files for x in ("--measured", file)]
    costs = [] if "--cost" in options else ["--cost", COSTS]
    status = main(["show", name, *sizes, *costs, *given, *options])
    said = capsys.readouterr()
    return status, said.out, said.err


def rows_of(text: str) -> list[tuple[str, str]]:
    """Return the plan and run of each rank."""
    rows = re.findall(r"^(?:rank \d+ plan|       run )  (.*)$", text, re.M)
    return list(zip(rows[::2], rows[1::2], strict=True))


def calibrated(ranks: list[Events], torch: bool, folder: Path, capsys: Captured) -> dict[str, Any]:
    """Return the JSON object of `calibrate`."""
    assert main(["calibrate", *written(folder, ranks, torch=torch), "--digits", "9", "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made
