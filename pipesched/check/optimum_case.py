"""A schedule under its terms: what is wrong with it, what it takes, and the facts that a bound of it rests on.

What refutes a certificate is raised as a `FaultError`, wherever it is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.holdings import memory
from pipesched.analysis.idle import Idle, idle
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.check.memory import check_memory
from pipesched.check.optimum_paths import Facts, Line, facts
from pipesched.check.optimum_rival import Starts
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.ops import Compute, Op
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule

_SHOWN = 400  # characters of a rank's order in a counterexample


@dataclass(frozen=True)
class Terms:
    """What a verdict is for, besides the placement. caps: by rank, in the unit of peaks, or None."""

    costs: Costs
    release: Release
    caps: tuple[Fraction, ...] | None
    objective: str


class FaultError(Exception):
    """What refutes a certificate."""

    def __init__(self, code: Code, message: str, *notes: str) -> None:
        super().__init__(message)
        self.finding = finding(code, message, *notes)


def finding(code: Code, message: str, *notes: str) -> Diagnostic:
    return Diagnostic(code, message, notes=notes, help="optimize again; this proves nothing")


def require(said: str) -> None:
    if said:
        raise FaultError(Code.CERTIFICATE, f"the certificate does not hold: {said}")


class Case:
    """A schedule under its terms, and what follows from them."""

    def __init__(self, schedule: Schedule, terms: Terms) -> None:
        self.schedule, self.terms = schedule, terms
        self.ticks = terms.costs.ticks(schedule.stages)
        if terms.caps is not None:
            require("" if len(terms.caps) == schedule.ranks else f"{len(terms.caps)} caps for {schedule.ranks} ranks")
        self.dependencies: Dependencies = Dependencies.of(schedule)
        self.times: Timeline = timeline(schedule, self.dependencies, self.ticks)
        self.fused = bool((schedule.op == Op.B).any())

    @property
    def one_at_a_time(self) -> bool:
        """Whether it runs F, I and W, or F and B, and no two in one slot."""
        split = (self.schedule.op == Op.I) | (self.schedule.op == Op.W)
        return not (bool(self.schedule.joined.any()) or (self.fused and bool(split.any())))

    @property
    def span(self) -> bool:
        return self.terms.objective == "span"

    @cached_property
    def wrong(self) -> list[Diagnostic]:
        """With the schedule itself."""
        found = [
            *check_complete(self.schedule, self.dependencies),
            *check_dataflow(self.schedule, self.dependencies, self.times),
        ]
        if self.terms.caps is not None:
            sizes = self.terms.costs.sizes(self.schedule.stages)
            found += check_memory(memory(self.schedule, self.terms.release, sizes), self.terms.caps)
        return found

    @cached_property
    def spent(self) -> Idle:
        return idle(self.schedule, self.times, self.ticks)

    @property
    def value(self) -> Fraction:
        return self.spent.span if self.span else self.spent.makespan

    @cached_property
    def facts(self) -> Facts:
        terms = self.terms
        return facts(self.schedule.placement, terms.costs, terms.release, terms.caps, fused=self.fused)

    @cached_property
    def tick(self) -> int:
        """All objectives are multiples of so many ticks."""
        return gcd(*self.facts.work.values(), *(message for _, _, _, message in self.facts.arcs)) or 1

    @property
    def starts(self) -> Starts:
        """Those of the schedule, each line in the order of time."""
        starts: dict[Line, list[int]] = {line: [] for line in self.facts.rank}
        route = self.schedule.placement.route_of[self.schedule.microbatch]
        columns = (self.schedule.op, route, self.schedule.stage, self.times.start)
        for op, one, stage, start in zip(*(column.tolist() for column in columns), strict=True):
            starts[Line(Op(op), one, stage)].append(start)
        return {line: sorted(times) for line, times in starts.items()}


def require_at_most(own: Case, case: Case, value: Fraction) -> None:
    """PS715 unless the schedule of another m is one of the same kind, and takes no more than that."""
    at, objective = f"at m={case.schedule.placement.microbatches}", own.terms.objective
    if not np.array_equal(case.schedule.placement.rank_of, own.schedule.placement.rank_of):
        raise FaultError(Code.EVERY, f"{at} its placement is another")
    if case.fused != own.fused or not case.one_at_a_time:
        raise FaultError(Code.EVERY, f"{at} its operations are of another kind")
    if case.wrong:
        raise FaultError(Code.EVERY, f"{at} it is no schedule: {case.wrong[0].message}")
    if case.value > value:
        raise FaultError(Code.EVERY, f"{at} the {objective} is told to be {shown(value)}, and is {shown(case.value)}")


def scheduled(schedule: Schedule, starts: Starts) -> Schedule:
    """A schedule with these starts; the i-th of a line is for the i-th microbatch of its route."""
    placement = schedule.placement
    among = [np.flatnonzero(placement.route_of == route).tolist() for route in range(placement.routes)]
    orders: list[list[tuple[int, int, Compute]]] = [[] for _ in range(placement.ranks)]
    for turn, (line, times) in enumerate(starts.items()):
        rank = int(placement.rank_of[line.route, line.stage])
        for i, start in enumerate(times):
            orders[rank].append((start, turn, Compute(line.op, line.stage, among[line.route][i])))
    return Schedule.from_orders(
        [[one for _, _, one in sorted(order, key=lambda x: x[:2])] for order in orders], placement
    )


def order_text(schedule: Schedule, rank: int) -> str:
    text = " ".join(f"{one.op.name}{one.stage}.{one.microbatch}" for one in schedule.order(rank))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN].rsplit(' ', 1)[0]} …"
