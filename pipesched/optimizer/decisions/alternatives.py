"""A decision: its alternatives, the terms of each, and the alternatives that a quick bound excludes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias

import numpy as np

from pipesched.model.ops import Op
from pipesched.optimizer.verdict import Terms

Choice: TypeAlias = tuple[int, ...]
"""An alternative as the numbers of its decision, for example the layers of each stage."""


@dataclass(frozen=True)
class Rest:
    """The alternatives that a quick bound does not exclude. left: (bound, choice), ascending; floor: the least bound of
    unlisted alternatives, or None.
    """

    left: list[tuple[Fraction, Choice]]
    floor: Fraction | None = None


class Decision(Protocol):
    """A decision among alternatives."""

    @property
    def kind(self) -> str:
        """Its name in answers."""

    @property
    def count(self) -> int:
        """The number of alternatives."""

    @property
    def plural(self) -> str:
        """The word for several alternatives."""

    def seeds(self) -> Sequence[Choice]:
        """Return alternatives that are often good, or that a person would choose."""

    def rest(self, value: Fraction) -> Rest:
        """Return the alternatives whose quick bound is below a value."""

    def terms(self, choice: Choice) -> Terms:
        """Return the terms of one alternative."""

    def text(self, choice: Choice) -> str:
        """Describe one alternative, as in ``16 layers as 4,4,5,3``."""

    def to_json(self) -> dict[str, object]:
        """Return the numbers that define the alternatives, for the checker."""


def alike(a: Terms, b: Terms) -> bool:
    """Return True if two terms define the same question: the same placement, times, memory, caps and rules."""
    stages = a.placement.stages
    if not np.array_equal(a.placement.rank_of, b.placement.rank_of):
        return False
    if not np.array_equal(a.placement.route_of, b.placement.route_of) or a.placement.reads != b.placement.reads:
        return False
    times = [
        [[Fraction(int(x), ticks.scale) for x in row] for row in (*ticks.compute, ticks.message)]
        for ticks in (a.costs.ticks(stages), b.costs.ticks(stages))
    ]
    kinds = (*(Op[kind] for kind in a.kinds), -1)
    return (
        all(times[0][kind] == times[1][kind] for kind in kinds)
        and list(a.costs.sizes(stages)) == list(b.costs.sizes(stages))
        and (a.caps, a.fused, a.objective) == (b.caps, b.fused, b.objective)
        and (a.release.at_input, a.release.at_weight) == (b.release.at_input, b.release.at_weight)
    )
