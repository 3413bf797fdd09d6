"""Measure how `pipesched verify` and `emit` scale, as whole processes, against torch 2.13 on the same order.

    python -m tests.bench.scale                 all rows: about two minutes, most of them torch's
    python -m tests.bench.scale --runs 5 --no-torch

Figures are medians over the runs: wall and CPU seconds and peak resident memory of the process, on one core. Torch
is measured as its CPU seconds for loading the file (parse, validate, lower) and for simulating the lowered order.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pipesched
from pipesched import Schedule
from tests.makers.recorded_runs import dumps, play

ONE_CORE = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Figures:
    """Seconds and MiB of one process."""

    wall: float
    cpu: float
    memory: float


def measure(command: list[str]) -> Figures:
    """Run once; the output is discarded, a failure raises."""
    pin = ["taskset", "-c", "0"] if Path("/usr/bin/taskset").exists() else []
    begin = os.times()
    process = subprocess.Popen([*pin, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ONE_CORE)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with status {status}")
    return Figures(os.times().elapsed - begin.elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def median(command: list[str], runs: int) -> Figures:
    measure(command)
    all_runs = [measure(command) for _ in range(runs)]
    return Figures(*(statistics.median(getattr(x, name) for x in all_runs) for name in ("wall", "cpu", "memory")))


def write_csv(schedule: Schedule, path: Path) -> Path:
    """Return the compute order as torch's CSV."""
    ops = schedule.op.tolist(), schedule.stage.tolist(), schedule.microbatch.tolist()
    cells = [f"{stage}{'FIWB'[op]}{microbatch}" for op, stage, microbatch in zip(*ops, strict=True)]
    cut = schedule.start.tolist()
    path.write_text("".join(",".join(cells[a:b]) + "\n" for a, b in itertools.pairwise(cut)))
    return path


def zb_v(ranks: int, microbatches: int, path: Path) -> Path:
    """Return torch's own ZB-V order."""
    code = f"from tests.bench.torch_peer import zb_v; zb_v({ranks}, {microbatches}, {str(path)!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    return path


def recorded_run(folder: Path) -> list[list[str]]:
    """Measure 1f1b on 64 ranks, 2,000 messages each: verify the plan alone, and with dumps of a flight recorder."""
    plan, dumps_of = folder / "plan.txt", folder / "recorded"
    sizes = ["--p", "64", "--m", "500"]
    command = [sys.executable, "-m", "pipesched", "emit", "1f1b", *sizes, "--target", "program", "-o", str(plan)]
    subprocess.run(command, check=True)
    made = pipesched.load(plan).program
    assert made is not None
    dumps_of.mkdir()
    dumps(play([made.instructions(rank) for rank in range(made.ranks)]), dumps_of, chatter=False)
    return [["verify", str(plan)], ["verify", str(plan), "--recorded", str(dumps_of)]]


def torch_seconds(path: Path) -> dict[str, float]:
    """Return the CPU seconds of torch to load and simulate a file."""
    code = f"from tests.bench.torch_peer import load_and_simulate; load_and_simulate({str(path)!r})"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    asked = parser.parse_args()
    tool = [sys.executable, "-m", "pipesched"]
    with tempfile.TemporaryDirectory() as folder:
        rows = [("--help", [*tool, "--help"]), ("verify 1f1b --p 4", [*tool, "verify", "1f1b", "--p", "4"])]
        for m in (128, 256, 512, 1024):
            sizes = ["--p", "64", "--v", "4", "--m", str(m)]
            rows.append((f"verify interleaved {' '.join(sizes)}", [*tool, "verify", "interleaved", *sizes]))
        large, out = ["interleaved", "--p", "64", "--v", "4", "--m", "1024"], str(Path(folder) / "out.json")
        for target in ("torch-csv", "torch-comms", "stream"):
            command = [*tool, "emit", *large, "--target", target, "-o", out if target == "stream" else f"{out}.csv"]
            rows.append((f"emit {' '.join(large)} --target {target}", command))
        rows.append(("verify out.json  (that stream)", [*tool, "verify", out]))
        csv = zb_v(64, 1024, Path(folder) / "zb_v.csv")
        rows.append(("verify zb_v.csv  (p=64 m=1024)", [*tool, "verify", str(csv)]))
        alone, recorded = recorded_run(Path(folder))
        rows.append(("verify plan.txt  (1f1b p=64 m=500)", [*tool, *alone]))
        rows.append(("verify plan.txt --recorded DIR", [*tool, *recorded]))
        print(f"{'':68}{'wall s':>8}{'cpu s':>8}{'MiB':>8}")
        for name, command in rows:
            x = median(command, asked.runs)
            print(f"{name:68}{x.wall:8.2f}{x.cpu:8.2f}{x.memory:8.0f}", flush=True)
        if asked.torch:
            schedule = pipesched.load("interleaved", p=64, v=4, m=1024)
            interleaved = write_csv(schedule, Path(folder) / "interleaved.csv")
            for name, path in (("interleaved", interleaved), ("zb_v", csv)):
                x = torch_seconds(path)
                print(f"torch {name}: load {x['load']:.1f} cpu s, simulate {x['simulate']:.1f} cpu s", flush=True)
    print(f"of this benchmark itself: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
