"""How many cases a random test takes: `pytest --depth N` takes N times as many; by hand, when an engine changes.

Modules ask when they are imported, which is after the options are read.
"""

from __future__ import annotations

import os

VARIABLE = "PIPESCHED_TEST_DEPTH"


def deep(cases: int) -> int:
    """So many cases, times the depth that was asked for."""
    return cases * int(os.environ.get(VARIABLE, "1"))
