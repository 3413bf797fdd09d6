"""Compares placements: the Pareto front of peak memory and objective over all of them.

    placement ──> no cap ──> the least cap that has a schedule ──> one step more ──> ... ──> as short as without a cap
                    │             │ the search at the next cap begins with the found order
                    └─ its bound is valid at every cap: a bound at a cap is valid at all lower caps

Costs are for 1/p of the model, so a stage of a placement with v stages on each rank takes 1/v of each cost. A point of
the front is proved if its own bound and the bounds of all other placements at this peak reach the objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import TypeAlias

from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import exact, percent, shown
from pipesched.optimizer.optimize import clock, optimize
from pipesched.optimizer.optimize_report import Optimum
from pipesched.optimizer.optimize_request import Request
from pipesched.optimizer.placements import placements
from pipesched.optimizer.printed import read_back
from pipesched.optimizer.solve.bounds.least_cap import least_cap
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.search.state import INTERRUPTED, State
from pipesched.optimizer.values import MOST_CAPS
from pipesched.optimizer.verdict import INFEASIBLE
from pipesched.views.tables import table

_FREE = 0.25  # most of a placement's time for its answer without a cap

Progress: TypeAlias = Callable[[State], None]
Solved: TypeAlias = tuple[Fraction | None, Optimum]
"""A cap (None: no cap) and the answer under it."""


@dataclass(frozen=True)
class Way:
    """A placement with its answers, in ascending order of caps; the answer without a cap comes last."""

    name: str
    solved: Sequence[Solved]

    def bound(self, cap: Fraction) -> Fraction | float:
        """Return the best lower bound under a cap; bounds under higher caps also apply."""
        found = [answer for own, answer in self.solved if own is None or own >= cap]
        return max((inf if x.status == INFEASIBLE else x.lower_bound or Fraction(0) for x in found), default=0)

    def value(self, cap: Fraction | None) -> Fraction | None:
        """Return the least objective among the answers within a cap."""
        found = (x for _, x in self.solved if x.value is not None and (cap is None or max(x.peak) <= cap))
        return min((x.value for x in found if x.value is not None), default=None)


@dataclass(frozen=True)
class Best:
    """A point of the front. proved: no placement has a better schedule with this peak."""

    way: Way
    answer: Optimum
    proved: bool

    @property
    def peak(self) -> Fraction:
        return max(self.answer.peak)

    @property
    def value(self) -> Fraction:
        assert self.answer.value is not None
        return self.answer.value


@dataclass(frozen=True)
class Front:
    """The answers for all placements."""

    ways: Sequence[Way]

    @property
    def points(self) -> list[Best]:
        """The answers of the Pareto front, in ascending order of peaks."""
        all_of = [(way, x) for way in self.ways for _, x in way.solved if x.value is not None]
        kept = list[Best]()
        for way, answer in sorted(all_of, key=lambda one: (max(one[1].peak), one[1].value or Fraction(0))):
            assert answer.value is not None
            if not kept or answer.value < kept[-1].value:
                proved = all(other.bound(max(answer.peak)) >= answer.value for other in self.ways)
                kept.append(Best(way, answer, proved))
        return kept

    @property
    def proved(self) -> bool:
        return all(point.proved for point in self.points)

    @property
    def exit_status(self) -> int:
        """Exit status: 0 if every point is proved, 1 if there are no points, else 3."""
        return 1 if not self.points else 0 if self.proved else 3

    def text(self) -> str:
        """Return two tables: the front, and the least objective of every placement under each cap."""
        some = self.ways[0].solved[0][1]
        unit = some.instance.costs.unit
        named = [f"for {way.name}: {way.solved[0][1].instance.text_without_cap}" for way in self.ways]
        rows = [["peak", some.objective, "bubble", "placement", "verdict"]]
        for x in self.points:
            figures = [shown(x.peak), unit.text(x.value), percent(x.answer.least_bubble or Fraction(0))]
            rows.append([*figures, x.way.name, "proved" if x.proved else "best found"])
        caps = sorted({cap for way in self.ways for cap, _ in way.solved if cap is not None})
        each = [["cap", *(way.name for way in self.ways)]]
        for cap in [*caps, None]:
            values = [way.value(cap) for way in self.ways]
            each.append(["none" if cap is None else shown(cap), *("-" if x is None else unit.text(x) for x in values)])
        fronts, all_of_them = (table(heads, of, left=()) for heads, *of in (rows, each))
        return "\n".join([*named, "", fronts, "", all_of_them])

    def orders(self) -> list[tuple[str, str]]:
        """Return the schedule of every point as text, each with a file name."""
        return [(f"peak-{str(x.peak).replace('/', '_')}", x.answer.source) for x in self.points]

    def to_json(self) -> dict[str, object]:
        """Return, as JSON, the points of the front, and every answer with its placement and cap."""
        points = [
            {"placement": x.way.name, **exact(peak=x.peak, value=x.value), "proved": x.proved} for x in self.points
        ]
        solved = [(way.name, *one) for way in self.ways for one in way.solved]
        answers = [{"placement": name, **exact(cap=cap), "answer": x.to_json()} for name, cap, x in solved]
        return {"ok": self.exit_status == 0, "front": points, "answers": answers}

    def plot(self) -> str:
        """Return an SVG plot of all answers, in which a line joins the points of the front."""
        from pipesched.views.plot import Point, plot

        solved = [(way.name, x) for way in self.ways for _, x in way.solved]
        points = [Point(max(x.peak), x.value, name) for name, x in solved if x.value is not None]
        objective, said = solved[0][1].objective, (shown, solved[0][1].instance.costs.unit.text)
        x = "peak activations of a rank, in microbatches through 1/p of the model"
        return plot(points, x=x, y=objective, title=f"{objective} against memory", frontier=True, said=said)


def front(request: Request, caps: Sequence[Fraction], progress: Progress = lambda state: None) -> Front:
    """Optimize every placement under each cap. caps: the caps in ascending order; empty for all relevant caps.

    Raises:
        PipeschedError: PS225: there are too many caps. PS716: the costs belong to one placement, but there are several.
            Also the errors of `optimize`.
    """
    ways = []
    for (name, asked), part in clock(request).shared([*placements(request)]):
        solved = [*_solved(asked, caps, progress, part)]
        ways.append(Way(name, solved))
        if any(answer.reason == INTERRUPTED for _, answer in solved):
            break
    return Front(ways)


def _solved(request: Request, caps: Sequence[Fraction], progress: Progress, meter: Meter) -> Iterator[Solved]:
    """Yield the answers for one placement, in ascending order of caps."""
    with meter.part(_FREE) as part:
        free = optimize(replace(request, mem_cap=None), progress, part)
    last: Optimum | None = None
    steps = [] if free.reason == INTERRUPTED else [*(caps or _steps(free))]
    for cap, part in meter.shared(steps):
        done = last is not None and last.value is not None and free.value is not None and last.value <= free.value
        if done and not caps:
            break
        seeds = [] if last is None or last.analysis is None else [last]
        seeds += [free] if free.peak and max(free.peak) <= cap else []
        known = tuple((f"cap {shown(max(x.peak))}", read_back(x.source).schedule) for x in seeds)
        last = optimize(replace(request, mem_cap=(cap,), seeds=known), progress, part)
        yield cap, last
        if last.reason == INTERRUPTED:
            return
    yield None, free


def _steps(free: Optimum) -> Iterator[Fraction]:
    """Yield the relevant caps, from the least with a schedule to the peak without a cap; raise PS225 if too many."""
    instance = free.instance
    problem, grain = instance.problem(), instance.grain
    least, most = int(least_cap(problem).max()) * problem.part, max(free.peak, default=Fraction(0))
    low, high = -(-least // grain), -(-most // grain)
    if high - low >= MOST_CAPS:
        message = f"the range has {high - low + 1:,} different caps, from {shown(low * grain)} to {shown(high * grain)}"
        raise fail(Code.USAGE, message, help="give a range, such as --mem-cap 2..8")
    return (n * grain for n in range(int(low), int(high) + 1))
