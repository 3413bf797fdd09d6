"""Measure `pipesched optimize`: the CPU seconds of all its processes, and the elapsed time.

    python -m tests.bench.optimize              every group
    python -m tests.bench.optimize unit vee     these

Each line is one command with its verdict. Groups: unit, z3, every, large, vee, skewed, better, uneven.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

SKEWED = "F=10,I=12,W=8,C=1"
_TABLE = Path(__file__).parents[1] / "data" / "zb_iclr_table5_6.json"


@dataclass(frozen=True)
class Case:
    """A command line, and its time limit in seconds. at_most: the objective of a peer, or None."""

    name: str
    arguments: tuple[str, ...]
    goal: float
    at_most: Fraction | None = None


def case(name: str, goal: float, line: str, at_most: Fraction | int | None = None) -> Case:
    return Case(name, tuple(line.split()), goal, None if at_most is None else Fraction(at_most))


def unit() -> Iterator[Case]:
    """Yield the unit costs, one stage per rank."""
    for cap in range(1, 16):
        yield case(f"p=8 m=16 cap {cap}", 2, f"--p 8 --m 16 --mem-cap {cap}")
    for cap in range(4, 9):
        yield case(f"p=8 m=64 cap {cap}", 5, f"--p 8 --m 64 --mem-cap {cap}")
    for cap in range(8, 21):
        yield case(f"p=16 m=64 cap {cap}", 10, f"--p 16 --m 64 --mem-cap {cap}")
    yield case("p=32 m=128 cap 22", 15, "--p 32 --m 128 --mem-cap 22")
    yield case("p=64 m=128 cap 44", 40, "--p 64 --m 128 --mem-cap 44")


def z3() -> Iterator[Case]:
    """Yield questions to Z3 alone, without heuristics: it finds C, and refutes C - 1."""
    for cap in range(1, 16):
        yield case(f"z3 p=8 m=16 cap {cap}", 5, f"--p 8 --m 16 --mem-cap {cap} --engine z3")
    yield case("z3 p=8 m=64 cap 8", 30, "--p 8 --m 64 --mem-cap 8 --engine z3 --no-portfolio")


def every() -> Iterator[Case]:
    """Yield one file for every m."""
    for p, goal in ((4, 2), (8, 2), (16, 5), (32, 20)):
        yield case(f"every m, p={p} cap {p}", goal, f"--p {p} --mem-cap {p} --all-m")
        yield case(f"every m, p={p} cap {p}, no portfolio", goal, f"--p {p} --mem-cap {p} --all-m --no-portfolio")


def large() -> Iterator[Case]:
    """Yield the cases in which a known order meets the bound."""
    yield case("p=64 m=1024 cap 64", 10, "--p 64 --m 1024 --mem-cap 64")


def vee() -> Iterator[Case]:
    """Yield two stages per rank, folded."""
    for cap in ("2.5", "3", "3.5", "4"):
        yield case(f"vee p=4 m=12 cap {cap}", 15, f"--p 4 --m 12 --placement vee --mem-cap {cap}")
    yield case("vee p=6 m=12 cap 4", 30, "--p 6 --m 12 --placement vee --mem-cap 4")
    for cap in ("4.5", "5", "5.5", "6", "6.5", "7", "7.5", "8"):
        limit = 120 if cap in ("4.5", "8") else 240
        line = f"--p 8 --m 16 --placement vee --mem-cap {cap} --time-limit {limit}"
        yield case(f"vee p=8 m=16 cap {cap}", limit, line)


def skewed() -> Iterator[Case]:
    """Yield the costs without a common divisor."""
    for cap in range(4, 9):
        yield case(f"{SKEWED} p=8 m=16 cap {cap}", 20, f"--p 8 --m 16 --mem-cap {cap} --cost {SKEWED}")


def better() -> Iterator[Case]:
    """Yield the instances whose published schedules are not optimal, and the rows of the zero-bubble paper's tables 5
    and 6."""
    yield case("vee p=4 m=8 cap 2, 3:4:2", 60, "--p 4 --m 8 --placement vee --mem-cap 2 --cost F=3,I=4,W=2", 200)
    yield case("vee p=8 m=24 cap 4", 300, "--p 8 --m 24 --placement vee --mem-cap 4 --time-limit 300", 167)
    for row in json.loads(_TABLE.read_text("utf-8"))["rows"]:
        p, m = row["p"], row["m"]
        costs = ",".join(
            f"{key}={round(row[name] * 1000)}"
            for key, name in zip("FIWC", ("T_F", "T_B", "T_W", "T_comm"), strict=True)
        )
        release = f"split:{-row['mem_W']}/{row['mem_F']}"
        for times, peer in ((1, "zb-1p"), (2, "zb-2p")):
            sizes = f"--p {p} --m {m} --mem-cap {times * p} --cost {costs} --release {release}"
            line = f"{sizes} --objective span --time-limit 25"
            yield case(f"{row['model']} p={p} m={m} {peer}", 30, line, round(row["cost_microsec"][peer]))


def uneven() -> Iterator[Case]:
    """Yield the stages that differ by up to 30 %."""
    for seed in range(10):
        factors = np.random.default_rng(seed).uniform(0.7, 1.3, 8)
        stages = "[" + ",".join(str(round(10 * x)) for x in factors) + "]"
        line = f"--p 8 --m 16 --mem-cap 8 --cost F={stages},I={stages},W={stages},C=1"
        yield case(f"uneven, seed {seed}", 60, line)


GROUPS = (unit, z3, every, large, vee, skewed, better, uneven)


def run(one: Case) -> str:
    """Return one line: seconds, goal, verdict, peers."""
    command = [sys.executable, "-m", "pipesched", "optimize", *one.arguments, "--json"]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=20 * one.goal + 60)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(done.stdout)
    value = told.get(told.get("objective", ""))
    known = {k["name"]: k[told["objective"]] for k in told.get("known", ()) if k["fits"]}
    peer = "" if one.at_most is None else f"  peer {one.at_most} {'ok' if Fraction(value) <= one.at_most else 'WORSE'}"
    late = "" if seconds <= one.goal else "  LATE"
    told_known = "" if not known else "  " + " ".join(f"{name} {x}" for name, x in known.items())
    times = f"{cpu:7.2f} s CPU {seconds:7.2f} s of {one.goal:g}{late}"
    return f"{one.name:36} {times}  {told.get('verdict')}{peer}{told_known}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [group.__name__ for group in GROUPS]
    parser.add_argument("groups", nargs="*", choices=[*names, []], default=names)
    chosen = parser.parse_args().groups
    for group in GROUPS:
        if group.__name__ in chosen:
            for one in group():
                print(run(one), flush=True)


if __name__ == "__main__":
    main()
