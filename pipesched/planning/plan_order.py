"""``plan --optimize SECONDS``: the optimizer's orders for the first rows, with the stages and the cap of each row.

The optimizer's extension offers the service ``order``, which searches for the order of one row. The seconds are divided
equally among the rows. For a trainer that accepts an order of compute operations, the order is written as a CSV file;
with any other trainer, the row keeps its own order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from pipesched.common.rows import service
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.model.schedule import Schedule
from pipesched.model.units import MILLISECONDS, SECONDS
from pipesched.planning.byte_counts import Bytes

if TYPE_CHECKING:
    from pipesched.planning.layouts.plan import Outcome
    from pipesched.planning.layouts.prediction import Prediction


@dataclass(frozen=True)
class Ordered:
    """An order that the optimizer found for a row; rows are counted from 1. makespan, before: the makespans of this
    order and of the row's own order, in ms; said: the first line of the optimizer's answer.

    order: None if the optimizer found no order.
    """

    order: Schedule | None
    makespan: Fraction | None
    before: Fraction | None
    said: str
    row: int = 1

    @property
    def gained(self) -> Fraction:
        """The milliseconds by which the row's own order is slower."""
        return self.before - self.makespan if self.better and self.before and self.makespan else Fraction(0)

    @property
    def better(self) -> bool:
        """True if the order is faster than the row's own."""
        return self.makespan is not None and (self.before is None or self.makespan < self.before)

    def text(self) -> str:
        """Return the line about this order in a plan."""
        if self.makespan is None or self.order is None:
            return f"row {self.row}, by the optimizer: {self.said}"
        own = "" if self.before is None else f" in place of {MILLISECONDS.text(self.before)}"
        if not self.better:
            own = MILLISECONDS.text(self.makespan)
            return f"row {self.row}, by the optimizer: no order is faster than the row's own, {own}"
        gain = "" if self.before is None else f" ({float(self.makespan / self.before - 1) * 100:.1f} %)"
        made = MILLISECONDS.text(self.makespan)
        return f"row {self.row}, by the optimizer: its list takes {made}{own}{gain}; {self.said}"

    def to_json(self) -> dict[str, object]:
        """Return the figures, in milliseconds."""
        figures = {"makespan": self.makespan, "before": self.before}
        return {**{name: None if x is None else float(x) for name, x in figures.items()}, "said": self.said}


MOST = 3
"""Number of rows for which the optimizer searches for an order."""


def ordered(plan: Outcome, seconds: float) -> tuple[Ordered, ...]:
    """Return the optimizer's orders for the first rows that have a pipeline; each search takes an equal share of
    `seconds`.

    Raises:
        PipeschedError: PS225 if the optimizer is not installed.
    """
    piped = [(number, one) for number, one in enumerate(plan.rows[:MOST], 1) if one.choice.p > 1]
    return tuple(_ordered(plan, number, one, seconds / len(piped)) for number, one in piped)


def fastest(plan: Outcome) -> str:
    """Return a line that names the fastest row with these orders; empty if this is the first row."""
    gained = {one.row: one.gained / 1000 for one in plan.ordered}
    steps = [(one.seconds - gained.get(number, 0), number) for number, one in enumerate(plan.rows, 1)]
    (least, number), first = min(steps), steps[0][0]
    said = f"with these orders row {number} is the fastest: {SECONDS.text(least)} instead of {SECONDS.text(first)}"
    return said if number > 1 and any(gained.values()) else ""


def _ordered(plan: Outcome, number: int, best: Prediction, seconds: float) -> Ordered:
    if not best.trust.timed:
        return Ordered(None, None, None, best.trust.why, number)
    if (find := service("order")) is None:
        raise fail(Code.USAGE, "no installed extension can optimize")
    choice, problem = best.choice, plan.problem
    fused = plan.request.trainer and not plan.request.trainer.startswith("torchtitan")
    try:
        found = find(
            choice.schedule,
            choice.sizes,
            trained=(problem.space.transformer, choice.training),
            device=problem.device,
            cap=Bytes(problem.cap),
            backward="fused" if fused or choice.training.recompute != "none" else "split",
            seconds=seconds,
            efficiency=problem.efficiency,
        )
    except PipeschedError as error:
        return Ordered(None, None, None, error.diagnostics[0].message, number)
    return replace(cast("Ordered", found), row=number)
