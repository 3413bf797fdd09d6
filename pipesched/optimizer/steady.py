"""Finds, among orders of equal makespan, one whose makespan has a low 95th percentile (p95) when times vary.

    best order, library orders as short ──> the one with the lowest p95 ──> move an operation on its rank ──> ...
                                                 keep the order if it is as short, within the caps, and p95 falls

Times are drawn as in `verify --jitter`, with the same draws for every order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, cast

from pipesched.common.rows import service
from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import percent
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.problem import Orders, Problem
from pipesched.schedule_analysis import Analysis

DRAWS, LAST = 200, 1000  # draws while moves are tried, and for the figures of the answer
_EACH, _TRIES, _FAR = 20, 500, 8  # steps per operation for a try; most tries; how far an operation moves
_SHARE = 0.5  # of the time that is left

Quantiles: TypeAlias = Callable[[Analysis, Fraction, int], tuple[Fraction, Fraction]]


@dataclass(frozen=True)
class Steady:
    """The search for a steady order. share: standard deviation of every time, as a share of the time."""

    instance: Instance
    problem: Problem
    share: Fraction
    quantiles: Quantiles

    @classmethod
    def of(cls, instance: Instance, problem: Problem, share: Fraction) -> Steady:
        """Prepare the search; raise PipeschedError, PS225, if no extension draws random times."""
        if (offered := service("quantiles")) is None:
            raise fail(Code.USAGE, "--jitter requires an extension that draws random times", help="leave out --jitter")
        return cls(instance, problem, share, cast(Quantiles, offered))

    def best(self, first: Orders, others: Iterable[Orders], seed: int, meter: Meter) -> tuple[Orders, str]:
        """Return the order with the lowest p95 found, and a note with the quantiles before and after."""
        value, rng = convert.value(self.problem, first), random.Random(seed)
        assert value is not None
        best, (_, least) = first, self._drawn(first, DRAWS)
        enough, waiting = meter.spent + _SHARE * meter.left, list(others)
        for _ in range(_TRIES):
            if meter.spent >= enough:
                break
            meter.spend(_EACH * self.problem.operations)
            tried = waiting.pop() if waiting else _moved(best, rng)
            now = convert.value(self.problem, tried)
            if now is not None and now <= value and (late := self._drawn(tried, DRAWS)[1]) < least:
                best, least = tried, late
        figures = [self._drawn(first, LAST), self._drawn(best, LAST)]
        if figures[1][1] >= figures[0][1]:
            best, figures = first, figures[:1]
        told = [f"median {self._said(p50)}, p95 {self._said(p95)}" for p50, p95 in figures]
        before = f"; for the first order found: {told[0]}" if len(told) > 1 else ""
        return best, f"jitter {percent(self.share)}, {LAST:,} draws: {told[-1]}{before}"

    def _drawn(self, orders: Orders, draws: int) -> tuple[Fraction, Fraction]:
        made = Analysis(convert.to_schedule(self.problem, orders), self.instance.costs, self.instance.release)
        return self.quantiles(made, self.share, draws)

    def _said(self, value: Fraction) -> str:
        return self.instance.costs.unit.text(value) if self.instance.costs.unit else f"{float(value):.4g}"


def _moved(orders: Orders, rng: random.Random) -> Orders:
    """Move an operation to another position on its rank."""
    made = [list(order) for order in orders]
    order = rng.choice([order for order in made if order])
    at = rng.randrange(len(order))
    order.insert(max(0, at + rng.choice([-1, 1]) * rng.randint(1, _FAR)), order.pop(at))
    return made
