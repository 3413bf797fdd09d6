"""What was found, as a value: always for this placement, these costs and caps, this backward and this release rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from textwrap import fill

from pipesched.analysis.assumptions import assumed
from pipesched.analysis.idle import idle
from pipesched.analysis.memory import memory
from pipesched.analysis.timeline import timeline
from pipesched.analysis.waits import waits
from pipesched.diagnostics import Code, Diagnostic, exit_status
from pipesched.model.costs import equations
from pipesched.model.numbers import shown
from pipesched.optimize import convert
from pipesched.optimize.answer import published, told, words
from pipesched.optimize.answer.beside import Known
from pipesched.optimize.answer.words import FOUND, INFEASIBLE, NOTHING, PROVED
from pipesched.optimize.instance import Instance
from pipesched.optimize.problem import Problem
from pipesched.optimize.repeat.periodic import Periodic
from pipesched.optimize.search.state import State


@dataclass(frozen=True, eq=False)
class Optimum:
    """The answer. status: proved optimal, best found, infeasible or nothing found.

    makespan, span, peak: of the schedule, None and () where there is none. lower_bound: of the objective; gap: how much
    more than the bound the objective is, as a fraction of the bound. proved_by: what shows that there is no less;
    bound_by: in a word. given: the schedule to improve on, which is then the first of `known`.
    every: (m0, K) where the schedule is given for every m = m0 + jK; growth: (objective at m0, for each microbatch
    more). Exit status 0, 3 (not proved) or 1 (infeasible).
    """

    status: str
    instance: Instance
    sizes: Mapping[str, int]
    objective: str
    makespan: Fraction | None = None
    span: Fraction | None = None
    work: Fraction | None = None
    peak: tuple[Fraction, ...] = ()
    lower_bound: Fraction | None = None
    proved_by: str = ""
    bound_by: str = ""
    reason: str = ""
    found_by: str = ""
    every: tuple[int, int] | None = None
    growth: tuple[Fraction, Fraction] | None = None
    seconds: float = 0.0
    known: Sequence[Known] = ()
    given: Known | None = None
    notes: tuple[str, ...] = ()
    source: str = ""
    certificate: Mapping[str, object] = field(default_factory=dict)
    report: object = None

    @property
    def exit_status(self) -> int:
        return 3 if self.status not in (PROVED, INFEASIBLE) else exit_status(self.diagnostics)

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
    def gap(self) -> Fraction | None:
        """(objective - bound) / bound, or None where one of them is not known."""
        if self.value is None or self.lower_bound is None:
            return None
        return (self.value - self.lower_bound) / self.lower_bound if self.lower_bound else Fraction(0)

    @classmethod
    def infeasible(
        cls, instance: Instance, problem: Problem, sizes: Mapping[str, int], reason: str, seconds: float
    ) -> Optimum:
        """No schedule keeps the caps, and why."""
        return cls(INFEASIBLE, instance, sizes, problem.objective, reason=reason, seconds=seconds)

    @classmethod
    def of(
        cls,
        instance: Instance,
        state: State,
        sizes: Mapping[str, int],
        known: Sequence[Known],
        repeated: Periodic | None,
        seconds: float,
    ) -> Optimum:
        """The result of a search."""
        problem = state.problem
        plain = cls(
            NOTHING,
            instance,
            sizes,
            problem.objective,
            lower_bound=problem.time(state.lower),
            proved_by=words.proved_by(state),
            bound_by=words.bound_by(state),
            reason=state.stopped,
            found_by=state.source,
            seconds=seconds,
            known=tuple(known),
            notes=words.notes(instance, state),
        )
        if state.best is None:
            return plain
        schedule = convert.to_schedule(problem, state.best)
        ticks = instance.costs.ticks(schedule.stages)
        spent = idle(schedule, timeline(schedule, waits(schedule), ticks), ticks)
        return replace(
            plain,
            status=PROVED if state.proved and (repeated is None or repeated.optimal) else FOUND,
            makespan=spent.makespan,
            span=spent.span,
            work=max(spent.work),
            peak=memory(schedule, instance.release, instance.costs.sizes(schedule.stages)).peak,
            every=(repeated.seam.microbatches, repeated.seam.every) if repeated else None,
            growth=_growth(problem, repeated) if repeated else None,
        )

    @property
    def verdict(self) -> str:
        """One line: the status, with its numbers."""
        if self.status == INFEASIBLE:
            return f"infeasible: {self.reason}"
        if self.value is None or self.gap is None or self.lower_bound is None:
            return f"nothing found: {self.reason}; bound {shown(self.lower_bound or Fraction(0))} by {self.bound_by}"
        told = f"{self.objective} {shown(self.value)}"
        if self.status == PROVED:
            return f"proved optimal: {told}{self._for_every}"
        gap = f"gap {float(100 * self.gap):.1f} %, bound {shown(self.lower_bound)} by {self.bound_by}"
        return f"best found: {told}, {gap}"

    @property
    def _for_every(self) -> str:
        if self.every is None:
            return ""
        first, step = self.every
        return f", and for every m = {first} + {step}j" if step > 1 else f", and for every m from {first} up"

    @property
    def terms(self) -> str:
        """What the verdict is for."""
        caps = self.instance.caps
        cap = "no cap" if caps is None else f"cap {words.caps(caps)}"
        return f"{self.terms_without_cap}, {cap}"

    @property
    def terms_without_cap(self) -> str:
        """All but the cap."""
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        backward = "full backward" if self.instance.fused else "split backward"
        told = self.instance.costs.to_json()
        costs = ",".join(f"{key}={words.cost(told[key])}" for key in told if key in (*self.instance.kinds, "C", "M"))
        if self.assumed:
            costs += f" (assumed: {equations(self.assumed)})"
        rule = self.instance.release.name
        return f"{self.placement_name} placement, {sizes}, {backward}, costs {costs}, release {rule}"

    @property
    def assumed(self) -> dict[str, str]:
        """The costs that count and were not given, each with what it follows from."""
        return assumed(self.instance.costs, self.instance.kinds)

    @property
    def placement_name(self) -> str:
        """linear, loop, vee, or irregular."""
        placement = self.instance.placement
        if placement.routes > 1:
            return f"{placement.routes}-route"
        ranks, p = placement.rank_of[0].tolist(), placement.ranks
        turn = list(range(p))
        if ranks == turn:
            return "linear"
        chunks = len(ranks) // p
        if ranks == turn * chunks:
            return "loop"
        if ranks == [r for c in range(chunks) for r in (turn if c % 2 == 0 else turn[::-1])]:
            return "vee"
        return "irregular"

    @property
    def documentation(self) -> str:
        """What the printed file says of itself."""
        lines = [f"{self.verdict[0].upper()}{self.verdict[1:]}.", f"For: {self.terms}."]
        if self.status == PROVED:
            lines.insert(1, f"None is shorter: {self.proved_by}.")
        return "\n".join(fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False) for line in lines)

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
            return [f"{self.objective} == {grown}{when}", *peak]
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
_WIDTH = 118  # characters of a line in the printed file
