"""A schedule as CSV, for spreadsheets and data frames: one line an operation, in the order of ranks and steps.

    rank,step,op,stage,microbatch,start,end,needs,held
    0,1,F,0,0,0,1,,1
    1,1,F,1,0,1,2,F0.0,1

step counts from 1, and both parts of an overlap pair have its start and its end. Times are exact: 3, 5.5 or 16/3.
start and end are empty where an operation never runs, needs where it takes no output of another. held: activations of
the rank after it, for an F from its start on, in microbatches through 1/p of the model.
"""

from __future__ import annotations

from itertools import pairwise

from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.views.chart import Chart

HEADER = "rank,step,op,stage,microbatch,start,end,needs,held"


def csv(chart: Chart) -> str:
    """The lines of a chart, after a header."""
    schedule = chart.schedule
    letters = [Op(x).name for x in schedule.op.tolist()]
    columns = list(zip(letters, schedule.stage.tolist(), schedule.microbatch.tolist(), strict=True))
    names = [f"{op}{stage}.{microbatch}" for op, stage, microbatch in columns]
    cells = [f"{op},{stage},{microbatch}" for op, stage, microbatch in columns]
    start, end = _times(chart, chart.times.start.tolist()), _times(chart, chart.times.end.tolist())
    needs = ["" if i < 0 else names[i] for i in chart.dependencies.producer.tolist()]
    held = _held(chart)
    lines = [HEADER]
    for rank, (low, high) in enumerate(pairwise(schedule.start.tolist())):
        lines += [f"{rank},{i - low + 1},{cells[i]},{start[i]},{end[i]},{needs[i]},{held[i]}" for i in range(low, high)]
    return "\n".join(lines) + "\n"


def _times(chart: Chart, ticks: list[int]) -> list[str]:
    if chart.scale == 1:
        return ["" if x < 0 else str(x) for x in ticks]
    known = {x: shown(chart.time(x)) for x in set(ticks) if x >= 0}
    return [known.get(x, "") for x in ticks]


def _held(chart: Chart) -> list[str]:
    values = chart.held.held.tolist()
    known = {x: shown(x * chart.held.part) for x in set(values)}
    return [known[x] for x in values]
