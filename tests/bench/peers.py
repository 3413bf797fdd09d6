"""Measure `verify` at scale against comparable programs in the same run, so that a busy machine gives the same ratios
as an idle one.

    python -m tests.bench.peers                          all rows; torch's at m = 128
    python -m tests.bench.peers --m 1024 --torch-m 1024  torch alone takes about a minute
    python -m tests.bench.peers --before 035f411         a commit, of which every row is measured beside this one

CPU seconds and peak resident memory of whole processes, the least of several runs that take turns with their peer's.

    expansion    our programs as arrays, beside the same order written by hand in numpy
    torch        our load and verdict of a CSV, beside torch's load and its simulation of the same file
    messages     `--comm buffered(3)` beside the default
    formulas     costs by formula of stage and microbatch, beside none
    before       each command beside the same one of another commit
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import pipesched
from pipesched.compile import load
from pipesched.examine import Options
from pipesched.language.rank_programs import Programs
from pipesched.library.inputs import read
from tests.bench.scale import ONE_CORE, Figures, measure, torch_seconds, write_csv

TOP = Path(__file__).parents[2]
TOOL = [sys.executable, "-m", "pipesched"]
FIRST = "035f411"  # the commit before programs became arrays
FORMULAS = """
schedule formulas(p, m)
stage s in 0 .. p on rank s
COSTS
rank r { let w = min(p - 1 - r, m)  repeat w { F }  repeat m - w { F  B }  repeat w { B } }
"""
COSTS = "costs F[s, i] = 2 + (s * 7 + i * 3) % 5, B[s, i] = (8 + (s + i) % 3) / 2"


def interleaved(p: int, v: int, m: int) -> tuple[NDArray[np.int8], NDArray[np.int16], NDArray[np.int32]]:
    """Write interleaved 1F1B by hand, a loop at a time: kinds (1 backward), stages and microbatches of all ranks."""
    kind, stage, microbatch = (np.empty((p, 2 * v * m), dtype=x) for x in (np.int8, np.int16, np.int32))
    k = np.arange(v * m)
    chunk, number = k // p % v, k // (p * v) * p + k % p
    for r in range(p):
        warmup = min(2 * (p - 1 - r) + (v - 1) * p, v * m)
        steady = v * m - warmup
        both = slice(warmup, warmup + 2 * steady)
        for column, forward, backward in (
            (kind[r], np.zeros_like(k), np.ones_like(k)),
            (stage[r], chunk * p + r, (v - 1 - chunk) * p + r),
            (microbatch[r], number, number),
        ):
            column[:warmup], column[both.stop :] = forward[:warmup], backward[steady:]
            column[both][::2], column[both][1::2] = forward[warmup:], backward[:steady]
    return kind.ravel(), stage.ravel(), microbatch.ravel()


def least(run: Callable[[], object], runs: int) -> float:
    """Return the CPU seconds of the quickest run."""
    seconds = []
    for _ in range(runs):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def expansion(m: int, runs: int) -> None:
    """Compare the times of the programs of all ranks with the same orders written by hand, after a check that both are
    equal."""
    sizes = {"p": 64, "v": 4, "m": m}
    made = pipesched.load("interleaved", **sizes)
    columns = zip((made.op != made.op[0], made.stage, made.microbatch), interleaved(**sizes), strict=True)
    assert all(np.array_equal(ours, its) for ours, its in columns), "the order by hand is another one"
    spent: list[float] = []

    def timed(programs: Programs) -> object:
        begin = time.process_time()
        found = whole(programs)
        spent.append(time.process_time() - begin)
        return found

    whole, source = Programs.run, read("interleaved")
    Programs.run = timed
    for _ in range(runs):
        load(source, Options(parameters=sizes))
    Programs.run = whole
    by_hand = least(lambda: interleaved(**sizes), runs)
    ms, hand = 1e3 * min(spent), 1e3 * by_hand
    print(f"{'expansion':12}{ms:9.1f} ms {hand:9.1f} ms by hand, {ms - hand:.1f} more")


def beside(name: str, ours: list[str], peer: list[str], runs: int, *, tree: Path = TOP) -> None:
    """Compare two commands, run alternately. tree: the folder of the peer's code."""
    found: tuple[list[Figures], list[Figures]] = ([], [])
    for _ in range(runs + 1):  # the first compiles
        for figures, command, where in zip(found, (ours, peer), (TOP, tree), strict=True):
            ONE_CORE["PYTHONPATH"] = str(where)
            ONE_CORE.pop("PYTHONDONTWRITEBYTECODE", None)
            figures.append(measure(command))
    (cpu, other), (memory, its) = ([min(getattr(x, of) for x in part) for part in found] for of in ("cpu", "memory"))
    print(
        f"{name:12}{cpu:9.3f} s  {other:9.3f} s   x {cpu / other:5.2f}"
        f"    {memory:5.0f} MiB {its:5.0f} MiB   x {memory / its:5.2f}   {' '.join(ours[3:])}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--m", type=int, default=1024)
    parser.add_argument("--torch-m", type=int, default=128, help="0: not beside torch")
    parser.add_argument("--before", default="", help=f"a commit, as {FIRST}")
    asked = parser.parse_args()
    large = [*TOOL, "verify", "interleaved", "--p", "64", "--v", "4", "--m", str(asked.m)]
    ten_million = [*large[:-1], "6528", "--max-ops", "4000000"]
    hanayo = [*TOOL, "verify", "hanayo", "--p", "64", "--m", str(asked.m)]
    expansion(asked.m, 5 * asked.runs)
    with tempfile.TemporaryDirectory() as folder:
        if asked.torch_m:
            csv = write_csv(pipesched.load("interleaved", p=64, v=4, m=asked.torch_m), Path(folder) / "order.csv")
            whole, theirs = [*TOOL, "verify", str(csv)], torch_seconds(csv)
            our = min(measure(whole).cpu for _ in range(asked.runs))
            sum_of = theirs["load"] + theirs["simulate"]
            print(
                f"{'torch':12}{our:9.3f} s  {sum_of:9.3f} s   x {our / sum_of:5.2f}    load {theirs['load']:.1f} s, "
                f"simulate {theirs['simulate']:.1f} s, p=64 v=4 m={asked.torch_m}; ours is the whole process"
            )
        beside("messages", [*large, "--comm", "buffered(3)"], large, asked.runs)
        names = []
        for name, costs in (("formulas", COSTS), ("alone", "")):
            path = Path(folder) / f"{name}.ps"
            path.write_text(FORMULAS.replace("COSTS", costs))
            names.append([*TOOL, "verify", str(path), "--p", "64", "--m", "4096"])
        beside("formulas", *names, asked.runs)
        if asked.before:
            archive = subprocess.run(["git", "archive", asked.before], cwd=TOP, check=True, capture_output=True).stdout
            tree = Path(folder) / "before"
            with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                packed.extractall(tree, filter="data")
            rows = [large, hanayo, [*large, "--comm", "buffered(3)"], names[0], [*TOOL, "verify", "1f1b", "--p", "4"]]
            for command in rows:
                beside("before", command, command, asked.runs, tree=tree)
            beside("before", ten_million, ten_million, 1, tree=tree)


if __name__ == "__main__":
    main()
