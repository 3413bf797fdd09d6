"""Computes what several kinds of picture need: label widths, the phases of a rank, and its activations over time.

    phases   warm-up      until the first backward of a rank starts
             steady       from then until its last forward has ended; empty if all forwards come first
             cool-down    after its last forward

             rank 0   F F F F . . B F B F B B B B         warm-up | steady | cool-down
                      ------------|-------|-------

    held     F, R and L take memory at their start, others free it at their end, so each operation makes one step, and
             the steps of a rank are in the order of its list; an F that is recomputed or has no backward also frees
             memory at its end:

             F0 F1 .. I0 W0 F2           held
             +1 +1          -1,+1        0 1 2 2 2 2 ...

A rank without a backward is always in its warm-up. Operations that never run are ignored.
"""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import Ints, among, makes
from pipesched.model.ops import COMPUTES, LETTERS, Result
from pipesched.views.chart.chart import Chart

KINDS = f"{LETTERS}+"  # + is an overlap pair


def widest(chart: Chart, stages: bool) -> int:
    """Return the length of the longest single label."""
    schedule = chart.schedule
    digits = len(str(int(schedule.microbatch.max(initial=0))))
    return 1 + digits + (1 + len(str(int(schedule.stage.max(initial=0)))) if stages else 0)


def phases(chart: Chart, rank: int) -> tuple[int, ...]:
    """Return the ends of a rank's warm-up and steady phase, in ticks; empty without a backward."""
    op, start, end = (column[chart.part(rank)] for column in (chart.schedule.op, chart.times.start, chart.times.end))
    steady = start[(start >= 0) & makes(op, Result.GRADIENT)]
    if not len(steady):
        return ()
    return int(steady.min()), max(int(steady.min()), int(end[makes(op, Result.ACTIVATION)].max(initial=0)))


def steps(chart: Chart, rank: int) -> tuple[Ints, Ints]:
    """Return the times in ticks at which a rank's memory changes, from 0 on, and its memory after each, in
    `memory.part`.

    Only operations that run count. If several steps share an instant, the last one counts.
    """
    part = slice(int(chart.schedule.start[rank]), int(chart.schedule.start[rank + 1]))
    ran = chart.times.start[part] >= 0
    takes = among(chart.schedule.op[part], [op for op in COMPUTES if op.takes])
    when = np.where(takes, chart.times.start[part], chart.times.end[part])[ran]
    memory = chart.analysis.memory
    held = memory.held[part][ran]
    if (memory.held != memory.kept).any():  # some F frees its memory at its end
        when = np.stack([when, chart.times.end[part][ran]], axis=1).ravel()
        held = np.stack([held, memory.kept[part][ran]], axis=1).ravel()
    nothing = np.zeros(1, dtype=np.int64)
    return np.concatenate([nothing, when]), np.concatenate([nothing, held])


def highest(chart: Chart, rank: int, bounds: Ints) -> Ints:
    """Return a rank's peak between successive `bounds`, in `memory.part`. bounds: ticks, ascending, shape (n + 1,)."""
    when, held = steps(chart, rank)
    low = np.searchsorted(when, bounds[:-1], side="right") - 1
    high = np.maximum(np.searchsorted(when, bounds[1:], side="left"), low + 1)
    both = np.stack([low, high], axis=1).ravel()
    padded = np.concatenate([held, held[-1:]])  # so that the last interval may extend beyond the last step
    return np.maximum.reduceat(padded, both)[::2]
