"""A schedule under given terms: its faults, its times, and the problem that it solves.

All functions raise a `FaultError` for a fault in a certificate.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cached_property

import numpy as np

from pipesched.analysis.idle import Idle
from pipesched.check.checks import Subject
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.check.memory import check_memory
from pipesched.diagnostics import AnyCode, Diagnostic
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.model.units import Unit
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.proof.every import Word
from pipesched.optimizer.proof.problem import Line, Problem, problem
from pipesched.optimizer.verdict import Terms
from pipesched.schedule_analysis import Analysis


class FaultError(Exception):
    """Raised if a certificate is wrong. `finding`: the diagnostic that reports it."""

    def __init__(self, code: AnyCode, message: str) -> None:
        super().__init__(message)
        self.finding = Diagnostic(code, message, help="run `optimize` again: this file proves nothing")


def require(said: str) -> None:
    if said:
        raise FaultError(OptimizerCode.CERTIFICATE, f"the certificate does not hold: {said}")


class Case:
    """A schedule under given terms, with the schedule's own placement and kind of backward; all else is derived."""

    def __init__(self, schedule: Schedule, asked: Terms) -> None:
        self.schedule = schedule
        self.terms = Terms.of(schedule, asked.costs, asked.release, asked.caps, asked.objective)
        self.scale = asked.costs.ticks(schedule.stages, schedule.microbatches).scale
        if asked.caps is not None:
            require("" if len(asked.caps) == schedule.ranks else f"{len(asked.caps)} caps for {schedule.ranks} ranks")
        self.analysis = Analysis(schedule, asked.costs, asked.release)

    @property
    def one_at_a_time(self) -> bool:
        """True if the schedule runs F, I and W, or F and B, each in a slot of its own."""
        split = (self.schedule.op == Op.I) | (self.schedule.op == Op.W)
        return not (bool(self.schedule.joined.any()) or (self.terms.fused and bool(split.any())))

    @cached_property
    def wrong(self) -> list[Diagnostic]:
        """The faults of the schedule itself."""
        subject = Subject(self.analysis, self.terms.caps or ())
        found = [*check_complete(subject), *check_dataflow(subject)]
        return found if self.terms.caps is None else [*found, *check_memory(subject)]

    @property
    def unit(self) -> Unit:
        return self.terms.costs.unit

    def said(self, ticks: int) -> str:
        """Return the ticks in the user's unit, as text."""
        return self.unit.text(Fraction(ticks, self.scale))

    def below(self, bound: int, exactly: str) -> str:
        """Return text for "an objective of at most `bound` ticks". exactly: see `Unit.below`."""
        tick = self.problem.tick
        following = (bound // tick + 1) * tick
        return self.unit.below(Fraction(bound, self.scale), Fraction(following, self.scale), exactly)

    @property
    def spent(self) -> Idle:
        assert self.analysis.idle is not None, "its orders wait for each other in a cycle"
        return self.analysis.idle

    @property
    def value(self) -> Fraction:
        return self.spent.span if self.terms.objective == "span" else self.spent.makespan

    @cached_property
    def problem(self) -> Problem:
        return problem(self.terms)


def require_like(own: Case, case: Case) -> None:
    """Raise FaultError, PS715, unless `case`, at another m, is valid and has the placement and backward of `own`."""
    at = f"at m={case.schedule.placement.microbatches}"
    if not np.array_equal(case.schedule.placement.rank_of, own.schedule.placement.rank_of):
        raise FaultError(OptimizerCode.EVERY, f"{at} its placement differs")
    if case.terms.fused != own.terms.fused or not case.one_at_a_time:
        raise FaultError(OptimizerCode.EVERY, f"{at} it has other kinds of operations")
    if case.wrong:
        raise FaultError(OptimizerCode.EVERY, f"{at} it is not a valid schedule: {case.wrong[0].message}")


def words(schedule: Schedule) -> list[Word]:
    """Return, for each rank, the line of each operation in order. Raises FaultError, PS715, for two routes or for
    microbatches that overtake others.
    """
    if schedule.placement.routes > 1:
        raise FaultError(OptimizerCode.EVERY, "it does not hold for every m: two routes share the microbatches")
    made, seen = [], Counter[Line]()
    for rank in range(schedule.ranks):
        word = []
        for one in schedule.order(rank):
            word.append(line := Line(one.op, 0, one.stage))
            if one.microbatch != seen[line]:
                raise FaultError(
                    OptimizerCode.EVERY, f"it does not hold for every m: microbatches overtake others on rank {rank}"
                )
            seen[line] += 1
        made.append(word)
    return made
