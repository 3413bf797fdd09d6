"""Number of cases of a random test: `pytest --depth N` tries N times as many; by hand, when an engine changes.

Modules ask when they are imported, which is after the options are read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

VARIABLE = "PIPESCHED_TEST_DEPTH"
Case = TypeVar("Case")


def some(cases: Sequence[Case], every: int) -> Sequence[Case]:
    """Return a sample of the cases of a slow law; with ``--depth 2`` all."""
    return cases[:: every if deep(1) == 1 else 1]


def deep(cases: int) -> int:
    """Return the given number of cases, times the depth."""
    return cases * int(os.environ.get(VARIABLE, "1"))
