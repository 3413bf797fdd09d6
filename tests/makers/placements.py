"""Placements that many tests use."""

from __future__ import annotations

import numpy as np

from pipesched.model.placement import Placement


def linear(ranks: int, microbatches: int) -> Placement:
    """Return the placement of stage s on rank s."""
    return Placement(np.arange(ranks, dtype=np.int32)[None, :], np.zeros(microbatches, dtype=np.int32), ranks, ("",))
