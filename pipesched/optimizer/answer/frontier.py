"""Bubble against cap: the answer for every cap of a range.

cap   makespan   bubble   peak   verdict
  2         45   46.7 %      2   proved optimal
  3         31   22.6 %      3   proved optimal
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pipesched.model.numbers import percent, shown
from pipesched.model.verdict import INFEASIBLE
from pipesched.optimizer.answer.optimum import Optimum

Point = tuple[Fraction, Optimum]


@dataclass(frozen=True)
class Frontier:
    """points: (cap in the unit of peaks, answer), caps ascending."""

    points: tuple[Point, ...]

    @property
    def exit_status(self) -> int:
        """3 if a point is not proved; 1 if there is no schedule at any cap."""
        statuses = {answer.exit_status for _, answer in self.points}
        return 3 if 3 in statuses else int(statuses == {1})

    @property
    def proved(self) -> bool:
        """Whether every point with a schedule is proved optimal."""
        return all(answer.proved or answer.status == INFEASIBLE for _, answer in self.points)

    def text(self) -> str:
        """A table."""
        objective = self.points[0][1].objective
        rows = [("cap", objective, "bubble" + " by span" * (objective == "span"), "peak", "verdict")]
        rows += [_row(cap, answer) for cap, answer in self.points]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row[:4], widths, strict=False)) for row in rows]
        terms = self.points[0][1].terms_without_cap
        return "\n".join([f"for: {terms}", *(f"{line}  {row[4]}" for line, row in zip(lines, rows, strict=True))])

    def to_json(self) -> dict[str, object]:
        """Every answer, with its cap."""
        return {"ok": self.exit_status == 0, "frontier": [answer.to_json() for _, answer in self.points]}


def _row(cap: Fraction, answer: Optimum) -> tuple[str, str, str, str, str]:
    if answer.value is None or answer.least_bubble is None:
        verdict = f"infeasible: {answer.reason}" if answer.status == INFEASIBLE else answer.verdict
        return shown(cap), "-", "-", "-", verdict
    verdict = answer.status if answer.exit_status == 0 else f"gap {percent(answer.gap or Fraction(0))}"
    return shown(cap), shown(answer.value), percent(answer.least_bubble), shown(max(answer.peak)), verdict
