"""A schedule as a table: a row an operation, by rank, in order.

rank, step    where it stands, steps from 1          start, end   when it runs: whole numbers, else fractions; missing
op, stage, microbatch                                              where it never runs
second        the second part of an overlap pair     held         activations of the rank after it
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.ops import Op
from pipesched.views.chart import Chart

COLUMNS = ("rank", "step", "op", "stage", "microbatch", "second", "start", "end", "held")


def columns(chart: Chart) -> dict[str, list[object]]:
    """The columns by name, as Python values."""
    schedule, times = chart.schedule, chart.times
    steps = [step for size in np.diff(schedule.start).tolist() for step in range(1, size + 1)]
    rows: tuple[list[Any], ...] = (
        schedule.rank.tolist(),
        steps,
        [Op(op).name for op in schedule.op.tolist()],
        schedule.stage.tolist(),
        schedule.microbatch.tolist(),
        schedule.second.tolist(),
        [_instant(chart, ticks) for ticks in times.start.tolist()],
        [_instant(chart, ticks) for ticks in times.end.tolist()],
        [_plain(parts * chart.held.part) for parts in chart.held.held.tolist()],
    )
    return dict(zip(COLUMNS, rows, strict=True))


def pandas(chart: Chart) -> Any:
    """The table as a `pandas.DataFrame`.

    Raises:
        PipeschedError: PS820, pandas is not installed.
    """
    try:
        from pandas import DataFrame  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise fail(Code.NEEDS, "a table needs pandas, which is not installed", help="pip install pandas") from None
    return DataFrame(columns(chart))


def _instant(chart: Chart, ticks: int) -> int | Fraction | None:
    return None if ticks < 0 else _plain(Fraction(ticks, chart.scale))


def _plain(value: Fraction) -> int | Fraction:
    return value.numerator if value.denominator == 1 else value
