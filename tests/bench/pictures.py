"""Measure how `pipesched show`, `why`, `compare` and `diff` scale, as whole processes, against their limits.

    python -m tests.bench.pictures
    python -m tests.bench.pictures --runs 5

Figures are medians over the runs: CPU seconds and peak resident memory of the process on one core, and what it wrote.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench.scale import median

LARGE = ("interleaved", "--p", "64", "--v", "4", "--m", "1024")  # half a million operations


@dataclass(frozen=True)
class Row:
    """A command and its limits; seconds 0: no limit. suffix: of the file it writes."""

    command: tuple[str, ...]
    seconds: float = 0
    mib: float = 0
    suffix: str = ".txt"


ROWS = (
    Row(("--help",), 0.15),
    Row(("show", *LARGE, "--width", "200"), 2),
    Row(("show", *LARGE), 5, 40, ".html"),
    Row(("show", *LARGE), suffix=".json"),
    Row(("show", *LARGE), suffix=".csv"),
    Row(("why", *LARGE)),
    Row(("diff", *LARGE[:1], *LARGE)),
    Row(("compare", "--all", "--p", "8", "--m", "32"), 5),
    Row(("compare", "--all", "--p", "16", "--m", "64,128,256")),
    Row(("show", "zb_h1", "--p", "4", "--m", "8")),
    Row(("show", "dualpipe", "--p", "8", "--m", "20", "--memory", "--messages"), suffix=".svg"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print(f"{'':78}{'cpu s':>8}{'may':>6}{'MiB':>6}{'wrote MiB':>11}{'may':>5}")
    for row in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"out{row.suffix}"
            command = [sys.executable, "-m", "pipesched", *row.command]
            x = median(command if row.command == ("--help",) else [*command, "-o", str(file)], runs)
            wrote = file.stat().st_size / 2**20 if file.exists() else 0.0
        told = " ".join(row.command) + (f" -o out{row.suffix}" if row.suffix != ".txt" else "")
        may, size = (f"{limit:g}" if limit else "" for limit in (row.seconds, row.mib))
        print(f"{told:78}{x.cpu:8.2f}{may:>6}{x.memory:6.0f}{wrote:11.1f}{size:>5}", flush=True)


if __name__ == "__main__":
    main()
