"""Writes a schedule as a table, for spreadsheets and data frames: one row per operation, by rank and step.

    rank,step,op,stage,microbatch,start,end,needs,held
    0,1,F,0,0,0,1,,1
    1,1,F,1,0,1,2,F0.0,1

step counts from 1. Both parts of an overlap pair have the pair's start and end; second: whether an operation is the
second part. Times are exact: 3, 5.5 or 16/3; empty if an operation never runs. needs: the operations that produce the
row's inputs, the nearest first, separated by spaces. held: the activations that the rank holds after the operation (for
an F, from its start on), in microbatches through 1/p of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.views.chart.chart import Chart
from pipesched.views.columns import amounts, producers

if TYPE_CHECKING:
    from pandas import DataFrame

Cell = TypeVar("Cell")
HEADER = "rank,step,op,stage,microbatch,start,end,needs,held"


def csv(chart: Chart) -> str:
    """Return a chart as CSV: a header, then one line per operation."""
    made = columns(chart, shown, "")
    names = [f"{op}{stage}.{i}" for op, stage, i in zip(made["op"], made["stage"], made["microbatch"], strict=True)]
    made["needs"] = [" ".join(names[i] for i in inputs) for inputs in producers(chart)]
    rows = zip(*(made[name] for name in HEADER.split(",")), strict=True)
    return "".join(f"{line}\n" for line in [HEADER, *(",".join(map(str, row)) for row in rows)])


def columns(chart: Chart, written: Callable[[Fraction], Cell], never: Cell) -> dict[str, Sequence[object]]:
    """Return the columns by name. written: formats times and amounts. never: the value for missing times."""
    schedule, times = chart.schedule, chart.times
    start, end = (_instants(chart, ticks.tolist(), written, never) for ticks in (times.start, times.end))
    return {
        "rank": schedule.rank.tolist(),
        "step": [step for size in np.diff(schedule.start).tolist() for step in range(1, size + 1)],
        "op": [Op(op).name for op in schedule.op.tolist()],
        "stage": schedule.stage.tolist(),
        "microbatch": schedule.microbatch.tolist(),
        "second": schedule.second.tolist(),
        "start": start,
        "end": end,
        "held": amounts(chart, chart.analysis.memory.held, written),
    }


def pandas(chart: Chart) -> DataFrame:
    """Return the table as a `pandas.DataFrame`.

    Raises:
        PipeschedError: PS820: pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ImportError:
        raise fail(Code.NEEDS, "a table needs pandas, which is not installed", help="pip install pandas") from None
    return DataFrame(columns(chart, _plain, None))


def _instants(chart: Chart, ticks: list[int], written: Callable[[Fraction], Cell], never: Cell) -> list[Cell]:
    """Return the times in the user's unit, each formatted once."""
    known = {x: written(chart.time(x)) for x in set(ticks) if x >= 0}
    return [known.get(x, never) for x in ticks]


def _plain(value: Fraction) -> int | Fraction:
    return value.numerator if value.denominator == 1 else value
