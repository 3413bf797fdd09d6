"""An optimum is what its certificate says, and no more.

    schedule      complete, every input before its use, within the caps, and its objective is the one told
    bound         holds, by facts derived anew from placement, costs, caps and release rule (`optimum_bound`)
    refuted       what an engine found unreachable; that cannot be derived here, only that all else fits it
    verdict       proved optimal exactly if objective = lower bound = max(bound, refuted + one tick)

The optimizer is not asked. A bound holds for every schedule with this placement, these costs, caps and release rule
and this kind of backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from pipesched.analysis.idle import idle
from pipesched.analysis.memory import memory
from pipesched.analysis.timeline import timeline
from pipesched.analysis.waits import waits
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.check.memory import check_memory
from pipesched.check.optimum_bound import Part, fault
from pipesched.check.optimum_paths import Facts, facts, heads
from pipesched.check.optimum_told import Told, Unreadable
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule

KINDS = ("path", "one-machine", "ends")
ENGINES = ("cadical", "glucose", "z3", "cpsat", "lattice", "paths", "cap")
PROVED, FOUND = "proved optimal", "best found"


def check_optimum(
    schedule: Schedule,
    costs: Costs,
    release: Release,
    caps: Sequence[Fraction] | None,
    objective: str,
    certificate: Mapping[str, object],
) -> Iterator[Diagnostic]:
    """PS710, what the certificate says does not hold; PS711, its verdict does not follow; and all that is wrong with
    the schedule itself. caps: by rank, in the unit of peaks, or None; objective: makespan or span.
    """
    if caps is not None and len(caps) != schedule.ranks:
        yield _finding(Code.CERTIFICATE, f"the certificate does not hold: {len(caps)} caps for {schedule.ranks} ranks")
        return
    needs, ticks = waits(schedule), costs.ticks(schedule.stages)
    times = timeline(schedule, needs, ticks)
    wrong = [*check_complete(schedule, needs), *check_dataflow(schedule, needs, times)]
    if caps is not None:
        wrong += check_memory(memory(schedule, release, costs.sizes(schedule.stages)), caps)
    if wrong:
        yield from wrong
        return
    spent, fused = idle(schedule, times, ticks), bool((schedule.op == Op.B).any())
    made = facts(schedule.placement, costs, release, caps, fused=fused)
    value = spent.span if objective == "span" else spent.makespan
    judged = _Case(schedule, made, objective, fused, value, Told(certificate, ticks.scale))
    try:
        if wrong_term := _statement(judged) or _bound(judged) or _refuted(judged):
            yield _finding(Code.CERTIFICATE, f"the certificate does not hold: {wrong_term}")
        elif wrong_verdict := _verdict(judged):
            yield _finding(Code.VERDICT, f"the verdict does not follow: {wrong_verdict}")
    except Unreadable as error:
        yield _finding(Code.CERTIFICATE, f"the certificate does not hold: {error}")


def _finding(code: Code, message: str) -> Diagnostic:
    return Diagnostic(code, message, help="optimize again; this proves nothing")


@dataclass(frozen=True, eq=False)
class _Case:
    """A schedule that is right by itself, what is known of its problem, and what is told about it."""

    schedule: Schedule
    facts: Facts
    objective: str
    fused: bool
    value: Fraction
    told: Told

    @property
    def tick(self) -> Fraction:
        """All times are multiples of this."""
        times = [*self.facts.work.values(), *(message for _, _, _, message in self.facts.arcs)]
        return Fraction(gcd(*times) or 1, self.told.scale)

    @property
    def lower(self) -> Fraction:
        told = self.told.part("bound").time("value")
        return max(told, self.told.part("refuted").time("value") + self.tick) if "refuted" in self.told else told


def _statement(case: _Case) -> str:
    """What the schedule is, its objective, and what that comes to."""
    told, op = case.told, case.schedule.op
    if told.text("objective") != case.objective:
        return f"it is about another objective than the {case.objective}"
    if told.text("backward") != ("fused" if case.fused else "split"):
        return "it is about the other kind of backward"
    if bool(case.schedule.joined.any()) or (case.fused and bool(((op == Op.I) | (op == Op.W)).any())):
        return "it is about F, I and W, or F and B, one at a time"
    if told.time("schedule") != case.value:
        return f"the {case.objective} is {shown(case.value)}"
    return ""


def _bound(case: _Case) -> str:
    """The bound, derived anew."""
    bound = case.told.part("bound")
    kind = bound.text("kind")
    if kind not in KINDS:
        return f"no bound is of kind {kind!r}"
    if case.objective == "span" and (open_end := _due(case)):
        return open_end
    names = ("head", "work", "tail", "value") + (("before", "after") if kind == "ends" else ())
    operations: list[Part] = [] if kind == "ends" else bound.operations("operations")
    return fault(case.facts, kind, bound.whole("rank"), {name: bound.ticks(name) for name in names}, operations)


def _due(case: _Case) -> str:
    """Take from every rank's tails when the rank begins, which is told by the placement where each rank is met first
    by one route, before any rank is met again; else say so.
    """
    ranks = list(dict.fromkeys(case.schedule.placement.rank_of[0].tolist()))
    if case.schedule.placement.routes > 1 or case.schedule.placement.rank_of[0, : len(ranks)].tolist() != ranks:
        return "its placement leaves open when a rank begins"
    head = heads(case.facts)
    for line in case.facts.rank:
        if line.op == Op.F and line.stage < len(ranks):
            case.facts.due[ranks[line.stage]] = head[line][0]
    return ""


def _refuted(case: _Case) -> str:
    """An engine's word: that it is a known one, about ranks that are there, and no contradiction to the schedule."""
    if "refuted" not in case.told:
        return "" if "refuted" in case.told.entries else "it does not tell what was refuted"
    told = case.told.part("refuted")
    if told.text("engine") not in ENGINES:
        return f"no engine is called {told.text('engine')!r}"
    if "ranks" in told and not (
        set(told.wholes("ranks")) and set(told.wholes("ranks")) <= set(range(case.schedule.ranks))
    ):
        return "it is about ranks that are not there"
    if told.time("value") >= case.value:
        return f"{shown(told.time('value'))} is told to be refuted, and the schedule takes {shown(case.value)}"
    return "" if (told.time("value") / case.tick).denominator == 1 else "what was refuted is no sum of costs"


def _verdict(case: _Case) -> str:
    told, lower = case.told, case.lower
    if lower > case.value:
        return f"the lower bound {shown(lower)} is above the {case.objective}"
    if told.time("lower_bound") != lower:
        return f"the lower bound is {shown(lower)}"
    if told.text("verdict") != (PROVED if lower == case.value else FOUND):
        return f"{case.objective} {shown(case.value)}, lower bound {shown(lower)}"
    gap = (case.value - lower) / lower if lower else Fraction(0)
    return "" if told.time("gap") == gap else f"the gap is {gap}"
