"""Draws a measured run and its plan: as text, with two rows per rank; as SVG, with the plan above and the run below.

rank 0 plan  F0F1F2·· B0  B1            both on one clock, in units of cost; the caption gives the ms of a unit
       run   F0F1 F2···B0  B1
kind   plan  run   run / plan           where the run deviates from the plan
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from fractions import Fraction
from textwrap import wrap

import numpy as np

from pipesched.analysis.timeline import Timeline
from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints
from pipesched.model.numbers import shown
from pipesched.model.units import NO_UNIT, Unit
from pipesched.runtime.measured.deviation import Against, Ratio
from pipesched.support.safe import safe
from pipesched.views import svg
from pipesched.views.chart import caption
from pipesched.views.chart.axis import Axis, Viewport, axis, ruler
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.columns import spans
from pipesched.views.chart.slots import widest
from pipesched.views.chart.text import Text, legend, row
from pipesched.views.chart.text_layout import Layout
from pipesched.views.palette import plain_sheet
from pipesched.views.svg import Svg

MILLI = 1_000_000  # nanoseconds in a millisecond
SHOWN = 5
"""The number of stages that the report names as furthest from their cost."""

FAR = Fraction(5, 100)
"""Deviations up to this share of a cost are not reported."""

_LEAST = 32


class _Shared(Layout):
    """A layout of the plan or the run on a shared axis, `clock`. coarse: whether a column can show several slots."""

    clock: Axis
    coarse: bool

    @property
    def axis(self) -> Axis:
        return self.clock

    @property
    def mixed(self) -> bool:
        return self.coarse


def text(chart: Chart, run: Against, how: Text | None = None) -> str:
    """Draw two rows per rank, and report where the run deviates from the plan.

    Raises:
        PipeschedError: PS225 if the width is below 32 columns, or if the viewport contains no time.
    """
    how = how or Text()
    if how.width < _LEAST:
        raise fail(Code.USAGE, f"{how.width} columns are too few for a chart", help=f"give at least {_LEAST}")
    return "".join(line.rstrip() + "\n" for line in _lines(chart, run, how))


def _lines(chart: Chart, run: Against, how: Text) -> Iterator[str]:
    plan, ran = measured(chart, run)
    names = [f"rank {rank}" for rank in range(chart.schedule.ranks)]
    left = max(map(len, names)) + len(" plan  ")
    longer = max(plan, ran, key=lambda x: x.times.makespan)
    clock = axis(longer, how.width - left, how.viewport, widest(ran, False))
    lengths = (plan.times.end - plan.times.start)[~plan.schedule.joined]
    coarse = 4 * int(np.count_nonzero(lengths < float(clock.step))) > plan.schedule.slots
    above, below = _Shared(plan, how, clock, coarse), _Shared(ran, how, clock, coarse)
    yield from wrap(caption.heading(chart, f" plan: {caption.cost(chart)}"), how.width, break_on_hyphens=False)
    yield from wrap(summary(chart, run), how.width, break_on_hyphens=False)
    yield ""
    yield " " * left + ruler(clock, ran)
    for rank, name in enumerate(names):
        yield f"{name:<{left - 6}}plan  {row(above, rank)}"
        yield f"{'':<{left - 6}}run   {row(below, rank)}"
    hidden = max(_unseen(layout) for layout in (above, below))
    if hidden and not coarse:
        yield from wrap(f"{hidden} operation{'s' * (hidden > 1)} too short to be visible", how.width)
    yield ""
    for line in report(chart, run):
        yield from wrap(line, how.width, break_on_hyphens=False) if len(line) > how.width else [line]
    yield ""
    yield from legend(below)


def _unseen(layout: Layout) -> int:
    """Return the number of slots in the drawn interval that are too short for a column."""
    clock, times, schedule = layout.axis, layout.chart.times, layout.chart.schedule
    inside = (times.end > clock.begin) & (times.start < clock.end) & ~schedule.joined
    drawn = {i for rank in range(schedule.ranks) for i, _, _ in spans(layout, layout.slots, rank) if i >= 0}
    return int(np.count_nonzero(inside)) - len(drawn)


def summary(chart: Chart, run: Against) -> str:
    """Return one line: the duration of a cost of 1, and the lengths of the plan and of the run."""
    step = f"step {run.step} of {len(run.lengths)}" if len(run.lengths) > 1 else "one step"
    more = run.makespan / chart.makespan - 1 if chart.makespan else Fraction(0)
    lengths = f"plan {milliseconds(chart.makespan * run.unit)}, run {milliseconds(run.makespan * run.unit)}"
    return f"run: {step}, a cost of 1 takes {milliseconds(Fraction(run.unit))}; {lengths} ({percent(more)})"


def report(chart: Chart, run: Against) -> Iterator[str]:
    """Yield the lines of the report on deviations, by kind, by stage and by rank."""
    yield f"{'kind':<5}{'cost':>8}{'ran':>8}{'ran / cost':>11}"
    for x in run.kinds:
        ratio = "-" if x.ratio is None else f"{float(x.ratio):.2f}"
        yield f"{x.kind:<4} {decimal(x.planned):>8}{decimal(x.ran):>8}{ratio:>11}"
    far = furthest(run)
    if far:
        named = ", ".join(f"{x.kind} of stage {x.stage} took {decimal(x.ran)} (cost {decimal(x.planned)})" for x in far)
        yield f"furthest from their cost: {named}"
    else:
        yield f"every stage is within {int(FAR * 100)} % of its costs"
    for late in run.late:
        start = f"planned start {shown(late.planned)}, actual {decimal(late.ran)}"
        yield f"rank {late.rank} is late from {late.operation} on: {start} (+{decimal(late.ran - late.planned)})"
    if not run.late:
        yield f"no operation is more than {decimal(run.allowance)} late (half the mean cost of a slot)"
    if run.skew * 100 > run.lengths[run.step - 1]:
        apart = milliseconds(Fraction(run.skew))
        yield f"the clocks of the ranks disagree by {apart}, so lateness cannot be determined"


def furthest(run: Against) -> list[Ratio]:
    """Return the kinds and stages whose mean time is furthest from their cost, worst first."""
    far = [x for x in run.stages if abs(x.ran - x.planned) > FAR * x.planned]
    return sorted(far, key=lambda x: (-abs(x.ran - x.planned), x.kind, x.stage))[:SHOWN]


def figure(chart: Chart, run: Against, how: Svg | None = None) -> str:
    """Draw plan and run as one SVG document, one above the other.

    Raises:
        PipeschedError: PS225 or PS815, as for `svg.render`.
    """
    how = how or Svg()
    plan, ran = measured(chart, run)
    longest = Fraction(max(plan.times.makespan, ran.times.makespan, 1), run.unit)
    viewport = Viewport(how.viewport.begin, longest if how.viewport.end is None else how.viewport.end)
    pixels = svg.pixels(chart, how) * chart.scale / run.unit
    words = (f"plan: {caption.cost(chart)}", summary(chart, run))
    parts = [
        svg.render(part, replace(how, viewport=viewport, pixels=pixels, words=said))
        for part, said in zip((plan, ran), words, strict=True)
    ]
    return _stacked(parts, f"{chart.title}: plan and run")


def _stacked(parts: list[str], title: str) -> str:
    """Return one SVG document that shows the given documents one below the other."""
    sizes = [svg.size(part) for part in parts]
    width, height = max(width for width, _ in sizes), sum(height for _, height in sizes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{safe(title, 'xml')}</title>",
        f'<style>{plain_sheet()}</style><rect class="pipesched" width="{width}" height="{height}"/>',
    ]
    top = 0
    for part, (_, high) in zip(parts, sizes, strict=True):
        lines.append(f'<g transform="translate(0 {top})">\n{part}</g>')
        top += high
    return "\n".join([*lines, "</svg>"]) + "\n"


def milliseconds(nanoseconds: Fraction) -> str:
    """Format a time with three or four digits: ``326 ms``, ``5.09 ms``, ``12.1 us``."""
    if nanoseconds >= MILLI or not nanoseconds:
        return f"{_digits(nanoseconds / MILLI)} ms"
    return f"{_digits(nanoseconds / 1000)} us"


def _digits(value: Fraction) -> str:
    return f"{float(value):.0f}" if value >= 100 else f"{float(value):.3g}"


def percent(value: Fraction) -> str:
    """Return ``+6.9 %``."""
    return f"{round(float(value) * 100, 1) + 0.0:+.1f} %"


def decimal(value: Fraction) -> str:
    """Format a number with up to two decimals: ``2.01``, ``12``; large numbers have no decimals."""
    if abs(value) >= 1000:
        return f"{float(value):.0f}"
    return f"{float(value):.2f}".rstrip("0").rstrip(".")


class _Clocked(Chart):
    """A chart with the times `ran` instead of the plan's; a unit of time is `a_unit` ticks."""

    ran: Timeline = field(kw_only=True)
    a_unit: int = field(kw_only=True)

    @property
    def times(self) -> Timeline:
        return self.ran

    @property
    def scale(self) -> int:
        return self.a_unit

    @property
    def unit(self) -> Unit:
        return NO_UNIT


def measured(plan: Chart, run: Against) -> tuple[Chart, Chart]:
    """Return plan and measured step as charts on one clock: a tick is a nanosecond, a unit is a cost of 1."""
    schedule, scale = plan.schedule, run.unit
    never = (-1,) * schedule.ranks
    planned = Timeline(
        _rescaled(plan, plan.times.start, scale), _rescaled(plan, plan.times.end, scale), plan.times.turn, never
    )
    ran = Timeline(run.start, run.end, plan.times.turn, never)
    first, second = (
        _Clocked(plan.analysis, plan.wrong, plan.name, ran=times, a_unit=scale) for times in (planned, ran)
    )
    return first, second


def _rescaled(plan: Chart, ticks: Ints, scale: int) -> Ints:
    """Convert ticks of the plan to nanoseconds, rounded down."""
    return np.array([int(x) * scale // plan.scale for x in ticks.tolist()], dtype=np.int64)
