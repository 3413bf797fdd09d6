"""What was assumed of the costs that the times of a schedule rest on.

    F=10,B=20   1F1B runs F and B       nothing is assumed
                ZB-H1 runs F, I and W   I = W = B / 2 = 10

A cost counts where it is used: those of the kinds that run, and FB where an F and a B overlap, in the place of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pipesched.model.costs import Costs, equations
from pipesched.model.numbers import exact
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule


def used(schedule: Schedule, costs: Costs) -> set[str]:
    """Which of F, I, W, B and FB the times of a schedule depend on."""
    second = np.flatnonzero(schedule.joined)
    pairs = second[schedule.op[second] == Op.B]
    alone = np.ones(len(schedule), dtype=np.bool_)
    if "FB" in costs.given:
        alone[pairs] = alone[pairs - 1] = False
    kinds = {Op(op).name for op in np.unique(schedule.op[alone]).tolist()}
    return kinds | {"FB"} if len(pairs) else kinds


def assumed(costs: Costs, kinds: Iterable[str]) -> dict[str, str]:
    """The costs of these that were not given, each with what it follows from: ``B / 2``."""
    wanted = set(kinds)
    return {key: text for key, text in costs.assumed.items() if key in wanted}


def remarks(costs: Costs, kinds: Iterable[str]) -> Iterator[str]:
    """What is to be said beside times at these costs, of which these are used; nothing where all was given."""
    wanted = set(kinds)
    if guessed := assumed(costs, wanted):
        yield f"assumed: {equations(guessed, costs)}"
    yield from doubts(costs, wanted)


def published(costs: Costs, kinds: Iterable[str]) -> dict[str, object]:
    """Costs with what was assumed of them, as programs read it."""
    said = {"assumed_costs": assumed(costs, kinds), "cost_remarks": list(remarks(costs, kinds))}
    return {**exact(costs=costs.to_json()), **said}


def doubts(costs: Costs, kinds: Iterable[str]) -> Iterator[str]:
    """What else is to be said of costs that were given."""
    if costs.disagreement:
        yield costs.disagreement
    if "FB" in costs.given and "FB" not in kinds:
        yield "the cost FB is not used: nothing overlaps"
