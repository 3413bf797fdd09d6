"""A schedule under its terms: what is wrong with it, what it takes, and the facts that a bound of it rests on.

What refutes a certificate is raised as a `FaultError`, wherever it is found.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from math import gcd

import numpy as np

from pipesched.analysis.idle import Idle
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.check.memory import check_memory
from pipesched.check.optimum_paths import Facts, Line, facts
from pipesched.check.optimum_rival import Starts
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.model.verdict import Terms
from pipesched.schedule_analysis import Analysis

_SHOWN = 400  # characters of a rank's order in a counterexample


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
    """A schedule under its terms, and what follows from them; the placement and the kind of backward are its own."""

    def __init__(self, schedule: Schedule, asked: Terms) -> None:
        self.schedule = schedule
        self.terms = Terms.of(schedule, asked.costs, asked.release, asked.caps, asked.objective)
        self.ticks = asked.costs.ticks(schedule.stages)
        if asked.caps is not None:
            require("" if len(asked.caps) == schedule.ranks else f"{len(asked.caps)} caps for {schedule.ranks} ranks")
        self.analysis = Analysis(schedule, asked.costs, asked.release)

    @property
    def one_at_a_time(self) -> bool:
        """Whether it runs F, I and W, or F and B, and no two in one slot."""
        split = (self.schedule.op == Op.I) | (self.schedule.op == Op.W)
        return not (bool(self.schedule.joined.any()) or (self.terms.fused and bool(split.any())))

    @property
    def span(self) -> bool:
        return self.terms.objective == "span"

    @cached_property
    def wrong(self) -> list[Diagnostic]:
        """With the schedule itself."""
        made = self.analysis
        found = [
            *check_complete(self.schedule, made.dependencies),
            *check_dataflow(self.schedule, made.dependencies, made.timeline),
        ]
        if self.terms.caps is not None:
            found += check_memory(made.memory, self.terms.caps)
        return found

    @property
    def spent(self) -> Idle:
        assert self.analysis.idle is not None, "its orders wait for each other, which is wrong"
        return self.analysis.idle

    @property
    def value(self) -> Fraction:
        return self.spent.span if self.span else self.spent.makespan

    @cached_property
    def facts(self) -> Facts:
        return facts(self.terms)

    @cached_property
    def tick(self) -> int:
        """All objectives are multiples of so many ticks."""
        return gcd(*self.facts.work.values(), *(message for _, _, _, message in self.facts.arcs)) or 1

    @property
    def starts(self) -> Starts:
        """Those of the schedule, each line in the order of time."""
        starts: dict[Line, list[int]] = {line: [] for line in self.facts.rank}
        route = self.schedule.placement.route_of[self.schedule.microbatch]
        columns = (self.schedule.op, route, self.schedule.stage, self.analysis.timeline.start)
        for op, one, stage, start in zip(*(column.tolist() for column in columns), strict=True):
            starts[Line(Op(op), one, stage)].append(start)
        return {line: sorted(times) for line, times in starts.items()}


def require_like(own: Case, case: Case) -> None:
    """PS715 unless the schedule of another m is one, and of the same kind."""
    at = f"at m={case.schedule.placement.microbatches}"
    if not np.array_equal(case.schedule.placement.rank_of, own.schedule.placement.rank_of):
        raise FaultError(Code.EVERY, f"{at} its placement is another")
    if case.terms.fused != own.terms.fused or not case.one_at_a_time:
        raise FaultError(Code.EVERY, f"{at} its operations are of another kind")
    if case.wrong:
        raise FaultError(Code.EVERY, f"{at} it is no schedule: {case.wrong[0].message}")


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
