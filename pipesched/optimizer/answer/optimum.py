"""What was found, as a value: always for this placement, these costs and caps, this backward and this release rule.

proved optimal: makespan 27
    for: linear placement, p=4 v=1 m=8, split backward, costs F=1,I=1,W=1,C=0, release W, cap 4
    no schedule is shorter: ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from pipesched import render
from pipesched.analysis.idle import Idle, headline
from pipesched.diagnostics import Code, Diagnostic, PipeschedError, exit_status
from pipesched.model.numbers import doubled, exact, shown
from pipesched.model.verdict import (
    FOUND,
    INFEASIBLE,
    NOTHING,
    PROVED,
    Verdict,
    documentation,
    listed_caps,
    sizes,
)
from pipesched.optimizer import convert
from pipesched.optimizer.answer.baselines import Known, comparison, table
from pipesched.optimizer.answer.certificate import claims
from pipesched.optimizer.instance import Instance
from pipesched.optimizer.problem import Problem
from pipesched.optimizer.repeat.periodic import Periodic
from pipesched.optimizer.search.state import State
from pipesched.report import Report
from pipesched.schedule_analysis import Analysis

COUNTS = frozenset(("microbatches", "placement", "rank", "ranks", "route", "stage", "step"))
"""Entries of a certificate that are whole numbers always."""

_COLORS = {PROVED: "32", FOUND: "33", NOTHING: "33", INFEASIBLE: "31"}
_SHOWN = 8  # ranks of a list that are printed; longer ones keep both ends
_MORE_ROOM = "give each rank at least what one microbatch needs there, or place the stages otherwise"


@dataclass(frozen=True, eq=False)
class Optimum:
    """The answer. status: proved optimal, optimal on the word of an engine, best found, infeasible or nothing found.

    judged: what the checker says of the schedule, spent: its times, and checked: what every ordinary check says of it;
    None where there is no schedule. peak: by rank. least, least_by: the lower bound of the search. given: the schedule
    to improve on, which is then the first of `known`. every: (m0, K) where the schedule is given for every m = m0 + jK;
    growth: (objective at m0, for each microbatch more). Exit status 0, 3 (less is not excluded) or 1 (infeasible).
    """

    instance: Instance
    judged: Verdict | None = None
    spent: Idle | None = None
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
    checked: Report | None = None

    def __repr__(self) -> str:
        return f"<Optimum {self.verdict} for {self.terms_without_cap}>"

    @property
    def report(self) -> Report:
        """What every ordinary check says of the schedule.

        Raises:
            PipeschedError: there is none: PS701, or PS702 where nothing was found.
        """
        if self.checked is None:
            message = f"there is no schedule to report on: {self.verdict}"
            raise PipeschedError(self.diagnostics or [Diagnostic(Code.NOT_OPTIMIZED, message)])
        return self.checked

    @property
    def objective(self) -> str:
        return self.instance.objective

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
        return (Diagnostic(Code.INFEASIBLE, self.verdict, help=_MORE_ROOM),) if self.status == INFEASIBLE else ()

    @property
    def makespan(self) -> Fraction | None:
        return None if self.spent is None else self.spent.makespan

    @property
    def span(self) -> Fraction | None:
        return None if self.spent is None else self.spent.span

    @property
    def value(self) -> Fraction | None:
        """The objective."""
        return self.span if self.objective == "span" else self.makespan

    @property
    def works(self) -> tuple[Fraction, ...]:
        """By rank."""
        return () if self.spent is None else self.spent.work

    @property
    def work(self) -> Fraction | None:
        """Of the busiest rank."""
        return max(self.works, default=None)

    @property
    def bubble(self) -> Fraction | None:
        """The share of all ranks' time until the makespan in which they do nothing: idle / (p x makespan)."""
        return None if self.spent is None else self.spent.bubble

    @property
    def span_bubble(self) -> Fraction | None:
        """The same with the span in the place of the makespan."""
        return None if self.spent is None else self.spent.span_bubble

    @property
    def least_bubble(self) -> Fraction | None:
        """The bubble that belongs to the objective."""
        return self.span_bubble if self.objective == "span" else self.bubble

    @property
    def lower_bound(self) -> Fraction | None:
        return self.least if self.judged is None else self.judged.lower

    @property
    def gap(self) -> Fraction | None:
        """(objective - bound) / bound, or None where one of them is not known."""
        return None if self.judged is None else self.judged.gap

    @property
    def proved_by(self) -> str:
        return "" if self.judged is None or self.judged.word else self.judged.shown_by

    @property
    def told_by(self) -> str:
        """What the lower bound rests on where that is an engine's word."""
        return self.judged.shown_by if self.judged is not None and self.judged.word else ""

    @property
    def bound_by(self) -> str:
        """What the lower bound comes from, in a word."""
        return self.least_by if self.judged is None else self.judged.by

    @property
    def sizes(self) -> Mapping[str, int]:
        return sizes(self.instance.placement)

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
        return self.instance.text

    @property
    def terms_without_cap(self) -> str:
        """All but the cap."""
        return self.instance.text_without_cap

    @property
    def assumed(self) -> dict[str, str]:
        """The costs that count and were not given, each with what it follows from."""
        return self.instance.assumed

    @property
    def documentation(self) -> str:
        """What the printed file says of itself."""
        return "" if self.judged is None else documentation(self.judged, self.instance)

    @property
    def claims(self) -> list[str]:
        """What the printed file claims, checked by verify: the peak, and times where a claim can name the costs."""
        if self.spent is None:
            return []
        growth = None if self.every is None or self.growth is None else (self.every[0], *self.growth)
        everywhere = self.judged is not None and self.judged.everywhere
        return claims(self.instance, self.spent, max(self.peak), growth, everywhere=everywhere)

    @classmethod
    def of(
        cls, instance: Instance, state: State, known: Sequence[Known], repeated: Periodic | None, judged: Verdict | None
    ) -> Optimum:
        """The result of a search; judged: what the checker says of it."""
        problem, found = state.problem, None
        if state.best is not None:
            found = Analysis(convert.to_schedule(problem, state.best), instance.costs, instance.release)
        return cls(
            instance,
            judged,
            None if found is None else found.idle,
            () if found is None else found.memory.peak,
            problem.time(state.lower),
            _bound_by(state),
            reason=state.stopped if judged is None or judged.status == FOUND else "",
            found_by=state.source,
            every=(repeated.seam.microbatches, repeated.seam.every) if repeated and found else None,
            growth=_growth(problem, repeated) if repeated and found else None,
            known=tuple(known),
            notes=_notes(instance, state),
        )

    def __str__(self) -> str:
        return self.text()

    def text(self, *, color: bool = False) -> str:
        """The verdict, what it is for, what proves it, and the best known schedules for comparison."""
        head, rest = self.verdict[: len(self.status)], self.verdict[len(self.status) :]
        lines = [f"\x1b[1;{_COLORS.get(self.status, '33')}m{head}\x1b[0m{rest}" if color else self.verdict]
        lines += [f"    for: {self.terms}"]
        lines += [f"    {self.judged.because}"] if self.judged else []
        if self.status == FOUND and self.reason:
            lines.append(f"    stopped: {self.reason}")
        lines += [f"    note: {note}" for note in self.notes]
        lines += [f"    help: {found.help} (pipesched explain {found.code})" for found in self.diagnostics]
        if (spent := self.spent) is not None:
            span_first = self.objective == "span"
            lines += [f"    {headline(spent.makespan, spent.span, spent.work, span_first=span_first)}"]
            lines += [f"    peak {shown(max(self.peak))}      [{_listed(self.peak)}]"]
            lines += comparison(self.given, spent.span if span_first else spent.makespan, self.objective)
            lines += ["", *table(self.known, self.instance, spent, max(self.peak))]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The published form, ``emit/v1/optimum.schema.json``; times and peaks are whole numbers or strings such as
        ``11/2``.
        """
        asked = self.instance
        return {
            "ok": self.exit_status == 0,
            "status": self.status,
            "proved": self.proved,
            "verdict": self.verdict,
            "for": self.terms,
            "parameters": dict(self.sizes),
            "placement": asked.placement.rank_of.tolist(),
            "objective": self.objective,
            **exact(makespan=self.makespan, span=self.span, bubble=self.bubble, span_bubble=self.span_bubble),
            **exact(work=self.work, lower_bound=self.lower_bound, gap=self.gap),
            "proved_by": self.proved_by or None,
            "told_by": self.told_by or None,
            "found_by": self.found_by or None,
            "reason": self.reason or None,
            "every": None if self.judged is None else self.judged.every_json,
            **exact(mem_cap=asked.caps, peak=self.peak),
            "release": asked.release.name,
            **exact(costs=asked.costs.to_json()),
            "assumed_costs": self.assumed,
            "given": None if self.given is None else self.given.name,
            "known": [baseline.to_json() for baseline in self.known],
            "notes": list(self.notes),
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.diagnostics],
            "seed": self.seed,
            "source": self.source or None,
            "certificate": doubled(self.certificate, COUNTS) if self.certificate else None,
        }


def _growth(problem: Problem, repeated: Periodic) -> tuple[Fraction, Fraction]:
    seam = repeated.seam
    return problem.time(seam.value), problem.time(seam.period) / seam.every


def _bound_by(state: State) -> str:
    """What the bound of a search comes from, in a word."""
    refuted, bound = state.refuted, state.bound
    if refuted is not None and refuted.bound + 1 > bound.value:
        return "ranks taken one by one" if refuted.engine == "lattice" else refuted.engine
    return "the longest path" if bound.kind == "path" else f"rank {bound.rank}"


def _notes(instance: Instance, state: State) -> tuple[str, ...]:
    notes = [*state.notes, *instance.costs.doubts(instance.kinds)]
    if instance.rounded is not None and instance.rounded != instance.caps:
        notes.insert(0, f"the cap binds at {listed_caps(instance.rounded)}: activations come in no smaller pieces")
    return tuple(notes)


def _listed(values: Sequence[Fraction]) -> str:
    texts = [shown(value) for value in values]
    if len(texts) > _SHOWN:
        texts = [*texts[: _SHOWN // 2], "…", *texts[-_SHOWN // 2 :]]
    return "  ".join(texts)
