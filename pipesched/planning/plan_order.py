"""``plan --optimize SECONDS``: the optimizer's order for the first row, on its stages and within its cap.

The optimizer is offered by its extension, as the service ``order``. A trainer that takes an order of computes gets it
as a CSV; with any other trainer the row keeps its own order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from pipesched import extension
from pipesched.common.rows import Service
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.model.schedule import Schedule
from pipesched.model.units import MILLISECONDS
from pipesched.planning.byte_counts import Bytes

if TYPE_CHECKING:
    from pipesched.planning.layouts.plan import Outcome


@dataclass(frozen=True)
class Ordered:
    """An order found. makespan, before: of it and of the row's own order, in ms; said: the optimizer's first line.

    order: None if the optimizer found none.
    """

    order: Schedule | None
    makespan: Fraction | None
    before: Fraction | None
    said: str

    @property
    def better(self) -> bool:
        """True if the order is faster than the row's own."""
        return self.makespan is not None and (self.before is None or self.makespan < self.before)

    def text(self) -> str:
        """Return the line for a plan."""
        if self.makespan is None or self.order is None:
            return f"row 1, by the optimizer: {self.said}"
        own = "" if self.before is None else f" in place of {MILLISECONDS.text(self.before)}"
        if not self.better:
            return f"row 1, by the optimizer: no order is faster than its own, {MILLISECONDS.text(self.makespan)}"
        gain = "" if self.before is None else f" ({float(self.makespan / self.before - 1) * 100:.1f} %)"
        made = MILLISECONDS.text(self.makespan)
        return f"row 1, by the optimizer: its list takes {made}{own}{gain}; {self.said}"

    def to_json(self) -> dict[str, object]:
        """Return the figures, in milliseconds."""
        figures = {"makespan": self.makespan, "before": self.before}
        return {**{name: None if x is None else float(x) for name, x in figures.items()}, "said": self.said}


def ordered(plan: Outcome, seconds: float) -> Ordered | None:
    """Return the optimizer's order for the first row; None without a pipeline.

    Raises:
        PipeschedError: PS225, the optimizer is not installed.
    """
    best = plan.best
    if best is None or best.choice.p == 1:
        return None
    if not best.trust.timed:
        return Ordered(None, None, None, best.trust.why)
    offered = next((row for row in extension.rows(Service) if row.name == "order"), None)
    if offered is None:
        raise fail(Code.USAGE, "no extension that optimizes is installed")
    find = cast("Callable[..., Ordered]", offered.call.load())
    choice, problem = best.choice, plan.problem
    again = choice.training.recompute != "none" or not _splits(plan)
    try:
        return find(
            choice.schedule,
            choice.sizes,
            trained=(problem.space.transformer, choice.training),
            device=problem.device,
            cap=Bytes(problem.cap),
            backward="fused" if again else "split",
            seconds=seconds,
            efficiency=problem.efficiency,
        )
    except PipeschedError as error:
        return Ordered(None, None, None, error.diagnostics[0].message)


def _splits(plan: Outcome) -> bool:
    """Return True if what runs the plan takes I and W: torchtitan, or no trainer in particular."""
    return not plan.request.trainer or plan.request.trainer.startswith("torchtitan")
