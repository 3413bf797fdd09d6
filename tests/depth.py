"""The number of cases of a random test: by default two fifths of its cases, or fewer for slow tests; all with
`--full`; and N times as many with `--depth N`.

Modules read it at their import, which is after the options are read.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

VARIABLE = "PIPESCHED_TEST_DEPTH"
Case = TypeVar("Case")


def in_usual_run() -> bool:
    """Return True if the run has neither ``--full`` nor ``--depth``."""
    return os.environ.get(VARIABLE) == "0"


def some(cases: Sequence[Case], every: int, usual: int = 0) -> Sequence[Case]:
    """Return one in so many cases of a slow law, in a usual run one in ``usual``; with ``--depth 2`` all."""
    return cases[:: (usual if in_usual_run() else 0) or (every if deep(1) == 1 else 1)]


def deep(cases: int, usual: int = 0) -> int:
    """Return the given number of cases, times the depth; in a usual run ``usual``, or two of five."""
    if in_usual_run():
        return usual or -(-2 * cases // 5)
    return cases * max(1, int(os.environ.get(VARIABLE, "1")))


def by_hand(**tried: tuple[Callable[[int], str], int]) -> None:
    """Print how often each outcome came out of each function, over as many seeds as an option of its name says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    for name, (_, cases) in tried.items():
        parser.add_argument(f"--{name}", type=int, default=cases)
    asked = parser.parse_args()
    for name, (outcome, _) in tried.items():
        now, seeds = time.process_time(), range(asked.first, asked.first + getattr(asked, name))
        print(Counter(outcome(seed) for seed in seeds), f"{time.process_time() - now:.0f} CPU s")
