"""What was found, as a value: the verdict first.

    proved optimal: makespan 27   (linear placement, p=4 m=8, split backward, cap 4, release W)
        no schedule is shorter: rank 3 starts after 3, works 24
        span 27, peak 4 of cap 4      [4 4 4 4]

The verdict is always for this placement, these costs and caps, this kind of backward and this release rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from textwrap import fill

from pipesched import render
from pipesched.analysis.idle import idle
from pipesched.analysis.memory import memory
from pipesched.analysis.timeline import timeline
from pipesched.analysis.waits import waits
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.numbers import shown
from pipesched.optimize import convert, words
from pipesched.optimize.beside import Known
from pipesched.optimize.instance import Instance
from pipesched.optimize.periodic import Periodic
from pipesched.optimize.problem import Problem
from pipesched.optimize.search import State

PROVED, FOUND, INFEASIBLE, NOTHING = "proved optimal", "best found", "infeasible", "nothing found"


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
        return {PROVED: 0, INFEASIBLE: 1}.get(self.status, 3)

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
    def _every(self) -> dict[str, object] | None:
        if self.every is None or self.growth is None:
            return None
        base, more = self.growth
        return {
            "microbatches": self.every[0],
            "step": self.every[1],
            "value": words.as_json(base),
            "growth": words.as_json(more),
        }

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
        left = ("I", "W", "FB") if self.instance.fused else ("B", "FB")
        told = self.instance.costs.to_json()
        costs = ",".join(f"{key}={words.cost(value)}" for key, value in told.items() if key not in left)
        rule = self.instance.release.name
        return f"{self.placement_name} placement, {sizes}, {backward}, costs {costs}, release {rule}"

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
        lines = [_painted(self.verdict, self.status, color), f"    for: {self.terms}"]
        if self.status == PROVED:
            lines.append(f"    no schedule is shorter: {self.proved_by}")
        elif self.proved_by and self.lower_bound is not None:
            lines.append(f"    no schedule is below {shown(self.lower_bound)}: {self.proved_by}")
        if self.status == FOUND and self.reason:
            lines.append(f"    stopped: {self.reason}")
        lines += [f"    note: {note}" for note in self.notes]
        lines += [f"    help: {told.help} (pipesched explain {told.code})" for told in self.diagnostics]
        if self.makespan is not None:
            lines += [f"    {self._times}", f"    peak {shown(max(self.peak))}      [{words.listed(self.peak)}]"]
            lines += [*self._beside_given, "", *self._table()]
        return "\n".join(lines)

    @property
    def _times(self) -> str:
        assert self.makespan is not None and self.span is not None and self.work is not None
        value = self.makespan if self.objective == "makespan" else self.span
        idle = value - self.work
        ratio = f" ({float(100 * idle / value):.1f} %)" if value else ""
        other = f"span {shown(self.span)}" if self.objective == "makespan" else f"makespan {shown(self.makespan)}"
        return f"{self.objective} {shown(value)} = {shown(self.work)} work + {shown(idle)} idle{ratio};  {other}"

    @property
    def _beside_given(self) -> list[str]:
        """How it compares with the schedule that was given."""
        given, value = self.given, self.value
        if given is None or value is None:
            return []
        theirs = given.span if self.objective == "span" else given.makespan
        remark = f", which is {given.remark}" if given.remark == "over the cap" else ""
        if theirs == value:
            return [f"    as long as {given.name}{remark}"]
        more = f" ({float(100 * abs(theirs - value) / theirs):.1f} %)" if theirs else ""
        longer = "shorter" if value < theirs else "longer"
        return [f"    {shown(abs(theirs - value))}{more} {longer} than {given.name}{remark}"]

    def _table(self) -> list[str]:
        """The schedules of the library at this size, in the order of the objective."""
        assert self.makespan is not None and self.span is not None
        own = (self.makespan, self.span, max(self.peak), "this schedule", "")
        rows = [(k.makespan, k.span, k.peak, k.name, k.remark) for k in self.known]
        by = 1 if self.objective == "span" else 0
        cells = [("", "makespan", "span", "peak", "")]
        listed = sorted([own, *rows], key=lambda row: (row[by], row is not own))
        cells += [(name, shown(a), shown(b), shown(peak), remark) for a, b, peak, name, remark in listed]
        width = [max(len(row[i]) for row in cells) for i in range(4)]
        return [
            f"    {a.ljust(width[0])}  {b.rjust(width[1])}  {c.rjust(width[2])}  {d.rjust(width[3])}  {e}".rstrip()
            for a, b, c, d, e in cells
        ]

    def to_json(self) -> dict[str, object]:
        """The published form; times and peaks are whole numbers or strings such as ``11/2``."""
        return {
            "ok": self.exit_status == 0,
            "status": self.status,
            "verdict": self.verdict,
            "for": self.terms,
            "parameters": dict(self.sizes),
            "objective": self.objective,
            "makespan": words.as_json(self.makespan),
            "span": words.as_json(self.span),
            "lower_bound": words.as_json(self.lower_bound),
            "gap": words.as_json(self.gap),
            "proved_by": self.proved_by or None,
            "found_by": self.found_by or None,
            "reason": self.reason or None,
            "every": self._every,
            "mem_cap": None if self.instance.caps is None else [words.as_json(cap) for cap in self.instance.caps],
            "peak": [words.as_json(peak) for peak in self.peak],
            "release": self.instance.release.name,
            "costs": self.instance.costs.to_json(),
            "given": None if self.given is None else self.given.name,
            "known": [
                {
                    "name": k.name,
                    "makespan": words.as_json(k.makespan),
                    "span": words.as_json(k.span),
                    "peak": words.as_json(k.peak),
                    "fits": k.fits and k.orders is not None,
                }
                for k in self.known
            ],
            "notes": list(self.notes),
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.diagnostics],
            "seconds": round(self.seconds, 3),
            "source": self.source or None,
            "certificate": dict(self.certificate) or None,
        }


def _growth(problem: Problem, repeated: Periodic) -> tuple[Fraction, Fraction]:
    seam = repeated.seam
    return problem.time(seam.value), problem.time(seam.period) / seam.every


_ROOM = "give each rank at least what one microbatch needs there, or place the stages otherwise"
_COLORS = {PROVED: "32", FOUND: "33", NOTHING: "33", INFEASIBLE: "31"}
_WIDTH = 118  # characters of a line in the printed file


def _painted(verdict: str, status: str, color: bool) -> str:
    head, rest = verdict[: len(status)], verdict[len(status) :]
    return f"\x1b[1;{_COLORS[status]}m{head}\x1b[0m{rest}" if color else verdict
