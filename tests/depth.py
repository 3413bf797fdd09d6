"""Number of cases of a random test: `pytest --depth N` tries N times as many; by hand, when an engine changes.

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


def some(cases: Sequence[Case], every: int) -> Sequence[Case]:
    """Return a sample of the cases of a slow law; with ``--depth 2`` all."""
    return cases[:: every if deep(1) == 1 else 1]


def deep(cases: int) -> int:
    """Return the given number of cases, times the depth."""
    return cases * int(os.environ.get(VARIABLE, "1"))


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
