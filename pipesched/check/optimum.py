"""An optimum is what can be derived of it anew, and no more.

    schedule      complete, every input before its use, within the caps, and its objective is the one that is said
    bound         holds, by facts derived from placement, costs, caps and release rule      `optimum_bound`, `_meetings`
    refuted       what nothing reaches: by a proof from clauses that are written here       `optimum_lrat`, `_clauses`
                  or by a programme over each rank's counts, run here                       `optimum_ranks`
                  else an engine's word, about these terms, that a quick try cannot belie   `optimum_rival`
    every         for every m: a part that repeats, and a bound that grows with it          `optimum_every`

    proved optimal                                  objective = what is derived
    optimal on the word of CaDiCaL, not checked     objective = what the engine refuted, and one tick
    best found                                      less is not excluded

The optimizer is not asked. All holds for every schedule with this placement, these costs, caps and release rule and
this kind of backward.

`pipesched optimize --json` prints a verdict, its terms, times, peaks and bounds. Each of them is derived here too
(`check_answer`), and one that differs is named. What cannot be derived is judged by nobody, and listed as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pipesched.analysis.holdings import memory
from pipesched.analysis.idle import Idle
from pipesched.check.optimum_bound import Bound, everything, explained, fault, named
from pipesched.check.optimum_case import (
    Case,
    FaultError,
    finding,
    order_text,
    require,
    require_like,
    scheduled,
)
from pipesched.check.optimum_certificate import Entries, Unreadable, same
from pipesched.check.optimum_every import Copies, Every, every_fault, uncopied
from pipesched.check.optimum_lrat import Beside, proof, text_of, unproved
from pipesched.check.optimum_meetings import meetings
from pipesched.check.optimum_paths import Facts
from pipesched.check.optimum_ranks import STEPS, refutes
from pipesched.check.optimum_rival import rival
from pipesched.diagnostics import Code, Diagnostic, PipeschedError
from pipesched.model import verdict as words
from pipesched.model.numbers import exact, shown
from pipesched.model.schedule import Schedule
from pipesched.model.verdict import FORMER, FOUND, Terms, Verdict, engine_name

ENGINES = ("cadical", "glucose", "z3", "cpsat", "ranks")
NOT_JUDGED = ("found_by", "given", "known", "notes", "reason", "seed")
"""What the search did, and schedules that are not there to be looked at."""

_RANKS = "ranks taken one by one"
_TIMES = ("makespan", "span", "bubble", "span_bubble")
_CHECKED_ELSEWHERE = ("source", "certificate")
_SHOWN = 120  # characters of a value


@dataclass(frozen=True)
class Judgement:
    """What is wrong, and the verdict that follows where nothing is. spent: the times of the schedule. worded: the same
    on the word of who refuted it, which is all that may be said by who had fewer steps to look; None where it is that.
    """

    findings: tuple[Diagnostic, ...]
    verdict: Verdict | None = None
    spent: Idle | None = None
    worded: Verdict | None = None


def judge(
    schedule: Schedule,
    terms: Terms,
    certificate: Mapping[str, object],
    copies: Copies | None = None,
    beside: Beside | None = None,
) -> Judgement:
    """PS710, what the certificate says does not hold; PS711, its verdict does not follow; PS713, there is a better
    schedule; PS715, it is not for every m; and all that is wrong with the schedule itself. copies: needed for every
    m;
    beside: for a proof in a file of its own.
    """
    try:
        case = _Certified(schedule, terms, certificate, beside)
        if case.wrong:
            return Judgement(tuple(case.wrong))
        verdict = case.verdict(copies)
        worded = case.worded(verdict)
        return Judgement(tuple(_different(verdict, worded, case.entries)), verdict, case.spent, worded)
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
        require_like(Case(own, terms), case)
    except FaultError as found:
        return Judgement((found.finding,))
    if case.value > value:
        wrong = f"at m={microbatches} the {terms.objective} is said to be {shown(value)}, and is {shown(case.value)}"
        return Judgement((finding(Code.EVERY, wrong),))
    if verdict.everywhere:
        why = f"the bound grows by {shown(verdict.grown[1])} with each microbatch, and is {shown(value)} here"
        return Judgement((), replace(verdict, value=case.value, lower=value, shown_by=why, word=""))
    found_here = _best(case)
    return Judgement((), replace(found_here, every=verdict.every, grown=verdict.grown))


def _best(case: Case) -> Verdict:
    """What formulas say, and what ranks one by one say above that."""
    facts, tick = case.facts, case.tick
    whole = [everything(facts, rank, span=case.span) for rank in sorted(set(facts.rank.values()))]
    best = _formula(case, max(whole, key=lambda bound: bound.value))
    low, high = int(best.lower * case.ticks.scale), int(case.value * case.ticks.scale)
    refuted, at = low - tick, high - tick
    while refuted < at:  # nothing is at most `refuted`; of `high` it is not known
        if refutes(facts, at, span=case.span, steps=STEPS // 10):
            refuted = at
        else:
            high = at
        at = (refuted + high) // (2 * tick) * tick
    if refuted < low:
        return best
    lower, within = (Fraction(x, case.ticks.scale) for x in (refuted + tick, refuted))
    return replace(best, lower=lower, shown_by=_no_order(within), by=_RANKS)


def _formula(case: Case, bound: Bound) -> Verdict:
    """The better of two formulas."""
    scale, better = case.ticks.scale, None if case.span else meetings(case.facts)
    if better is not None and better.value > bound.value:
        why, by, lower = better.why, "meetings of microbatches", better.value
    else:
        why, by, lower = explained(bound, scale), named(bound), bound.value
    return Verdict(case.terms.objective, case.value, Fraction(lower, scale), why, by)


def _no_order(within: Fraction) -> str:
    return f"within {shown(within)} some rank has no time for its work, taking ranks one by one"


def _different(verdict: Verdict, worded: Verdict | None, entries: Entries) -> Iterator[Diagnostic]:
    """PS711, the certificate says another verdict."""
    said = (verdict.status, verdict.status if worded is None else worded.status)
    if "verdict" in entries.entries and entries.text("verdict") not in said:
        wrong = f"{verdict.objective} {shown(verdict.value)}, lower bound {shown(verdict.lower)}: {verdict.status}"
    elif "lower_bound" in entries.entries and entries.time("lower_bound") != verdict.lower:
        wrong = f"the lower bound is {shown(verdict.lower)}"
    elif "gap" in entries.entries and entries.time("gap") != verdict.gap:
        wrong = f"the gap is {verdict.gap}"
    else:
        return
    yield finding(Code.VERDICT, f"the verdict does not follow: {wrong}")


class _Certified(Case):
    """A schedule, and what its certificate says of it."""

    def __init__(
        self, schedule: Schedule, terms: Terms, certificate: Mapping[str, object], beside: Beside | None
    ) -> None:
        super().__init__(schedule, terms)
        self.beside = beside
        self.entries = Entries(certificate, self.ticks.scale)

    def verdict(self, copies: Copies | None) -> Verdict:
        """What follows."""
        names = ("objective", "backward", "schedule", "verdict", "lower_bound", "gap", "bound", "refuted", "every")
        self.entries.only(*names)
        require(self._statement())
        made = self._refuted(self._bound())
        if "every" not in self.entries:
            return made
        return self._for_every(made, copies)

    def _statement(self) -> str:
        """What the schedule is, its objective, and what that comes to."""
        entries = self.entries
        if entries.text("objective") != self.terms.objective:
            return f"it is about another objective than the {self.terms.objective}"
        if entries.text("backward") != ("fused" if self.terms.fused else "split"):
            return "it is about the other kind of backward"
        if not self.one_at_a_time:
            return "it is about F, I and W, or F and B, one at a time"
        if entries.time("schedule") != self.value:
            return f"the {self.terms.objective} is {shown(self.value)}"
        return "" if "refuted" in entries.entries else "it does not say what was refuted"

    def _bound(self) -> Verdict:
        """What formulas say."""
        bound = self.entries.bound("bound")
        require(fault(self.facts, bound, span=self.span))
        made = _formula(self, bound)
        if made.lower > self.value:
            over = f"the lower bound {shown(made.lower)} is above the {made.objective}"
            raise FaultError(Code.VERDICT, f"the verdict does not follow: {over}")
        return made

    def _refuted(self, formula: Verdict) -> Verdict:
        """What is out of reach by a programme over counts, or by an engine's word."""
        if "refuted" not in self.entries:
            return formula
        refuted = self.entries.part("refuted").only("value", "engine", "ranks", "terms", "proof")
        bound, scale = refuted.ticks("value"), self.ticks.scale
        require(self._about(refuted))
        lower = Fraction((bound // self.tick + 1) * self.tick, scale)
        if lower <= formula.lower:
            return formula
        if "proof" in refuted:
            why = self._followed(refuted.part("proof"), self.facts, bound)
            return replace(formula, lower=lower, shown_by=why, by="a proof")
        if refutes(self.facts, bound, span=self.span, first=refuted.wholes("ranks") if "ranks" in refuted else []):
            return replace(formula, lower=lower, shown_by=_no_order(Fraction(bound, scale)), by=_RANKS)
        self._belied(refuted.text("engine"), bound)
        return self._word(replace(formula, lower=lower), refuted)

    def _word(self, verdict: Verdict, refuted: Entries) -> Verdict:
        """The same lower bound, on the word of who refuted what is below it."""
        engine, alone = refuted.text("engine"), ""
        if "ranks" in refuted:
            alone = f", on rank {refuted.wholes('ranks')[0]} alone"
        why = f"{engine_name(engine)} refuted {shown(refuted.time('value'))}{alone}, which nobody checked"
        return replace(verdict, shown_by=why, by=engine_name(engine), word=engine)

    def worded(self, verdict: Verdict) -> Verdict | None:
        """The verdict on the word of who refuted what is below it, where it is derived by ranks."""
        return self._word(verdict, self.entries.part("refuted")) if verdict.by == _RANKS else None

    def _followed(self, given: Entries, facts: Facts, bound: int) -> str:
        """What is shown by a proof that is followed here."""
        steps = proof(text_of(given, self.beside))
        require(unproved(steps, facts, bound, span=self.span))
        within = shown(Fraction(bound, self.ticks.scale))
        return (
            f"within {within} the rules of a schedule contradict each other: {len(steps):,} steps, followed one by one"
        )

    def _about(self, refuted: Entries) -> str:
        """That a refutation is a known engine's, about these terms, and no contradiction to the schedule."""
        if refuted.text("engine") not in (*ENGINES, *FORMER):
            return f"no engine is called {refuted.text('engine')!r}"
        own, ranks = self.terms.to_json(), range(self.schedule.ranks)
        if other := refuted.part("terms").only(*own).different(own):
            return f"what was refuted has other terms: {other[0]}"
        if "ranks" in refuted and not (refuted.wholes("ranks") and set(refuted.wholes("ranks")) <= set(ranks)):
            return "it is about ranks that are not there"
        if refuted.time("value") >= self.value:
            return f"{shown(refuted.time('value'))} is said to be refuted, and the schedule takes {shown(self.value)}"
        return ""

    def _belied(self, engine: str, bound: int) -> None:
        """A schedule where an engine is said to have found that there is none."""
        starts = rival(self.facts, self.starts, bound, span=self.span)
        if starts is None:
            return
        better = scheduled(self.schedule, starts)
        made = Case(better, self.terms)
        if not made.wrong and made.value * self.ticks.scale <= bound:
            raise FaultError(
                Code.BEATEN,
                f"{engine_name(engine)} is said to have refuted {shown(Fraction(bound, self.ticks.scale))}, "
                f"and here is a schedule with {self.terms.objective} {shown(made.value)}",
                *(f"rank {rank}: {order_text(better, rank)}" for rank in range(better.ranks)),
            )

    def _for_every(self, here: Verdict, copies: Copies | None) -> Verdict:
        """The same, and what is known of every other m."""
        every, own = Every.read(self.entries.part("every")), self.schedule.placement.microbatches
        if copies is None:
            raise FaultError(Code.EVERY, "it is said to be for every m, and there is one schedule")
        if not every.reaches(own):
            raise Unreadable(f"it is for every m = {every.microbatches} + {every.step}j, and this one has m = {own}")
        sizes = copies(every.microbatches, every.step)
        first = Case(sizes[0], self.terms)
        require_like(self, first)
        wrong = every_fault(every, first.schedule, first.analysis.dependencies, first.ticks, span=self.span)
        if wrong := wrong or uncopied(every, sizes):
            raise FaultError(Code.EVERY, f"it is not for every m: {wrong}")
        made = replace(here, every=(every.microbatches, every.step), grown=(every.value, every.growth))
        if every.proof is not None:
            require("" if every.apart(first.facts, span=self.span) else "its proof is of one m, and not of every m")
            why = self._followed(every.proof, first.facts, every.objective - 1)
        elif every.grows(first.facts, span=self.span):
            why = f"the bound is {shown(every.value)}"
        else:
            return made
        lower, made = made.at(own), replace(made, everywhere=True)
        if lower is None or lower <= here.lower:
            return made
        later = shown(every.growth * every.step)
        why = f"at m={every.microbatches} {why}, and each {every.step} more begin {later} later"
        return replace(made, lower=lower, shown_by=why, by="a bound that grows", word="")


def check_answer(
    schedule: Schedule, terms: Terms, judged: Judgement, answer: Mapping[str, object], documentation: str | None
) -> Iterator[Diagnostic]:
    """PS714, an entry of an answer does not follow. documentation: of the schedule's file."""
    assert judged.verdict is not None and judged.spent is not None
    verdict = judged.verdict if judged.worded is None or answer.get("told_by") is None else judged.worded
    peak = memory(schedule, terms.release, terms.costs.sizes(schedule.stages)).peak
    right = derived(terms, verdict, judged.spent, peak)
    for name, value in answer.items():
        if name in right and not same(value, right[name]):
            yield _finding(f"`{name}` is {_text(right[name])}, not {_text(value)}")
        elif name not in (*right, *NOT_JUDGED, *_CHECKED_ELSEWHERE):
            yield _finding(f"an answer has no entry {name[:40]!r}")
    own = words.documentation(verdict, terms)
    if documentation is not None and documentation.split() != own.replace('"', "'").split():
        yield _finding(f"the schedule's documentation is not what follows: {own}")


def derived(terms: Terms, verdict: Verdict | None, spent: Idle | None, peak: Sequence[Fraction]) -> dict[str, object]:
    """The entries of an answer that follow, as JSON. spent, peak: of the schedule; without one there is no verdict."""
    times = {name: None if spent is None else getattr(spent, name) for name in _TIMES}
    return {
        "ok": verdict is not None and verdict.status != FOUND,
        **({} if verdict is None else verdict.to_json()),
        "for": terms.text,
        "parameters": words.sizes(terms.placement),
        "placement": terms.placement.rank_of.tolist(),
        "objective": terms.objective,
        **exact(**times, work=None if spent is None else max(spent.work), gap=None if verdict is None else verdict.gap),
        "every": None if verdict is None else verdict.every_json,
        **exact(mem_cap=terms.caps, peak=peak),
        "release": terms.release.name,
        **exact(costs=terms.costs.to_json()),
        "assumed_costs": terms.assumed,
        "diagnostics": [],
    }


def _text(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _finding(message: str) -> Diagnostic:
    return Diagnostic(Code.ANSWER, f"the answer does not follow: {message}", help="optimize again; this proves nothing")
