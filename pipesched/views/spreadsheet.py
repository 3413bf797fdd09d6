"""A schedule as a table, for spreadsheets and data frames: a row an operation, in the order of ranks and steps.

    rank,step,op,stage,microbatch,start,end,needs,held
    0,1,F,0,0,0,1,,1
    1,1,F,1,0,1,2,F0.0,1

step counts from 1, and both parts of an overlap pair have its start and its end; second: of its second part. Times are
exact: 3, 5.5 or 16/3; missing where an operation never runs. needs: whose output it takes, nothing where no other's;
of a stage that reads several, or that several read, the nearest first, a blank apart.
held: activations of the rank after it, for an F from its start on, in microbatches through 1/p of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.views import slots
from pipesched.views.chart import Chart

HEADER = "rank,step,op,stage,microbatch,start,end,needs,held"


def csv(chart: Chart) -> str:
    """The lines of a chart, after a header."""
    schedule = chart.schedule
    letters = [Op(x).name for x in schedule.op.tolist()]
    columns = list(zip(letters, schedule.stage.tolist(), schedule.microbatch.tolist(), strict=True))
    names = [f"{op}{stage}.{microbatch}" for op, stage, microbatch in columns]
    cells = [f"{op},{stage},{microbatch}" for op, stage, microbatch in columns]
    start, end = (_instants(chart, x.tolist(), shown, "") for x in (chart.times.start, chart.times.end))
    needs = [" ".join(names[i] for i in producers) for producers in slots.producers(chart)]
    held = slots.held(chart, shown)
    lines = [HEADER]
    for rank, (low, high) in enumerate(pairwise(schedule.start.tolist())):
        lines += [f"{rank},{i - low + 1},{cells[i]},{start[i]},{end[i]},{needs[i]},{held[i]}" for i in range(low, high)]
    return "\n".join(lines) + "\n"


def columns(chart: Chart) -> dict[str, list[Any]]:
    """The columns of a data frame by name, as Python values."""
    schedule, times = chart.schedule, chart.times
    return {
        "rank": schedule.rank.tolist(),
        "step": [step for size in np.diff(schedule.start).tolist() for step in range(1, size + 1)],
        "op": [Op(op).name for op in schedule.op.tolist()],
        "stage": schedule.stage.tolist(),
        "microbatch": schedule.microbatch.tolist(),
        "second": schedule.second.tolist(),
        "start": _instants(chart, times.start.tolist(), _plain, None),
        "end": _instants(chart, times.end.tolist(), _plain, None),
        "held": slots.held(chart, _plain),
    }


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


def _instants(chart: Chart, ticks: list[int], written: Callable[[Fraction], Any], never: Any) -> list[Any]:
    """Times in the user's unit, each written once."""
    known = {x: written(chart.time(x)) for x in set(ticks) if x >= 0}
    return [known.get(x, never) for x in ticks]


def _plain(value: Fraction) -> int | Fraction:
    return value.numerator if value.denominator == 1 else value
