"""Measure how `pipesched verify` and `emit` scale, as whole processes, against torch 2.13 on the same order.

    python -m tests.bench.scale                 all rows: minutes, most of them torch's
    python -m tests.bench.scale --runs 5 --only "verify interleaved"
    python -m tests.bench.scale --runs 1 --only torch

Figures are medians over the runs: wall and CPU seconds and peak resident memory of the process, on one core. Torch is
measured as its CPU seconds for loading the file (parse, validate, lower) and for simulating the lowered order; the same
file is verified beside it, as a whole process, and the ratio is of CPU seconds. Only what a row needs is prepared.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pipesched
from pipesched import Schedule
from tests.makers.recorded_runs import dumps, play

LARGE = ["interleaved", "--p", "64", "--v", "4", "--m", "1024"]
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


def interleaved(path: Path) -> Path:
    """Return the compute order of interleaved 1F1B on 64 ranks as torch's CSV."""
    schedule = pipesched.load("interleaved", p=64, v=4, m=1024)
    assert isinstance(schedule, Schedule)
    ops = schedule.op.tolist(), schedule.stage.tolist(), schedule.microbatch.tolist()
    cells = [f"{stage}{'FIWB'[op]}{microbatch}" for op, stage, microbatch in zip(*ops, strict=True)]
    cut = schedule.start.tolist()
    path.write_text("".join(",".join(cells[a:b]) + "\n" for a, b in itertools.pairwise(cut)))
    return path


def zb_v(path: Path) -> Path:
    """Return torch's own ZB-V order on 64 ranks."""
    code = f"from tests.bench.torch_peer import zb_v; zb_v(64, 1024, {str(path)!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    return path


def recorded_run(folder: Path, *, recorded: bool) -> list[str]:
    """Verify the plan of 1f1b on 64 ranks, 2,000 messages each, if wanted with dumps of a flight recorder."""
    plan, dumps_of = folder / "plan.txt", folder / "recorded"
    sizes = ["--p", "64", "--m", "500"]
    command = [sys.executable, "-m", "pipesched", "emit", "1f1b", *sizes, "--target", "program", "-o", str(plan)]
    subprocess.run(command, check=True)
    if not recorded:
        return ["verify", str(plan)]
    made = pipesched.load(plan).program
    assert made is not None
    dumps_of.mkdir()
    dumps(play([made.instructions(rank) for rank in range(made.ranks)]), dumps_of, chatter=False)
    return ["verify", str(plan), "--recorded", str(dumps_of)]


def emitted(folder: Path, target: str) -> list[str]:
    """Emit the large schedule to a file, which `verify` can read back."""
    out = folder / ("out.json" if target == "stream" else "out.csv")
    return ["emit", *LARGE, "--target", target, "-o", str(out)]


def read_back(folder: Path) -> list[str]:
    """Verify the stream of the large schedule."""
    command = emitted(folder, "stream")
    if not Path(command[-1]).exists():
        subprocess.run([sys.executable, "-m", "pipesched", *command], check=True)
    return ["verify", command[-1]]


def rows(folder: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Yield each row: its name, and what prepares its files and returns its command."""
    yield "--help", lambda: ["--help"]
    yield "verify 1f1b --p 4", lambda: ["verify", "1f1b", "--p", "4"]
    for m in (128, 256, 512, 1024):
        command = ["verify", *LARGE[:-1], str(m)]
        yield " ".join(command), partial(list, command)
    for target in ("torch-csv", "torch-comms", "stream"):
        yield f"emit {' '.join(LARGE)} --target {target}", partial(emitted, folder, target)
    yield "verify out.json  (that stream)", partial(read_back, folder)
    yield "verify zb_v.csv  (p=64 m=1024)", lambda: ["verify", str(zb_v(folder / "zb_v.csv"))]
    yield "verify plan.txt  (1f1b p=64 m=500)", partial(recorded_run, folder, recorded=False)
    yield "verify plan.txt --recorded DIR", partial(recorded_run, folder, recorded=True)


def torch_seconds(path: Path) -> dict[str, float]:
    """Return the CPU seconds of torch to load and simulate a file."""
    code = f"from tests.bench.torch_peer import load_and_simulate; load_and_simulate({str(path)!r})"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORDS", help="rows whose name contains these words")
    asked = parser.parse_args()
    tool = [sys.executable, "-m", "pipesched"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{'':68}{'wall s':>8}{'cpu s':>8}{'MiB':>8}")
        for row, prepared in rows(folder):
            if asked.only in row:
                x = median([*tool, *prepared()], asked.runs)
                print(f"{row:68}{x.wall:8.2f}{x.cpu:8.2f}{x.memory:8.0f}", flush=True)
        for of, made in (("interleaved", interleaved), ("zb_v", zb_v)):
            if asked.only in f"torch {of}.csv  (p=64 m=1024)":
                path = made(folder / f"{of}.csv")
                peer, ours = torch_seconds(path), median([*tool, "verify", str(path)], asked.runs)
                ratio = (peer["load"] + peer["simulate"]) / ours.cpu
                print(f"torch {of}.csv: load {peer['load']:.1f} cpu s, simulate {peer['simulate']:.1f} cpu s;")
                print(f"    verify of it {ours.cpu:.2f} cpu s, {ours.memory:.0f} MiB: 1/{ratio:.0f}", flush=True)
    print(f"of this benchmark itself: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
