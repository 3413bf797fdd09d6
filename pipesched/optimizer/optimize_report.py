"""The answer of `optimize` for one placement, with its costs, caps, kind of backward and release rule.

proved optimal: makespan 27
    for: linear placement, p=4 v=1 m=8, split backward, costs F=1,I=1,W=1,C=0, release W, cap 4
    no schedule is shorter: ...

For a range of caps there is one line per cap:

cap   makespan   bubble   peak   verdict
  2         45   46.7 %      2   proved optimal
  3         31   22.6 %      3   proved optimal
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pipesched import render
from pipesched.analysis.idle import Idle, headline
from pipesched.diagnostics import Diagnostic, PipeschedError, exit_status
from pipesched.model.numbers import digits, exact, percent, shown
from pipesched.model.release import Release
from pipesched.optimizer.baselines import Known, comparison, table
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.proof.answer import derived
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.search.state import State
from pipesched.optimizer.twins import doubled
from pipesched.optimizer.verdict import FOUND, INFEASIBLE, NOTHING, PROVED, Verdict, listed_caps
from pipesched.report.parts import activations
from pipesched.report.report import Report
from pipesched.schedule_analysis import Analysis
from pipesched.views import tables

if TYPE_CHECKING:
    from pipesched.optimizer.optimize_request import Request
    from pipesched.optimizer.solve.meter import Meter
    from pipesched.planning.footprint_report import InBytes

COUNTS = frozenset(
    ("layers", "microbatches", "placement", "proofs", "rank", "ranks", "route", "stage", "step", "taken")
)
"""The certificate entries that are always integers."""

_COLORS = {PROVED: "32", FOUND: "33", NOTHING: "33", INFEASIBLE: "31"}
_SHOWN = 8  # most ranks of a list that are printed; longer lists are cut in the middle
_MORE_ROOM = "give each rank at least the memory of one microbatch, or choose another placement"


class Loss(Protocol):
    """The loss of a rank, and the answer before the loss (`decisions.lost`). peak: the peak of each remaining rank."""

    @property
    def peak(self) -> tuple[Fraction, ...]: ...

    def lines(self, makespan: Fraction | None) -> list[str]: ...

    def to_json(self, makespan: Fraction | None) -> dict[str, object]: ...


@dataclass(frozen=True, eq=False)
class Optimum:
    """The answer. status: `proved optimal`, `best found`, `infeasible` or `nothing found`.

    judged: the checker's verdict on the schedule; analysis: the times and memory; checked: the report of all ordinary
    checks; None if there is no schedule. least, least_by: the lower bound of the search, and the source of the bound.
    given: the schedule to improve on; it is the first of `known`. lost: the loss of a rank, if requested. Exit status:
    0, 3 (a better schedule is not excluded) or 1 (infeasible).
    """

    instance: Instance
    judged: Verdict | None = None
    analysis: Analysis | None = None
    least: Fraction | None = None
    least_by: str = ""
    impossible: bool = False
    reason: str = ""
    found_by: str = ""
    seed: int = 0
    known: Sequence[Known] = ()
    given: Known | None = None
    notes: tuple[str, ...] = ()
    source: str = ""
    certificate: Mapping[str, object] = field(default_factory=dict)
    checked: Report | None = None
    lost: Loss | None = None

    def __repr__(self) -> str:
        return f"<Optimum {self.verdict} for {self.instance.text_without_cap}>"

    @property
    def report(self) -> Report:
        """The report of all ordinary checks on the schedule.

        Raises:
            PipeschedError: there is no schedule: PS701 if the caps allow none, PS702 if none was found.
        """
        if self.checked is None:
            message = f"the answer has no schedule to report on: {self.verdict}"
            raise PipeschedError(self.diagnostics or [Diagnostic(OptimizerCode.NOT_OPTIMIZED, message)])
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
        """True if the checker has derived that no schedule is better; an engine's word is not enough."""
        return self.judged is not None and self.judged.proved

    @property
    def exit_status(self) -> int:
        return 3 if self.status in (FOUND, NOTHING) else exit_status(self.diagnostics)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The finding PS701 if no schedule is within the caps; otherwise nothing."""
        return (
            (Diagnostic(OptimizerCode.INFEASIBLE, self.verdict, help=_MORE_ROOM),) if self.status == INFEASIBLE else ()
        )

    @property
    def spent(self) -> Idle | None:
        """The times of the schedule."""
        return None if self.analysis is None else self.analysis.idle

    @property
    def peak(self) -> tuple[Fraction, ...]:
        """The peak memory of each rank."""
        return () if self.analysis is None else self.analysis.memory.peak

    @property
    def makespan(self) -> Fraction | None:
        return None if self.spent is None else self.spent.makespan

    @property
    def span(self) -> Fraction | None:
        return None if self.spent is None else self.spent.span

    @property
    def value(self) -> Fraction | None:
        """The value of the objective, makespan or span."""
        return self.span if self.objective == "span" else self.makespan

    @property
    def work(self) -> Fraction | None:
        """The compute time of the busiest rank."""
        return None if self.spent is None else max(self.spent.work)

    @property
    def bubble(self) -> Fraction | None:
        """The idle share of all ranks' time until the makespan: idle / (p x makespan)."""
        return None if self.spent is None else self.spent.bubble

    @property
    def span_bubble(self) -> Fraction | None:
        """The idle share of all ranks' time, with the span instead of the makespan."""
        return None if self.spent is None else self.spent.span_bubble

    @property
    def least_bubble(self) -> Fraction | None:
        """The bubble that belongs to the objective: `span_bubble` for the span, otherwise `bubble`."""
        return self.span_bubble if self.objective == "span" else self.bubble

    @property
    def lower_bound(self) -> Fraction | None:
        return self.least if self.judged is None else self.judged.lower

    @property
    def gap(self) -> Fraction | None:
        """The gap (objective - bound) / bound, or None if either is unknown."""
        return None if self.judged is None else self.judged.gap

    @property
    def proved_by(self) -> str:
        return "" if self.judged is None or self.judged.word else self.judged.shown_by

    @property
    def told_by(self) -> str:
        """The explanation of a lower bound that rests on an engine's word; empty for other bounds."""
        return self.judged.shown_by if self.judged is not None and self.judged.word else ""

    @property
    def bound_by(self) -> str:
        """The source of the lower bound, in a few words."""
        return self.least_by if self.judged is None else self.judged.by

    @property
    def every(self) -> tuple[int, int] | None:
        """The pair (m0, K) if the schedule is for every m = m0 + jK; else None."""
        return None if self.judged is None else self.judged.every

    @property
    def verdict(self) -> str:
        """The status and the figures of the answer, in one line."""
        if self.judged is not None:
            return self.judged.line
        if self.status == INFEASIBLE:
            return f"infeasible: {self.reason}"
        least = self.instance.costs.unit.text(self.lower_bound or Fraction(0))
        return f"nothing found: {self.reason}; bound {least} by {self.bound_by}"

    @property
    def terms(self) -> str:
        """The terms for which the verdict holds: placement, sizes, costs, caps and rules, in one line."""
        return self.instance.text

    @property
    def claims(self) -> list[str]:
        """The claims of the printed file, which `verify` checks."""
        return [] if self.analysis is None or self.judged is None else claims(self.analysis, self.instance, self.judged)

    def __str__(self) -> str:
        return self.text()

    @property
    def _used(self) -> InBytes | None:
        """The bytes on every rank, if the caps are in bytes."""
        if self.checked is None or self.instance.asked is None:
            return None
        from pipesched.planning.footprint_report import InBytes

        return self.checked.parts.of(InBytes)

    @property
    def rests_on(self) -> list[str]:
        """The assumptions about a transformer and its device, in words."""
        costs, used = self.instance.costs, self._used
        return [costs.note] * bool(costs.note) + list(used.assumed if used else ())

    def text(self, *, color: bool = False, verbose: bool = False) -> str:
        """Return the answer as text: the verdict, its terms, its proof and the best known schedules. verbose: include
        all assumptions.
        """
        head, rest = self.verdict[: len(self.status)], self.verdict[len(self.status) :]
        lines = [f"\x1b[1;{_COLORS.get(self.status, '33')}m{head}\x1b[0m{rest}" if color else self.verdict]
        lines += [f"    for: {self.terms}"]
        lines += [f"    {self.judged.because}"] if self.judged else []
        lines += [f"    {line}" for line in self.lost.lines(self.makespan)] if self.lost else []
        if self.status == FOUND and self.reason:
            lines.append(f"    stopped: {self.reason}")
        lines += [f"    note: {note}" for note in self.notes]
        lines += [f"    help: {found.help} (pipesched explain {found.code})" for found in self.diagnostics]
        lines += [] if self.spent is None else self._figures(self.spent)
        if assumed := render.assumptions(self.rests_on, verbose=verbose):
            lines += ["", *(f"    {line}" for line in assumed)]
        return "\n".join(lines)

    def _figures(self, spent: Idle) -> list[str]:
        """Return the lines with the times, the peak, and the comparison with the best known schedules."""
        unit, span_first = self.instance.costs.unit, self.objective == "span"
        used = self._used
        most = activations(max(self.peak)) if unit else shown(max(self.peak))
        share = f" in microbatches through 1/{self.instance.placement.ranks} of the model" if self.lost else ""
        peak = f"peak {most}      [{_listed(self.peak, digits if unit else shown)}]{share}"
        return [
            f"    {headline(spent, unit, span_first=span_first)}",
            *(f"    {line}" for line in (used.lines() if used else [peak])),
            *comparison(self.given, spent.span if span_first else spent.makespan, self.instance, max(self.peak)),
            "",
            *table(self.known, self.instance, spent, max(self.peak)),
        ]

    def to_json(self) -> dict[str, object]:
        """Return the JSON of ``emit/optimum.schema.json``; times are integers, or strings such as ``11/2``."""
        used = self._used
        own: dict[str, object] = {} if used is None else {"bytes": used.to_json()}
        own |= {} if self.lost is None else {"lost": self.lost.to_json(self.makespan)}
        if self.judged is None:
            own |= {"status": self.status, "proved": False, "verdict": self.verdict, **exact(lower_bound=self.least)}
            own |= {"proved_by": None, "told_by": None}
        return {
            **derived(self.instance, self.judged, self.spent, self.peak),
            **own,
            "found_by": self.found_by or None,
            "reason": self.reason or None,
            "given": None if self.given is None else self.given.name,
            "known": [baseline.to_json() for baseline in self.known],
            "notes": list(self.notes),
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.diagnostics],
            "seed": self.seed,
            "source": self.source or None,
            "certificate": doubled(self.certificate, COUNTS) if self.certificate else None,
        }


Ask: TypeAlias = "Callable[[Request, Meter], Optimum]"
"""A function that answers a request within the limit of a meter."""


def bound_by(state: State) -> str:
    """Return the source of a search's lower bound, in a few words."""
    refuted, bound = state.refuted, state.bound
    if refuted is not None and refuted.bound + 1 > bound.value:
        return "single ranks" if refuted.engine == "ranks" else refuted.engine
    return "the longest path" if bound.kind == "path" else f"rank {bound.rank}"


def notes(instance: Instance, state: State) -> tuple[str, ...]:
    notes = [*state.notes, *instance.costs.doubts(instance.kinds)]
    if instance.rounded not in (None, instance.caps) and instance.asked is None:
        notes.insert(
            0,
            f"the effective cap is {listed_caps(instance.rounded)}, the largest amount that fits the given cap",
        )
    return tuple(notes)


def _listed(values: Sequence[Fraction], said: Callable[[Fraction], str]) -> str:
    texts = [said(value) for value in values]
    if len(texts) > _SHOWN:
        texts = [*texts[: _SHOWN // 2], "…", *texts[-_SHOWN // 2 :]]
    return "  ".join(texts)


def claims(made: Analysis, instance: Instance, verdict: Verdict) -> list[str]:
    """Return the claims of the printed file: the peak, and the times if a claim can name the costs.

    For a schedule for every m, the claim gives the objective as a formula of m: `==` if it is proved, else `<=`.
    """
    spent, rule, costs = made.idle, _rule(instance.release), instance.scalar_costs
    assert spent is not None, "its orders wait for each other in a cycle"
    held = [] if rule is None else [f"peak == {_quotient(max(made.memory.peak))}{rule}"]
    if costs is None:
        return held
    when = " when " + " and ".join(f"{name} == {_quotient(number)}" for name, number in costs.items())
    if verdict.every is None:
        times = [f"makespan == {_quotient(spent.makespan)}", f"span == {_quotient(spent.span)}"]
    else:
        (first, _), (base, more) = verdict.every, verdict.grown
        known = "==" if verdict.everywhere else "<="
        times = [f"{instance.objective} {known} {_quotient(base)} + {_quotient(more)} * (m - {first})"]
    return [*(time + when for time in times), *held]


def _rule(release: Release) -> str | None:
    """Return the part of a claim that names the release rule; None if claims have no name for this rule."""
    if release.name == "W":
        return ""
    if "=" not in release.name:
        return f" release {release.name}"
    return f" release split:{release.at_weight}" if release.at_weight <= 1 else None


def _quotient(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator} / {value.denominator}"


@dataclass(frozen=True)
class Frontier:
    """The answers for several caps. points: (cap in the unit of peaks, answer), in ascending order of caps."""

    points: tuple[tuple[Fraction, Optimum], ...]

    @property
    def exit_status(self) -> int:
        """Exit status: 3 if a better schedule is not excluded at some cap; 1 if no cap has a schedule; else 0."""
        statuses = {answer.exit_status for _, answer in self.points}
        return 3 if 3 in statuses else int(statuses == {1})

    @property
    def proved(self) -> bool:
        """True if every point is proved optimal or infeasible."""
        return all(answer.proved or answer.status == INFEASIBLE for _, answer in self.points)

    @property
    def terms(self) -> str:
        """The terms that all answers share, without the cap."""
        return self.points[0][1].instance.text_without_cap

    def text(self) -> str:
        """Return the table with one row per cap."""
        objective = self.points[0][1].objective
        heads = ("cap", objective, "bubble" + " by span" * (objective == "span"), "peak", "verdict")
        rows = tables.table(heads, [_row(cap, answer) for cap, answer in self.points], left=(4,))
        return f"for: {self.terms}\n{rows}"

    def orders(self) -> list[tuple[str, str]]:
        """Return the schedules of all caps that have one, as text, each with a file name."""
        return [(f"cap-{str(cap).replace('/', '_')}", answer.source) for cap, answer in self.points if answer.source]

    def to_json(self) -> dict[str, object]:
        """Return the answers for all caps, as JSON."""
        return {"ok": self.exit_status == 0, "frontier": [answer.to_json() for _, answer in self.points]}


def _row(cap: Fraction, answer: Optimum) -> tuple[str, str, str, str, str]:
    if answer.value is None or answer.least_bubble is None:
        verdict = f"infeasible: {answer.reason}" if answer.status == INFEASIBLE else answer.verdict
        return shown(cap), "-", "-", "-", verdict
    verdict = answer.status if answer.exit_status == 0 else f"gap {percent(answer.gap or Fraction(0))}"
    value = answer.instance.costs.unit.text(answer.value)
    return shown(cap), value, percent(answer.least_bubble), shown(max(answer.peak)), verdict
