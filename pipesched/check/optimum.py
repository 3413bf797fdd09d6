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
from functools import cached_property
from math import gcd

import numpy as np

from pipesched.analysis.idle import Idle, idle
from pipesched.analysis.memory import memory
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.analysis.waits import Waits, waits
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.check.memory import check_memory
from pipesched.check.optimum_bound import fault
from pipesched.check.optimum_every import Every, every_fault
from pipesched.check.optimum_meetings import meetings
from pipesched.check.optimum_paths import Facts, Line, facts
from pipesched.check.optimum_ranks import refutes
from pipesched.check.optimum_rival import Starts, rival
from pipesched.check.optimum_told import Told, Unreadable
from pipesched.check.optimum_words import explained, named
from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.ops import Compute, Op
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.model.verdict import Verdict, engine_name, exact_terms

ENGINES = ("cadical", "glucose", "z3", "cpsat", "lattice", "paths", "cap")
_SHOWN = 400  # characters of a rank's order in a counterexample

At = Callable[[int], Schedule]
"""The schedule for another number of microbatches."""


@dataclass(frozen=True)
class Terms:
    """What a verdict is for, besides the placement. caps: by rank, in the unit of peaks, or None."""

    costs: Costs
    release: Release
    caps: tuple[Fraction, ...] | None
    objective: str


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
        case = _Case(schedule, terms, certificate)
        if case.wrong:
            return Judgement(tuple(case.wrong))
        verdict = case.verdict(at)
        return Judgement(tuple(_told_otherwise(verdict, case.told)), verdict, case.spent)
    except FaultError as found:
        return Judgement((found.finding,))
    except PipeschedError as error:
        return Judgement(error.diagnostics)
    except Unreadable as error:
        return Judgement((_finding(Code.CERTIFICATE, f"the certificate does not hold: {error}"),))


def judge_at(schedule: Schedule, terms: Terms, verdict: Verdict) -> Judgement:
    """What a verdict for every m says of the schedule at another m. PS225, it is for one m; PS715, it does not hold."""
    case, microbatches = _Case(schedule, terms, {}), schedule.placement.microbatches
    if case.wrong:
        return Judgement(tuple(case.wrong))
    value = verdict.at(microbatches)
    if value is None:
        help = "leave out --m, or optimize for it"
        return Judgement((Diagnostic(Code.USAGE, f"the answer says nothing of m={microbatches}", help=help),))
    if case.value > value:
        wrong = f"at m={microbatches} the {verdict.objective} is told to be {shown(value)}; it is {shown(case.value)}"
        return Judgement((_finding(Code.EVERY, wrong),))
    if verdict.everywhere:
        told = f"the bound grows by {shown(verdict.grown[1])} with each microbatch, and is {shown(value)} here"
        return Judgement((), replace(verdict, value=case.value, lower=value, shown_by=told, word=""))
    work = max(case.spent.work)
    told = f"a rank has {shown(work)} of work"
    return Judgement((), replace(verdict, value=case.value, lower=work, shown_by=told, by="work", word=""))


class FaultError(Exception):
    """What refutes a certificate."""

    def __init__(self, code: Code, message: str, *notes: str) -> None:
        super().__init__(message)
        self.finding = _finding(code, message, *notes)


def _finding(code: Code, message: str, *notes: str) -> Diagnostic:
    return Diagnostic(code, message, notes=notes, help="optimize again; this proves nothing")


def _require(said: str) -> None:
    if said:
        raise FaultError(Code.CERTIFICATE, f"the certificate does not hold: {said}")


def _told_otherwise(verdict: Verdict, told: Told) -> Iterator[Diagnostic]:
    if "verdict" in told.entries and told.text("verdict") != verdict.status:
        wrong = f"{verdict.objective} {shown(verdict.value)}, lower bound {shown(verdict.lower)}: {verdict.status}"
    elif "lower_bound" in told.entries and told.time("lower_bound") != verdict.lower:
        wrong = f"the lower bound is {shown(verdict.lower)}"
    elif "gap" in told.entries and told.time("gap") != verdict.gap:
        wrong = f"the gap is {verdict.gap}"
    else:
        return
    yield _finding(Code.VERDICT, f"the verdict does not follow: {wrong}")


class _Case:
    """A schedule, and what is told about it."""

    def __init__(self, schedule: Schedule, terms: Terms, certificate: Mapping[str, object]) -> None:
        self.schedule, self.terms = schedule, terms
        self.ticks = terms.costs.ticks(schedule.stages)
        self.told = Told(certificate, self.ticks.scale)
        if terms.caps is not None:
            _require("" if len(terms.caps) == schedule.ranks else f"{len(terms.caps)} caps for {schedule.ranks} ranks")
        self.needs: Waits = waits(schedule)
        self.times: Timeline = timeline(schedule, self.needs, self.ticks)
        self.fused = bool((schedule.op == Op.B).any())

    @property
    def span(self) -> bool:
        return self.terms.objective == "span"

    @cached_property
    def wrong(self) -> list[Diagnostic]:
        """With the schedule itself."""
        found = [*check_complete(self.schedule, self.needs), *check_dataflow(self.schedule, self.needs, self.times)]
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

    def verdict(self, at: At | None) -> Verdict:
        """What follows."""
        names = ("objective", "backward", "schedule", "verdict", "lower_bound", "gap", "bound", "refuted", "every")
        self.told.only(*names)
        _require(self._statement())
        made = self._refuted(self._bound())
        if "every" not in self.told:
            return made
        return self._for_every(made, at)

    def _statement(self) -> str:
        """What the schedule is, its objective, and what that comes to."""
        told, op = self.told, self.schedule.op
        if told.text("objective") != self.terms.objective:
            return f"it is about another objective than the {self.terms.objective}"
        if told.text("backward") != ("fused" if self.fused else "split"):
            return "it is about the other kind of backward"
        if bool(self.schedule.joined.any()) or (self.fused and bool(((op == Op.I) | (op == Op.W)).any())):
            return "it is about F, I and W, or F and B, one at a time"
        if told.time("schedule") != self.value:
            return f"the {self.terms.objective} is {shown(self.value)}"
        return "" if "refuted" in told.entries else "it does not tell what was refuted"

    def _bound(self) -> Verdict:
        """What formulas say."""
        told, scale = self.told.bound("bound"), self.ticks.scale
        _require(fault(self.facts, told, span=self.span))
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
        _require(self._about(told))
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
        starts = rival(self.facts, self._starts(), bound, span=self.span)
        if starts is None:
            return
        better = _scheduled(self.schedule, starts)
        made = _Case(better, self.terms, {})
        if not made.wrong and made.value * self.ticks.scale <= bound:
            raise FaultError(
                Code.BEATEN,
                f"{engine_name(engine)} is told to have refuted {shown(Fraction(bound, self.ticks.scale))}, "
                f"and here is a schedule with {self.terms.objective} {shown(made.value)}",
                *(f"rank {rank}: {_order(better, rank)}" for rank in range(better.ranks)),
            )

    def _starts(self) -> Starts:
        """Those of the schedule, each line in the order of time."""
        starts: dict[Line, list[int]] = {line: [] for line in self.facts.rank}
        route = self.schedule.placement.route_of[self.schedule.microbatch]
        columns = (self.schedule.op, route, self.schedule.stage, self.times.start)
        for op, one, stage, start in zip(*(column.tolist() for column in columns), strict=True):
            starts[Line(Op(op), one, stage)].append(start)
        return {line: sorted(times) for line, times in starts.items()}

    def _for_every(self, here: Verdict, at: At | None) -> Verdict:
        """The same, and what is known of every other m."""
        told = Every.read(self.told.part("every"))
        if at is None:
            raise FaultError(Code.EVERY, "it is told to be for every m, and there is one schedule")
        cases = {m: _Case(at(m), self.terms, {}) for m in told.sizes(self.schedule.placement.microbatches)}
        for m, case in cases.items():
            if not np.array_equal(case.schedule.placement.rank_of, self.schedule.placement.rank_of):
                raise FaultError(Code.EVERY, f"at m={m} its placement is another")
            value = told.value + told.growth * (m - told.microbatches)
            if case.wrong or case.value != value:
                said = f"is {shown(case.value)}" if not case.wrong else f"is none: {case.wrong[0].message}"
                raise FaultError(
                    Code.EVERY, f"at m = {m} the {here.objective} is told to be {shown(value)}, and {said}"
                )
        first = cases[told.microbatches]
        if wrong := every_fault(told, first.schedule, first.needs, first.ticks, span=self.span):
            raise FaultError(Code.EVERY, f"it is not for every m: {wrong}")
        return replace(
            here,
            every=(told.microbatches, told.step),
            grown=(told.value, told.growth),
            everywhere=told.grows(first.facts, span=self.span),
        )


def _scheduled(schedule: Schedule, starts: Starts) -> Schedule:
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


def _order(schedule: Schedule, rank: int) -> str:
    text = " ".join(f"{one.op.name}{one.stage}.{one.microbatch}" for one in schedule.order(rank))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN].rsplit(' ', 1)[0]} …"
