"""Judges a schedule and its certificate: the verdict rests only on facts that are derived here.

    schedule      complete, every input before its use, within the caps, with the objective that the certificate states
    bound         lower bound by a formula                                                          `work`, `meetings`
    refuted       unreachable objectives: by a proof from clauses that are derived here            `lrat`, `clauses`
                  or by dynamic programming over each rank's counts, run here                       `ranks`
                  otherwise on the word of an engine about these terms; the verdict names it
    every         for every m: a part that repeats, and a bound that grows with it                  `every`
    decision      alternatives in addition to the order, none of which is better                     `decisions`

    proved optimal                                  objective = derived lower bound
    optimal on the word of CaDiCaL, not checked     objective = the objective that the engine refuted + one tick
    best found                                      a better schedule is not excluded

The optimizer is not consulted. A bound is valid for every schedule with the same placement, costs, caps, release rule
and kind of backward. Only the times of a bound, the refuted objective and the repeating part are read from a
certificate; all other entries are derived from these, and an entry that differs is reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import TypeAlias

from pipesched.diagnostics import Code, Diagnostic, PipeschedError, budgeted
from pipesched.model.schedule import Schedule
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.decisions.judged import judged_over_all
from pipesched.optimizer.proof import own_order
from pipesched.optimizer.proof.case import Case, FaultError, require, require_like, words
from pipesched.optimizer.proof.entries import Entries, Unreadable
from pipesched.optimizer.proof.every import Repeated
from pipesched.optimizer.proof.judgement import DERIVED, Judgement, expected, same, wrong
from pipesched.optimizer.proof.meetings import meetings
from pipesched.optimizer.proof.problem import Problem, floored
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.proof.work import Work, everything, explained, work
from pipesched.optimizer.slots import judged as pairs
from pipesched.optimizer.verdict import Terms, Verdict, engine_name

Copies: TypeAlias = Callable[[int, int], Sequence[Schedule]]
"""(m0, K) -> schedules of m0, m0 + K and m0 + 2K; every further K microbatches add the same operations to a rank."""

_OF_EVERY_M = ("microbatches", "step", "value", "growth", "seam", "starts", "bound", "proof")


def judge(
    schedule: Schedule,
    terms: Terms,
    certificate: Mapping[str, object],
    copies: Copies | None = None,
) -> Judgement:
    """Judge a schedule and its certificate. copies: function that loads the schedule at larger m, needed if the
    certificate is for every m.

    Findings: PS710: the certificate is not valid. PS711: the verdict of the certificate does not follow. PS715: it is
    not valid for every m. Also the faults of the schedule itself.
    """
    try:
        if certificate.get("backward") == "pairs" or "recompute" in certificate:
            return pairs.judged(schedule, terms, certificate)
        if certificate.get("backward") == "own":
            return own_order.judged(schedule, terms, certificate)
        case = Case(schedule, terms)
        if case.wrong:
            return Judgement(tuple(case.wrong))
        told = Entries(certificate, case.scale)
        require("" if case.one_at_a_time else "it requires F, I and W, or F and B, and no overlap")
        require(case.terms.not_covered and f"no bound covers {case.terms.not_covered}")
        verdict = _refuted(told, case, _formula(case, _bound(told, case.problem)))
        if verdict.lower > verdict.value:
            lower, value = map(case.unit.text, (verdict.lower, verdict.value))
            require(f"no schedule is below {lower}, but the {verdict.objective} is {value}")
        if "every" in told:
            verdict = _for_every(told.part("every"), case, verdict, copies)
        if "decision" in told:
            verdict = judged_over_all(told.part("decision"), case, verdict)
        return Judgement(tuple(_different(told, case, verdict)), verdict, case.spent)
    except FaultError as found:
        return Judgement((found.finding,))
    except PipeschedError as error:
        return Judgement(error.diagnostics)
    except Unreadable as error:
        return Judgement((FaultError(OptimizerCode.CERTIFICATE, f"the certificate does not hold: {error}").finding,))


def judge_at(schedule: Schedule, own: Schedule, terms: Terms, verdict: Verdict) -> Judgement:
    """Judge the schedule at another m, given a verdict for every m. own: the answer's schedule at its own m.

    Findings: PS225: the verdict does not cover this m. PS715: the verdict is wrong at this m.
    """
    case, microbatches, said = Case(schedule, terms), schedule.placement.microbatches, terms.costs.unit.text
    value = verdict.at(microbatches)
    if value is None:
        help = "leave out --m, or optimize for this m"
        return Judgement((Diagnostic(Code.USAGE, f"the answer does not cover m={microbatches}", help=help),))
    try:
        require_like(Case(own, terms), case)
    except FaultError as found:
        return Judgement((found.finding,))
    if case.value > value:
        wrong = f"at m={microbatches} the {terms.objective} is stated as {said(value)}, but is {said(case.value)}"
        return Judgement((FaultError(OptimizerCode.EVERY, wrong).finding,))
    if not verdict.everywhere:
        return Judgement((), replace(_formula(case, None), every=verdict.every, grown=verdict.grown))
    why = f"the bound grows by {said(verdict.grown[1])} with each microbatch, which does not give {said(value)} here"
    return Judgement((), replace(verdict, value=case.value, lower=value, shown_by=why, word=""))


def _bound(told: Entries, problem: Problem) -> Work | None:
    """Return the certificate's bound by the work of a rank between a head and a tail; None if it has no such bound."""
    if "bound" not in told:
        return None
    given, ranks = told.part("bound").only("rank", "frame", "head", "tail"), range(len(problem.cap))
    rank, frame = given.whole("rank"), given.whole("frame") if problem.span else None
    if rank not in ranks or (frame is not None and frame not in ranks):
        raise Unreadable("its bound refers to a rank that does not exist")
    return work(problem, rank, frame, given.ticks("head"), given.ticks("tail"))


def _formula(case: Case, given: Work | None) -> Verdict:
    """Return the verdict from the best bound by a formula, which a person can verify."""
    found = [given] if given is not None else []
    found += [everything(case.problem, rank) for rank in sorted(set(case.problem.rank.values()))]
    best, (lower, why) = max(found, key=lambda bound: bound.value), meetings(case.problem)
    by = "meetings of microbatches"
    if best.value >= lower:
        lower, why = best.value, explained(best, case.said)
        by = "the longest path" if best.count == 1 else f"rank {best.rank}"
    return Verdict(case.terms.objective, case.value, Fraction(lower, case.scale), why, by, unit=case.unit)


def _refuted(told: Entries, case: Case, formula: Verdict) -> Verdict:
    """Return the verdict from the certificate's refutation: a proof, dynamic programming, or just an engine's word."""
    if "refuted" not in told:
        require("" if "refuted" in told.entries else "it does not name the refuted bound")
        return formula
    given, tick = told.part("refuted").only("value", "engine", "ranks", "terms", "proof", "grid"), case.problem.tick
    bound, engine = given.ticks("value"), engine_name(given.text("engine"))
    _require_about(given, case)
    made = replace(formula, lower=Fraction((bound // tick + 1) * tick, case.scale))
    if made.lower <= formula.lower:
        return formula
    if shown_by := _shown_by(given, case, bound):
        return replace(made, shown_by=shown_by, by="a proof" if "proof" in given else "single ranks")
    alone = f", on rank {given.ranks()[0]} alone" if "ranks" in given else ""
    why = f"{engine} refuted {case.below(bound, '')}{alone}, unchecked"
    return replace(made, shown_by=why, by=engine, word=engine)


def _shown_by(given: Entries, case: Case, bound: int) -> str:
    """Return the reason why no objective is at most `bound` ticks; empty if there is only an engine's answer."""
    within = "in " * bool(case.unit) + case.below(bound, "within ")
    asked, grid = case.problem, given.ticks("grid") if "grid" in given else 1
    if grid != 1:
        within += f", even with costs rounded down to multiples of {case.said(grid)},"
        try:
            asked, bound = floored(asked, grid), bound // grid
        except ValueError:
            raise Unreadable("costs cannot be rounded down to multiples of its grid") from None
    if "proof" in given:
        from pipesched.optimizer.proof.lrat import unproved

        text = given.proof()
        with budgeted("its proof"):
            require(unproved(text, asked, bound))
        steps = len(text.splitlines())
        return f"{within} the rules of a schedule contradict each other: {steps:,} steps, checked one by one"
    rank = too_busy(asked, bound)
    return "" if rank is None else f"{within} rank {rank} has no time for its work, in any order"


def _require_about(given: Entries, case: Case) -> None:
    """Raise FaultError or Unreadable unless a refutation is about the terms of this case."""
    terms = case.terms.to_json()
    other = [name for name, x in terms.items() if not same(given.part("terms").entries.get(name), x)]
    require(f"the refutation has other terms: {other[0]}" if other else "")
    given.part("terms").only(*terms)
    ranks = given.entries.get("ranks")
    if ranks is not None and not any(same(ranks, [rank]) for rank in range(case.schedule.ranks)):
        raise Unreadable("the refutation refers to a rank that does not exist")


def _for_every(given: Entries, case: Case, here: Verdict, copies: Copies | None) -> Verdict:
    """Extend the verdict at this m to every m of the certificate."""
    given.only(*_OF_EVERY_M)
    first, step, own = given.whole("microbatches"), given.whole("step"), case.schedule.placement.microbatches
    part = Repeated(first, step, given.ticks("value"), given.ticks("seam"), given.period(), given.table("starts"))
    require("it holds for one m, since stages are frozen" if case.schedule.placement.frozen else "")
    if copies is None:
        raise FaultError(OptimizerCode.EVERY, "it holds for every m, but has only one schedule")
    if min(first, step, part.period) < 1 or own < first or (own - first) % step:
        raise Unreadable(f"it holds for every m = {first} + {step}j, but its schedule has m = {own}")
    sizes = copies(first, step)
    least = Case(sizes[0], case.terms)
    require_like(case, least)
    if wrong := part.fault(least.problem, [words(one) for one in sizes]):
        raise FaultError(OptimizerCode.EVERY, f"it does not hold for every m: {wrong}")
    grown = (given.time("value"), given.time("growth"))
    made, bound = replace(here, every=(first, step), grown=grown), _bound(given, least.problem)
    if bound is not None and bound.value == part.value and part.grows(least.problem, bound):
        why = f"the bound is {case.unit.text(grown[0])}"
    elif part.grows(least.problem, None):
        why = _shown_by(given, least, part.value - 1)
    else:
        require("its proof covers one m, not every m" if "proof" in given else "")
        why = ""
    if not why:
        return made
    lower, made = made.at(own), replace(made, everywhere=True)
    if lower is None or lower <= here.lower:
        return made
    why = f"at m={first} {why}, and each {step} more microbatches begin {case.unit.text(grown[1] * step)} later"
    return replace(made, lower=lower, shown_by=why, by="a bound that grows", word="")


def _different(told: Entries, case: Case, verdict: Verdict) -> Iterator[Diagnostic]:
    """Yield a finding on the first entry that does not follow from the schedule and the verdict."""
    right = expected(case, verdict, "fused" if case.terms.fused else "split")
    try:
        told.only(*right, "bound", "refuted", "every", "decision")
    except Unreadable as error:
        yield FaultError(OptimizerCode.CERTIFICATE, f"the certificate does not hold: {error}").finding
        return
    for name, value in islice(wrong(told, right), 1):
        what = f"{name} is {json.dumps(value)}"
        if name in DERIVED:
            yield FaultError(OptimizerCode.VERDICT, f"the verdict does not follow: {verdict.line}; {what}").finding
        else:
            yield FaultError(OptimizerCode.CERTIFICATE, f"the certificate does not hold: {what}").finding
