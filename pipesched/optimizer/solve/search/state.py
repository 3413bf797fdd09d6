"""The state of a search: the best known schedule, and the lower bound."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.lower_bound import Bound, Busy
from pipesched.optimizer.solve.problem import Orders, Problem

NO_BOUND = Bound(0, "nothing to do", "path", 0, Busy(0, 0, 0), 0)
"""The initial bound."""
INTERRUPTED = "interrupted"
MOST_SEED = 2_000_000_000  # the largest seed that every engine accepts


@dataclass(frozen=True)
class Limits:
    """The limits and methods of a search. engine: auto, z3 or sat; portfolio: True to try known orders and
    heuristics.

    seconds: the limit; a second is `meter.SECOND` steps. proof: PATH to which the proof is written; seed: the seed for
    random choices.
    """

    seconds: float = 60.0
    engine: str = "auto"
    portfolio: bool = True
    proof: str | None = None
    workers: int = 2
    seed: int = 0

    @property
    def reached(self) -> str:
        """The reason why a search stopped at its limit."""
        return f"time limit of {self.seconds:g} s"


@dataclass(frozen=True, eq=False)
class Refutation:
    """The fact that no schedule has an objective <= bound. ranks: the ranks that suffice to show it, None for all.
    grid: durations were rounded down to multiples of this many ticks.
    """

    bound: int
    engine: str
    ranks: tuple[int, ...] | None
    grid: int = 1


@dataclass(eq=False)
class State:
    """The state of a search, in ticks. source: where the best orders come from. floor: a lower bound from the caller.

    refuted: the largest refuted objective; earlier: the objectives refuted before it, ascending.
    """

    problem: Problem
    bound: Bound
    floor: int = 0
    best: Orders | None = None
    value: int | None = None
    source: str = ""
    refuted: Refutation | None = None
    earlier: list[Refutation] = field(default_factory=list)
    stopped: str = ""
    doing: str = ""
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def lower(self) -> int:
        """The lower bound on the objective."""
        return max(self.bound.value, self.floor, self.refuted.bound + 1 if self.refuted else 0)

    def refute(self, found: Refutation) -> None:
        """Record a refutation if it raises the bound."""
        if found.bound + 1 > self.lower:
            self.earlier += [self.refuted] if self.refuted is not None else []
            self.refuted = found

    def disbelieve(self) -> None:
        """Withdraw the refutation of the largest objective; the refutation before it remains, if there is one."""
        self.refuted = self.earlier.pop() if self.earlier else None

    def believe_no_engine(self) -> None:
        """Withdraw all refutations by engines; the derived bound remains."""
        while self.refuted is not None and self.refuted.engine != "ranks":
            self.disbelieve()

    @property
    def proved(self) -> bool:
        return self.value is not None and self.value <= self.lower

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def line(self) -> str:
        """The progress in one line."""
        said = self.problem.said
        bound = f"bound {said(self.lower)}"
        if self.value is None:
            return f"{self.seconds:.1f}s  nothing yet  {bound}  {self.doing}"
        gap = 100 * (self.value - self.lower) / self.lower if self.lower else 0.0
        best = f"best {said(self.value)}  {bound}  gap {gap:.1f} %"
        return f"{self.seconds:.1f}s  {best}  ({self.source})  {self.doing}"

    def offer(self, name: str, orders: Orders) -> bool:
        """Accept the orders if they are valid and better than the best ones; return True if they are accepted."""
        orders = convert.ended(self.problem, orders)
        value = convert.value(self.problem, orders)
        if value is None or (self.value is not None and value >= self.value):
            return False
        self.best, self.value, self.source = orders, value, name
        return True
