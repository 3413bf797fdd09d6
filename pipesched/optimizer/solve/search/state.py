"""The state of a search: the best that is known, and what no schedule can be below."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.lower_bound import Bound
from pipesched.optimizer.solve.problem import Orders, Problem

INTERRUPTED = "interrupted"
MOST_SEED = 2_000_000_000  # what every engine takes


@dataclass(frozen=True)
class Limits:
    """How long to look, in seconds, and with what. engine: auto, z3, sat or cpsat; portfolio: whether to try known
    orders and heuristics; proof: where the refutation is written; seed: where chance begins; steps: at most, None for
    no end.
    """

    seconds: float = 60.0
    engine: str = "auto"
    portfolio: bool = True
    proof: str | None = None
    workers: int = 2
    seed: int = 0
    steps: int | None = None


@dataclass(frozen=True, eq=False)
class Refutation:
    """No schedule has objective <= bound; ranks: these alone cannot reach it, None for all together."""

    bound: int
    engine: str
    ranks: tuple[int, ...] | None


@dataclass(eq=False)
class State:
    """Times in ticks. source: where the best order comes from. floor: what is known from
    elsewhere: no schedule has less.
    """

    problem: Problem
    bound: Bound
    started: float
    floor: int = 0
    best: Orders | None = None
    value: int | None = None
    source: str = ""
    refuted: Refutation | None = None
    stopped: str = ""
    doing: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def lower(self) -> int:
        """No schedule has less."""
        return max(self.bound.value, self.floor, self.refuted.bound + 1 if self.refuted else 0)

    @property
    def proved(self) -> bool:
        return self.value is not None and self.value <= self.lower

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def line(self) -> str:
        """One line of progress."""
        said = self.problem.said
        bound = f"bound {said(self.lower)}"
        if self.value is None:
            return f"{self.seconds:.1f}s  nothing yet  {bound}  {self.doing}"
        gap = 100 * (self.value - self.lower) / self.lower if self.lower else 0.0
        best = f"best {said(self.value)}  {bound}  gap {gap:.1f} %"
        return f"{self.seconds:.1f}s  {best}  ({self.source})  {self.doing}"

    def offer(self, name: str, orders: Orders) -> bool:
        """Whether the order is feasible and better than the best, which it then is."""
        value = convert.value(self.problem, orders)
        if value is None or (self.value is not None and value >= self.value):
            return False
        self.best, self.value, self.source = orders, value, name
        return True
