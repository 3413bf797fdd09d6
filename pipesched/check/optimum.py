"""An optimum is what can be derived of it anew, and no more.

    schedule      complete, every input before its use, within the caps, and its objective is the one told
    bound         holds, by facts derived from placement, costs, caps and release rule      `optimum_bound`, `_meetings`
    refuted       what nothing reaches: by a programme over each rank's counts, run here    `optimum_ranks`
                  else an engine's word, about these terms, that a quick try cannot belie   `optimum_rival`
    every         for every m: a part that repeats, and a bound that grows with it          `optimum_every`

    proved optimal                                  objective = what is derived
    optimal on the word of CaDiCaL, not checked     objective = what the engine refuted, and one tick
    best found                                      less is not excluded

The optimizer is not asked. All holds for every schedule with this placement, these costs, caps and release rule and
this kind of backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from pipesched.analysis.idle import Idle
from pipesched.check.optimum_bound import fault
from pipesched.check.optimum_case import (
    Case,
    FaultError,
    Terms,
    finding,
    order_text,
    require,
    require_at_most,
    scheduled,
)
from pipesched.check.optimum_every import Every, every_fault
from pipesched.check.optimum_meetings import meetings
from pipesched.check.optimum_ranks import refutes
from pipesched.check.optimum_rival import rival
from pipesched.check.optimum_told import Told, Unreadable
from pipesched.check.optimum_words import explained, named
from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.model.numbers import shown
from pipesched.model.schedule import Schedule
from pipesched.model.verdict import Verdict, engine_name, exact_terms

ENGINES = ("cadical", "glucose", "z3", "cpsat", "lattice", "paths", "cap")

At = Callable[[int], Schedule]
"""The schedule for another number of microbatches."""


@dataclass(frozen=True)
class Judgement:
    """What is wrong, and the verdict that follows where nothing is. spent: the times of the schedule."""

    findings: tuple[Diagnostic, ...]
    verdict: Verdict | None = None
    spent: Idle | None = None


def judge(schedule: Schedule, terms: Terms, certificate: Mapping[str, object], at: At | None = None) -> Judgement:
    """PS710, what the certificate says does not hold; PS711, its verdict does not follow; PS713, there is a better
    schedule; PS715, it is not for every m; and all that is wrong with the schedule itself. at: needed for every m.
    """
    try:
        case = _Told(schedule, terms, certificate)
        if case.wrong:
            return Judgement(tuple(case.wrong))
        verdict = case.verdict(at)
        return Judgement(tuple(_told_otherwise(verdict, case.told)), verdict, case.spent)
    except FaultError as found:
        return Judgement((found.finding,))
    except PipeschedError as error:
        return Judgement(error.diagnostics)
    except Unreadable as error:
        return Judgement((finding(Code.CERTIFICATE, f"the certificate does not hold: {error}"),))


def judge_at(schedule: Schedule, own: Schedule, terms: Terms, verdict: Verdict) -> Judgement:
    """What a verdict for every m says of the schedule at another m. own: that of the answer. PS225, it is for one m;
    PS715, it does not hold.
    """
    case, microbatches = Case(schedule, terms), schedule.placement.microbatches
    value = verdict.at(microbatches)
    if value is None:
        help = "leave out --m, or optimize for it"
        return Judgement((Diagnostic(Code.USAGE, f"the answer says nothing of m={microbatches}", help=help),))
    try:
        require_at_most(Case(own, terms), case, value)
    except FaultError as found:
        return Judgement((found.finding,))
    if verdict.everywhere:
        told = f"the bound grows by {shown(verdict.grown[1])} with each microbatch, and is {shown(value)} here"
        return Judgement((), replace(verdict, value=case.value, lower=value, shown_by=told, word=""))
    work = max(case.spent.work)
    told = f"a rank has {shown(work)} of work"
    return Judgement((), replace(verdict, value=case.value, lower=work, shown_by=told, by="work", word=""))


def _told_otherwise(verdict: Verdict, told: Told) -> Iterator[Diagnostic]:
    if "verdict" in told.entries and told.text("verdict") != verdict.status:
        wrong = f"{verdict.objective} {shown(verdict.value)}, lower bound {shown(verdict.lower)}: {verdict.status}"
    elif "lower_bound" in told.entries and told.time("lower_bound") != verdict.lower:
        wrong = f"the lower bound is {shown(verdict.lower)}"
    elif "gap" in told.entries and told.time("gap") != verdict.gap:
        wrong = f"the gap is {verdict.gap}"
    else:
        return
    yield finding(Code.VERDICT, f"the verdict does not follow: {wrong}")


class _Told(Case):
    """A schedule, and what is told about it."""

    def __init__(self, schedule: Schedule, terms: Terms, certificate: Mapping[str, object]) -> None:
        super().__init__(schedule, terms)
        self.told = Told(certificate, self.ticks.scale)

    def verdict(self, at: At | None) -> Verdict:
        """What follows."""
        names = ("objective", "backward", "schedule", "verdict", "lower_bound", "gap", "bound", "refuted", "every")
        self.told.only(*names)
        require(self._statement())
        made = self._refuted(self._bound())
        if "every" not in self.told:
            return made
        return self._for_every(made, at)

    def _statement(self) -> str:
        """What the schedule is, its objective, and what that comes to."""
        told = self.told
        if told.text("objective") != self.terms.objective:
            return f"it is about another objective than the {self.terms.objective}"
        if told.text("backward") != ("fused" if self.fused else "split"):
            return "it is about the other kind of backward"
        if not self.one_at_a_time:
            return "it is about F, I and W, or F and B, one at a time"
        if told.time("schedule") != self.value:
            return f"the {self.terms.objective} is {shown(self.value)}"
        return "" if "refuted" in told.entries else "it does not tell what was refuted"

    def _bound(self) -> Verdict:
        """What formulas say."""
        told, scale = self.told.bound("bound"), self.ticks.scale
        require(fault(self.facts, told, span=self.span))
        better = None if self.span else meetings(self.facts)
        if better is not None and better.value > told.value:
            told_by, by, lower = better.told, "meetings of microbatches", better.value
        else:
            told_by, by, lower = explained(told, scale), named(told), told.value
        return self._than(Verdict(self.terms.objective, self.value, Fraction(lower, scale), told_by, by))

    def _than(self, verdict: Verdict) -> Verdict:
        if verdict.lower > self.value:
            raise FaultError(
                Code.VERDICT,
                f"the verdict does not follow: the lower bound {shown(verdict.lower)} is above the {verdict.objective}",
            )
        return verdict

    def _refuted(self, formula: Verdict) -> Verdict:
        """What is out of reach by a programme over counts, or by an engine's word."""
        if "refuted" not in self.told:
            return formula
        told = self.told.part("refuted").only("value", "engine", "ranks", "terms")
        engine, bound, scale = told.text("engine"), told.ticks("value"), self.ticks.scale
        require(self._about(told))
        lower = Fraction((bound // self.tick + 1) * self.tick, scale)
        if lower <= formula.lower:
            return formula
        alone = f", on rank {told.wholes('ranks')[0]} alone" if "ranks" in told else ""
        if refutes(self.facts, bound, span=self.span):
            why = f"within {shown(Fraction(bound, scale))} some rank has no time for its work, taking ranks one by one"
            return Verdict(formula.objective, self.value, lower, why, "ranks taken one by one")
        self._belied(engine, bound)
        why = f"{engine_name(engine)} refuted {shown(Fraction(bound, scale))}{alone}, which nobody checked"
        return Verdict(formula.objective, self.value, lower, why, engine_name(engine), word=engine)

    def _about(self, told: Told) -> str:
        """That a refutation is a known engine's, about these terms, and no contradiction to the schedule."""
        placement, asked = self.schedule.placement, self.terms
        if told.text("engine") not in ENGINES:
            return f"no engine is called {told.text('engine')!r}"
        own = exact_terms(
            placement, asked.costs, asked.release, asked.caps, fused=self.fused, objective=asked.objective
        )
        if other := told.part("terms").only(*own).otherwise(own):
            return f"what was refuted has other terms: {other[0]}"
        if "ranks" in told and not (told.wholes("ranks") and set(told.wholes("ranks")) <= set(range(placement.ranks))):
            return "it is about ranks that are not there"
        if told.time("value") >= self.value:
            return f"{shown(told.time('value'))} is told to be refuted, and the schedule takes {shown(self.value)}"
        return ""

    def _belied(self, engine: str, bound: int) -> None:
        """A schedule where an engine is told to have found that there is none."""
        starts = rival(self.facts, self.starts, bound, span=self.span)
        if starts is None:
            return
        better = scheduled(self.schedule, starts)
        made = Case(better, self.terms)
        if not made.wrong and made.value * self.ticks.scale <= bound:
            raise FaultError(
                Code.BEATEN,
                f"{engine_name(engine)} is told to have refuted {shown(Fraction(bound, self.ticks.scale))}, "
                f"and here is a schedule with {self.terms.objective} {shown(made.value)}",
                *(f"rank {rank}: {order_text(better, rank)}" for rank in range(better.ranks)),
            )

    def _for_every(self, here: Verdict, at: At | None) -> Verdict:
        """The same, and what is known of every other m."""
        told = Every.read(self.told.part("every"))
        if at is None:
            raise FaultError(Code.EVERY, "it is told to be for every m, and there is one schedule")
        cases = {m: Case(at(m), self.terms) for m in told.sizes(self.schedule.placement.microbatches)}
        for m, case in cases.items():
            require_at_most(self, case, told.value + told.growth * (m - told.microbatches))
        first = cases[told.microbatches]
        if wrong := every_fault(told, first.schedule, first.dependencies, first.ticks, span=self.span):
            raise FaultError(Code.EVERY, f"it is not for every m: {wrong}")
        return replace(
            here,
            every=(told.microbatches, told.step),
            grown=(told.value, told.growth),
            everywhere=told.grows(first.facts, span=self.span),
        )
