"""Explains idle time: its split, its growth per microbatch, the critical path, each gap, and a similar published order.

Growth is the difference between two runs of the same file, with m and with m + d microbatches, divided by d: the rate
without the constant costs of filling and draining. d is the number of ranks if the file accepts that size. If the order
repeats a kernel, the kernel's period is exactly the time that a microbatch adds in the long run; if there are too few
copies of the kernel with m microbatches, a larger m is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipesched import compile
from pipesched.analysis.timeline import timeline
from pipesched.diagnostics import PipeschedError
from pipesched.engines.binding import binding
from pipesched.examine import Examination, Options
from pipesched.insight.period import Period, period
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

_OPERATIONS = 100_000  # limit on the operations of a larger size in which a kernel is searched


def why(source: Source, options: Options) -> Why:
    """Explain the idle time of a file.

    Raises:
        PipeschedError: errors in the file, or costs that do not fit the file.
    """
    examined = compile.examined(source, options)
    made = examined.analysis
    found, gaps, split = explained(made)
    growth, lasting = _growth(source, examined, split), _period(source, examined)
    known = recognize(made.schedule, source)
    why = Why(examined, found, gaps, split, growth, period=lasting, known=known, instead=_instead(made))
    return replace(why, binding=binding(examined, why.path) if made.finished else None)


def explained(made: Analysis) -> tuple[Causes, Gaps, Split]:
    """Return the cause of each start, the idle intervals of the ranks, and the split of the idle time."""
    found = causes(made.schedule, made.dependencies, made.timeline, made.ticks)
    gaps = attribution.gaps(made.schedule, made.timeline, found)
    return found, gaps, attribution.split(made.schedule, made.timeline, made.ticks, gaps)


def _instead(made: Analysis) -> dict[str, Fraction]:
    """Return the makespans with other costs (see `Why.instead`); empty for an order that deadlocks."""
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
    """Return a cost with each value along an axis replaced by the mean."""
    sums = cost.whole.sum(axis=axis, keepdims=True)
    return reduced(np.broadcast_to(sums, cost.whole.shape), cost.scale * cost.whole.shape[axis])


def _same(a: Ticks, b: Ticks) -> bool:
    """Return True if every operation and message takes the same time."""

    def equal(x: Ints, y: Ints) -> bool:
        axes = max(x.ndim, y.ndim)  # a cost that is the same for all microbatches has fewer axes
        x, y = (table if table.ndim == axes else table[..., None] for table in (x, y))
        return bool((x * b.scale == y * a.scale).all())

    pairs = a.pair.keys() == b.pair.keys() and all(equal(a.pair[key], b.pair[key]) for key in a.pair)
    return equal(a.compute, b.compute) and equal(a.message, b.message) and pairs


def _growth(source: Source, examined: Examination, split: Split) -> Growth | None:
    """Return the growth from m to the first of a few larger sizes that the file accepts."""
    made = examined.analysis
    m, ranks = made.schedule.microbatches, made.schedule.ranks
    for more, other in _larger(source, examined, dict.fromkeys(x for x in (ranks, 2 * ranks, m, 2, 1) if x > 0)):
        before, after = parts_of(made, split), parts_of(other, explained(other)[2])
        return Growth(
            more,
            (other.makespan - made.makespan) / more,
            {part: tuple((b - a) / more for a, b in zip(before[part], after[part], strict=True)) for part in PARTS},
        )
    return None


def _period(source: Source, examined: Examination) -> Period | None:
    """Return the period of the order, or of the first of a few larger sizes of its file at which a period is found."""
    made = examined.analysis
    if (found := period(made)) is not None:
        return found
    most = _OPERATIONS // max(len(made.schedule), 1)
    m, ranks = made.schedule.microbatches, made.schedule.ranks
    sizes = sorted({x for k in (1, 3, 7, 15) for x in (k * m, 2 * k * ranks) if x < most * m})
    return next(filter(None, (period(other) for _, other in _larger(source, examined, sizes))), None)


def _larger(source: Source, examined: Examination, sizes: Iterable[int]) -> Iterator[tuple[int, Analysis]]:
    """Yield analyses of a file with more microbatches, at sizes that the file accepts."""
    made, asked = examined.analysis, examined.options
    parameters = whole(examined.loaded.schedule.parameters)
    if examined.loaded.unit is None or "m" not in parameters or not made.finished:
        return
    for more in sizes:
        larger = replace(asked, parameters={**parameters, **asked.parameters, "m": parameters["m"] + more})
        try:
            loaded = compile.load(source, larger)
            other = Analysis(loaded.schedule, larger.counted(loaded))
            if other.finished and other.schedule.stages == made.schedule.stages:
                yield more, other
        except PipeschedError:
            continue
