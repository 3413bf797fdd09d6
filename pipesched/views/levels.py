"""What a rank holds over time: a staircase.

An F takes at its start, everything else frees at its end, so each operation makes one step, and the steps of a rank
are in the order of its list:

    F0 F1 .. I0 W0 F2           held
    +1 +1          -1,+1        0 1 2 2 2 2 ...

Without any backward an F frees at its own end what it took: two steps each.
"""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.views.chart import Chart


def steps(chart: Chart, rank: int) -> tuple[Ints, Ints]:
    """Instants in ticks, and what is held from each on, in parts; the first is at 0, with nothing held.

    Only what runs counts. Several steps may share an instant; the last of them lasts.
    """
    part = slice(int(chart.schedule.start[rank]), int(chart.schedule.start[rank + 1]))
    ran = chart.times.start[part] >= 0
    forward = chart.schedule.op[part] == Op.F
    when = np.where(forward, chart.times.start[part], chart.times.end[part])[ran]
    held = chart.held.held[part][ran]
    if chart.schedule.forward_only:
        when = np.stack([when, chart.times.end[part][ran]], axis=1).ravel()
        held = np.stack([held, np.zeros_like(held)], axis=1).ravel()
    nothing = np.zeros(1, dtype=np.int64)
    return np.concatenate([nothing, when]), np.concatenate([nothing, held])


def outline(when: Ints, held: Ints) -> tuple[Ints, Ints]:
    """The steps as a line to look at: of those that share an instant the last, and before it the highest if that juts.

    So an activation that is freed and one that is taken at the same time make no notch, and a peak is never lost.
    """
    first = np.flatnonzero(np.concatenate([np.ones(1, dtype=np.bool_), when[1:] > when[:-1]]))
    last = np.append(first[1:], len(when)) - 1
    most, rest = np.maximum.reduceat(held, first), held[last]
    stands_out = most > np.maximum(rest, np.append(0, rest[:-1]))
    instants, values = np.repeat(when[first], 2), np.stack([most, rest], axis=1).ravel()
    kept = np.stack([stands_out, np.ones(len(first), dtype=np.bool_)], axis=1).ravel()
    return instants[kept], values[kept]


def highest(chart: Chart, rank: int, bounds: Ints) -> Ints:
    """Most that is held in each interval between bounds, in parts; bounds: ascending, from 0 up, shape (n + 1,)."""
    when, held = steps(chart, rank)
    low = np.searchsorted(when, bounds[:-1], side="right") - 1
    high = np.maximum(np.searchsorted(when, bounds[1:], side="left"), low + 1)
    both = np.stack([low, high], axis=1).ravel()
    padded = np.concatenate([held, held[-1:]])  # so that the last interval may end behind the last step
    return np.maximum.reduceat(padded, both)[::2]
