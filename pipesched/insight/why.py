"""The explanation of idle time: its split, its growth with every microbatch, the critical path, each gap, and a similar
published order.

Growth is the difference of two runs of the same file, at m and at m + d microbatches, over d: the rate without the
constant costs of filling and draining. d is the number of ranks if the file accepts that size.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipesched import compile
from pipesched.analysis.timeline import timeline
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination, Options
from pipesched.insight.recognize import recognize
from pipesched.insight.why_report import Growth, Why, parts_of
from pipesched.model.columns import Ints
from pipesched.model.cost_values import Cost
from pipesched.model.costs import Costs, Ticks
from pipesched.model.grid import Grid, reduced
from pipesched.model.numbers import whole
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source
from pipesched.views import causes as attribution
from pipesched.views.causes import PARTS, Causes, Gaps, Split, causes


def why(source: Source, options: Options) -> Why:
    """Explain the idle time of a file.

    Raises:
        PipeschedError: errors in the file; costs that do not fit it.
    """
    examined = compile.examined(source, options)
    made = examined.analysis
    found, gaps, split = explained(made)
    growth = _growth(source, examined, split)
    return Why(examined, found, gaps, split, growth, known=recognize(made.schedule, source), instead=_instead(made))


def explained(made: Analysis) -> tuple[Causes, Gaps, Split]:
    """Return the cause of each start, the idle intervals of the ranks, and the split of the idle time."""
    found = causes(made.schedule, made.dependencies, made.timeline, made.ticks)
    gaps = attribution.gaps(made.schedule, made.timeline, found)
    return found, gaps, attribution.split(made.schedule, made.timeline, made.ticks, gaps)


def _instead(made: Analysis) -> dict[str, Fraction]:
    """Return the makespan at other costs; empty for an order that deadlocks."""
    given = dict(made.costs.given)
    tries: dict[str, dict[str, Cost]] = {"no_latency": {**given, "C": Fraction(0)}}
    tries["even_stages"] = {key: _mean(cost) if key != "C" else cost for key, cost in given.items()}
    tries["even_microbatches"] = {
        key: _over(cost, 1) if isinstance(cost, Grid) else cost for key, cost in given.items()
    }
    found = {}
    for name, other in tries.items():
        ticks = Costs(other).ticks(made.schedule.stages, made.schedule.microbatches)
        if made.finished and not _same(ticks, made.ticks):
            found[name] = Fraction(timeline(made.schedule, made.dependencies, ticks).makespan, ticks.scale)
    return found


def _mean(cost: Cost) -> Cost:
    if isinstance(cost, Grid):
        return _over(cost, 0)
    return sum(cost, Fraction(0)) / len(cost) if isinstance(cost, tuple) else cost


def _over(cost: Grid, axis: int) -> Grid:
    """Return a cost with its mean along an axis at each place of that axis."""
    sums = cost.whole.sum(axis=axis, keepdims=True)
    return reduced(np.broadcast_to(sums, cost.whole.shape), cost.scale * cost.whole.shape[axis])


def _same(a: Ticks, b: Ticks) -> bool:
    """Return True if every operation and message takes the same time."""

    def equal(x: Ints | None, y: Ints | None) -> bool:
        if x is None or y is None:
            return x is y
        axes = max(x.ndim, y.ndim)  # a cost that is the same for all microbatches has fewer axes
        x, y = (table if table.ndim == axes else table[..., None] for table in (x, y))
        return bool((x * b.scale == y * a.scale).all())

    return equal(a.compute, b.compute) and equal(a.message, b.message) and equal(a.pair, b.pair)


def _growth(source: Source, examined: Examination, split: Split) -> Growth | None:
    """Return the growth from m to the first of a few larger sizes that the file accepts."""
    made, asked = examined.analysis, examined.options
    parameters = whole(examined.loaded.schedule.parameters)
    if examined.loaded.unit is None or "m" not in parameters or not made.finished:
        return None
    m, ranks = parameters["m"], made.schedule.ranks
    for more in dict.fromkeys(x for x in (ranks, 2 * ranks, m, 2, 1) if x > 0):
        larger = replace(asked, parameters={**parameters, **asked.parameters, "m": m + more})
        try:
            loaded = compile.load(source, larger)
            other = Analysis(loaded.schedule, larger.counted(loaded))
            if not other.finished:
                continue
        except PipeschedError:
            continue
        if other.schedule.stages != made.schedule.stages:
            continue
        before, after = parts_of(made, split), parts_of(other, explained(other)[2])
        return Growth(
            more,
            (other.makespan - made.makespan) / more,
            {part: tuple((b - a) / more for a, b in zip(before[part], after[part], strict=True)) for part in PARTS},
        )
    return None
