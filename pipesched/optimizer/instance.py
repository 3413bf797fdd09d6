"""A problem in whole numbers, from costs, a release rule and caps as people write them.

Times become ticks of 1 / (common denominator), divided by what all of them share; memory becomes parts, of which
every activation and every release is a whole number. A cap is rounded down to what can be held at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.release import Release
from pipesched.optimizer.problem import Problem, Sizes, build

NO_CAP = 2**40  # parts: more than any schedule holds


@dataclass(frozen=True, eq=False)
class Instance:
    """What is asked, for any number of microbatches. caps: by rank, in the unit of peaks, or None."""

    placement: Placement
    costs: Costs
    release: Release
    caps: tuple[Fraction, ...] | None
    fused: bool
    objective: str

    def problem(self, microbatches: int | None = None) -> Problem:
        """The problem at the size of the placement, or at another (of a placement with one route).

        Raises:
            PipeschedError: PS222, costs that do not fit; PS225, an objective that the placement leaves open.
        """
        placement = self.placement if microbatches is None else _of(self.placement, microbatches)
        return _coarsest(build(placement, self._sizes(), fused=self.fused, objective=self.objective))

    def of(self, microbatches: int) -> Instance:
        """The same for another number of microbatches."""
        return replace(self, placement=_of(self.placement, microbatches))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The costs that its times depend on, but for messages."""
        return ("F", "B") if self.fused else ("F", "I", "W")

    @property
    def rounded(self) -> tuple[Fraction, ...] | None:
        """The caps as they bind: whole multiples of the smallest amount that is taken or freed."""
        if self.caps is None:
            return None
        least, part = self._grain()
        return tuple(cap // (least * part) * (least * part) for cap in self.caps)

    def _grain(self) -> tuple[int, Fraction]:
        """The smallest amount in parts, and a part in the unit."""
        sizes = self._sizes()
        amounts = [int(x) for x in (*sizes.takes, *sizes.at_input, *sizes.at_weight) if x]
        return gcd(*amounts) if amounts else 1, sizes.part

    def _sizes(self) -> Sizes:
        stages = self.placement.stages
        ticks = self.costs.ticks(stages)
        relative = self.costs.sizes(stages)
        shares = (self.release.at_input, self.release.at_weight)
        fine = lcm(*(x.denominator for x in relative), *((x * y).denominator for x in relative for y in shares))
        part = Fraction(self.placement.ranks, stages) / fine
        caps = self.caps or (None,) * self.placement.ranks
        takes, at_input, at_weight = (_whole([x * y * fine for x in relative]) for y in (Fraction(1), *shares))
        return Sizes(
            Fraction(ticks.scale),
            ticks.compute[Op.F],
            ticks.compute[Op.I],
            ticks.compute[Op.W],
            ticks.compute[Op.B],
            ticks.message,
            part,
            takes,
            at_input,
            at_weight,
            np.array([NO_CAP if cap is None else int(min(cap // part, NO_CAP)) for cap in caps], dtype=np.int64),
        )


def _coarsest(problem: Problem) -> Problem:
    """The same in the longest ticks of which all that runs and every message that is sent is a whole number."""
    common = gcd(*problem.duration.tolist(), *problem.lag.tolist()) or 1
    times = {name: getattr(problem, name) // common for name in ("duration", "lag")}
    return replace(problem, scale=problem.scale / common, **times)


def _whole(values: list[Fraction]) -> Ints:
    return np.array([int(x) for x in values], dtype=np.int64)


def _of(placement: Placement, microbatches: int) -> Placement:
    routes = np.zeros(microbatches, dtype=placement.route_of.dtype)
    return Placement(placement.rank_of, routes, placement.ranks, placement.route_names)
