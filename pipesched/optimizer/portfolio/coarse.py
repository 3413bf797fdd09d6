"""A coarser clock: every duration a multiple of some ticks, so that orders can be sought where times are small numbers.

An order holds whatever the durations, and its memory does not ask for them: one found for coarse durations is a
schedule of the exact problem. Only its value must be measured anew.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.problem import Problem


def coarsened(problem: Problem, ticks: int) -> Problem:
    """The same with durations and lags to the nearest multiple of `ticks`, counted in such multiples.

    What takes time still does: durations above 0 are at least 1. Lags may become 0.

    Raises:
        ValueError: ticks < 1.
    """
    if ticks < 1:
        raise ValueError(f"a grid of {ticks} ticks")
    duration = np.where(problem.duration > 0, np.maximum(_rounded(problem.duration, ticks), 1), 0)
    return replace(
        problem,
        scale=problem.scale / ticks,
        duration=duration,
        lag=_rounded(problem.lag, ticks),
    )


def _rounded(values: Ints, ticks: int) -> Ints:
    return (2 * values + ticks) // (2 * ticks)
