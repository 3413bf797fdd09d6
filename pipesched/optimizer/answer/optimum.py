"""What was found, as a value: always for this placement, these costs and caps, this backward and this release rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.holdings import memory
from pipesched.analysis.idle import bubble, idle
from pipesched.analysis.timeline import timeline
from pipesched.diagnostics import Code, Diagnostic, exit_status
from pipesched.model import verdict
from pipesched.model.numbers import shown
from pipesched.model.verdict import FOUND, INFEASIBLE, NOTHING, Verdict
from pipesched.optimizer import convert
from pipesched.optimizer.answer import published, told, words
from pipesched.optimizer.answer.baselines import Known
from pipesched.optimizer.instance import Instance
from pipesched.optimizer.problem import Problem
from pipesched.optimizer.repeat.periodic import Periodic
from pipesched.optimizer.search.state import State

if TYPE_CHECKING:
    from pipesched.report import Report  # which this layer does not import: a report is above what it judges


@dataclass(frozen=True, eq=False)
class Optimum:
    """The answer. status: proved optimal, optimal on the word of an engine, best found, infeasible or nothing found.

    judged: what the checker says of the schedule; None where there is none, as are makespan and span, and () works and
    peak, which are by rank. lower_bound: of the objective; gap: how much more than the bound the objective is, as a
    fraction of the bound. proved_by: what shows that there is no less; bound_by: in a word. given: the schedule to
    improve on, which is then the first of `known`. every: (m0, K) where the schedule is given for every m = m0 + jK;
    growth: (objective at m0, for each microbatch more). Exit status 0, 3 (less is not excluded) or 1 (infeasible).
    """

    instance: Instance
    objective: str
    judged: Verdict | None = None
    makespan: Fraction | None = None
    span: Fraction | None = None
    works: tuple[Fraction, ...] = ()
    peak: tuple[Fraction, ...] = ()
    least: Fraction | None = None
    least_by: str = ""
    impossible: bool = False
    reason: str = ""
    found_by: str = ""
    every: tuple[int, int] | None = None
    growth: tuple[Fraction, Fraction] | None = None
    seed: int = 0
    known: Sequence[Known] = ()
    given: Known | None = None
    notes: tuple[str, ...] = ()
    source: str = ""
    certificate: Mapping[str, object] = field(default_factory=dict)
    report: Report | None = None

    def __repr__(self) -> str:
        return f"<Optimum {self.verdict} for {self.terms_without_cap}>"

    @property
    def status(self) -> str:
        if self.judged is not None:
            return self.judged.status
        return INFEASIBLE if self.impossible else NOTHING

    @property
    def proved(self) -> bool:
        """Whether a checker derived anew that no schedule is better; an engine's word is not enough."""
        return self.judged is not None and self.judged.proved

    @property
    def exit_status(self) -> int:
        return 3 if self.status in (FOUND, NOTHING) else exit_status(self.diagnostics)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """PS701 where no schedule is within the caps; else nothing."""
        if self.status != INFEASIBLE:
            return ()
        return (Diagnostic(Code.INFEASIBLE, self.verdict, help=_ROOM),)

    @property
    def value(self) -> Fraction | None:
        """The objective."""
        return self.span if self.objective == "span" else self.makespan

    @property
    def lower_bound(self) -> Fraction | None:
        return self.least if self.judged is None else self.judged.lower

    @property
    def proved_by(self) -> str:
        return "" if self.judged is None or self.judged.word else self.judged.shown_by

    @property
    def told_by(self) -> str:
        """What the lower bound rests on where that is an engine's word."""
        return self.judged.shown_by if self.judged is not None and self.judged.word else ""

    @property
    def bound_by(self) -> str:
        return self.least_by if self.judged is None else self.judged.by

    @property
    def work(self) -> Fraction | None:
        """Of the busiest rank."""
        return max(self.works, default=None)

    @property
    def bubble(self) -> Fraction | None:
        """Idle time of all ranks over ranks x makespan."""
        return None if self.makespan is None else bubble(self.makespan, self.works)

    @property
    def span_bubble(self) -> Fraction | None:
        """The same with the span in the place of the makespan."""
        return None if self.span is None else bubble(self.span, self.works)

    @property
    def least_bubble(self) -> Fraction | None:
        """The bubble that belongs to the objective."""
        return self.span_bubble if self.objective == "span" else self.bubble

    @property
    def gap(self) -> Fraction | None:
        """(objective - bound) / bound, or None where one of them is not known."""
        return None if self.judged is None else self.judged.gap

    @property
    def sizes(self) -> Mapping[str, int]:
        return verdict.sizes(self.instance.placement)

    @classmethod
    def infeasible(cls, instance: Instance, problem: Problem, reason: str) -> Optimum:
        """No schedule keeps the caps, and why."""
        return cls(instance, problem.objective, impossible=True, reason=reason)

    @classmethod
    def of(
        cls, instance: Instance, state: State, known: Sequence[Known], repeated: Periodic | None, judged: Verdict | None
    ) -> Optimum:
        """The result of a search; judged: what the checker says of it."""
        problem = state.problem
        plain = cls(
            instance,
            problem.objective,
            judged,
            least=problem.time(state.lower),
            least_by=words.bound_by(state),
            reason=state.stopped if judged is None or judged.status == FOUND else "",
            found_by=state.source,
            known=tuple(known),
            notes=words.notes(instance, state),
        )
        if state.best is None:
            return plain
        schedule = convert.to_schedule(problem, state.best)
        ticks = instance.costs.ticks(schedule.stages)
        spent = idle(schedule, timeline(schedule, Dependencies.of(schedule), ticks), ticks)
        return replace(
            plain,
            makespan=spent.makespan,
            span=spent.span,
            works=spent.work,
            peak=memory(schedule, instance.release, instance.costs.sizes(schedule.stages)).peak,
            every=(repeated.seam.microbatches, repeated.seam.every) if repeated else None,
            growth=_growth(problem, repeated) if repeated else None,
        )

    @property
    def verdict(self) -> str:
        """One line: the status, with its numbers."""
        if self.judged is not None:
            return self.judged.line
        if self.status == INFEASIBLE:
            return f"infeasible: {self.reason}"
        return f"nothing found: {self.reason}; bound {shown(self.lower_bound or Fraction(0))} by {self.bound_by}"

    @property
    def terms(self) -> str:
        """What the verdict is for."""
        asked = self.instance
        return verdict.terms(asked.placement, asked.costs, asked.release, asked.caps, fused=asked.fused)

    @property
    def terms_without_cap(self) -> str:
        """All but the cap."""
        asked = self.instance
        return verdict.terms_without_cap(asked.placement, asked.costs, asked.release, fused=asked.fused)

    @property
    def assumed(self) -> dict[str, str]:
        """The costs that count and were not given, each with what it follows from."""
        return verdict.assumed(self.instance.costs, fused=self.instance.fused)

    @property
    def documentation(self) -> str:
        """What the printed file says of itself."""
        return "" if self.judged is None else verdict.documentation(self.judged, self.terms)

    @property
    def claims(self) -> list[str]:
        """What the printed file claims, checked by verify."""
        if self.makespan is None or self.span is None:
            return []
        when, most = words.condition(self.instance.costs, self.instance.fused), words.exact(max(self.peak))
        rule = words.release(self.instance.release)
        peak = [] if rule is None else [f"peak == {most}{rule}"]
        if self.every is not None and self.growth is not None:
            base, more = self.growth
            grown = f"{words.exact(base)} + {words.exact(more)} * (m - {self.every[0]})"
            known = "==" if self.judged is not None and self.judged.everywhere else "<="
            return [f"{self.objective} {known} {grown}{when}", *peak]
        times = {"makespan": self.makespan, "span": self.span}
        return [*(f"{name} == {words.exact(value)}{when}" for name, value in times.items()), *peak]

    def __str__(self) -> str:
        return self.text()

    def text(self, *, color: bool = False) -> str:
        """The verdict, what it is for, what proves it, and the best known schedules beside it."""
        return told.text(self, color=color)

    def to_json(self) -> dict[str, object]:
        """The published form; times and peaks are whole numbers or strings such as ``11/2``."""
        return published.to_json(self)


def _growth(problem: Problem, repeated: Periodic) -> tuple[Fraction, Fraction]:
    seam = repeated.seam
    return problem.time(seam.value), problem.time(seam.period) / seam.every


_ROOM = "give each rank at least what one microbatch needs there, or place the stages otherwise"
