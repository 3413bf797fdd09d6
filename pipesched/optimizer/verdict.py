"""Verdicts on an optimum and their terms, used by both the optimizer and the checker.

    proved optimal                                  no schedule is better: a checker derived the bound
    optimal on the word of CaDiCaL, not checked     an engine refuted every better objective, and the answer lacks the
                                                    proof; `optimize` writes no such answer, `verify` reads it
    best found                                      the bound is lower, here or at another m of the schedule

A verdict is valid for its terms only: one placement, costs, kind of backward, caps and release rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from textwrap import fill

import numpy as np

from pipesched.analysis.timeline import costs_used
from pipesched.model.cost_values import in_text, least, most
from pipesched.model.costs import TIMES, Costs, equations
from pipesched.model.numbers import exact, percent, plain, ranges, shown
from pipesched.model.ops import Op, Result
from pipesched.model.placement import Placement
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.model.units import NO_UNIT, Unit
from pipesched.planning.byte_counts import Bytes, gigabytes

PROVED, FOUND, INFEASIBLE, NOTHING = "proved optimal", "best found", "infeasible", "nothing found"

_ENGINES = {"cadical": "CaDiCaL", "glucose": "Glucose", "z3": "Z3", "cpsat": "CP-SAT"}

_WIDTH = 118  # most characters of a line in the printed file
_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|us|[kMGT]?B)\b)")  # the blank between a number and its unit


def engine_name(engine: str) -> str:
    """Return the name of an engine as its authors write it, or "the optimizer" for an unknown engine."""
    return _ENGINES.get(engine, "the optimizer")


def on_the_word(name: str) -> str:
    """Return the status of a schedule that is optimal only according to an engine."""
    return f"optimal on the word of {name}, not checked"


@dataclass(frozen=True)
class Verdict:
    """The objective of a schedule, and its lower bound. lower: the bound; `shown_by` explains the bound, and `by` names
    its source briefly. word: the engine on whose unchecked word the lower bound rests; empty if the bound was derived.
    every: (m0, K) if the schedule extends to every m = m0 + jK, with an objective of at most grown[0] + grown[1] * (m -
    m0). everywhere: True if this is proved optimal for all of these m. unit: the unit of times.
    """

    objective: str
    value: Fraction
    lower: Fraction
    shown_by: str
    by: str
    word: str = ""
    every: tuple[int, int] | None = None
    grown: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
    everywhere: bool = False
    unit: Unit = NO_UNIT

    @property
    def status(self) -> str:
        if self.value > self.lower or (self.every is not None and not self.everywhere):
            return FOUND
        return on_the_word(self.word) if self.word else PROVED

    @property
    def proved(self) -> bool:
        return self.status == PROVED

    @property
    def gap(self) -> Fraction:
        """The amount by which the objective exceeds the bound, as a fraction of the bound."""
        return (self.value - self.lower) / self.lower if self.lower else Fraction(0)

    @property
    def line(self) -> str:
        """The status and its figures."""
        head = f"{self.status}: {self.objective} {self.unit.text(self.value)}"
        if self.status != FOUND:
            return head + self._for_every
        source = f"on the word of {self.word}, not checked" if self.word else f"by {self.by}"
        if self.value == self.lower:
            return f"{head}, the least at this m {source}; not proved to be the least at every m"
        gap = f"{float(100 * self.gap):.1f} %"
        gap = f"gap {percent(self.gap) if gap == '0.0 %' else gap}, " if self.lower else ""
        return f"{head}, {gap}bound {self.unit.text(self.lower)} {source}"

    @property
    def because(self) -> str:
        """The reason for the bound, such as ``no schedule is shorter: …``."""
        if self.word:
            return f"it rests on this: {self.shown_by}"
        if self.status == FOUND:
            return f"no schedule is below {self.unit.text(self.lower)}: {self.shown_by}"
        return f"no schedule is shorter: {self.shown_by}"

    def to_json(self) -> dict[str, object]:
        """Return the status, the bound and its reason, as JSON. Times are integers or strings such as ``11/2``."""
        return {
            "status": self.status,
            "proved": self.proved,
            "verdict": self.line,
            **exact(lower_bound=self.lower),
            "proved_by": None if self.word else self.shown_by,
            "told_by": self.shown_by if self.word else None,
        }

    def entries(self) -> dict[str, object]:
        """Return the status, the bound and the gap as entries of a certificate."""
        return {"verdict": self.status, "lower_bound": plain(self.lower), "gap": plain(self.gap)}

    @property
    def every_json(self) -> dict[str, object] | None:
        """The m to which the schedule extends, and its objective there, as JSON; None if the schedule is for one m."""
        if self.every is None:
            return None
        (first, step), (value, growth) = self.every, self.grown
        return {"microbatches": first, "step": step, **exact(value=value, growth=growth)}

    def at(self, microbatches: int) -> Fraction | None:
        """Return the upper bound on the objective at another m; None if the schedule does not exist for that m."""
        if self.every is None or microbatches < self.every[0] or (microbatches - self.every[0]) % self.every[1]:
            return None
        return self.grown[0] + self.grown[1] * (microbatches - self.every[0])

    @property
    def _for_every(self) -> str:
        if self.every is None:
            return ""
        first, step = self.every
        return f", and for every m = {first} + {step}j" if step > 1 else f", and for every m from {first} up"


def documentation(verdict: Verdict, terms: Terms) -> str:
    """Return the docstring of the printed file: verdict, terms and reason."""
    lines = [f"{verdict.line[0].upper()}{verdict.line[1:]}.", f"For: {terms.text}."]
    if verdict.status != FOUND:
        reason = "It rests on this" if verdict.word else "None is shorter"
        lines.insert(1, f"{reason}: {verdict.shown_by}.")
    if terms.costs.unit:
        lines.append(f"Costs are {terms.costs.unit.words}.")
    if terms.scalar_costs is None:
        lines.append("It claims no times, since they hold only for these costs, which differ by stage.")
    kept = (_UNIT.sub("\0", line) for line in lines)
    made = (fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False) for line in kept)
    return "\n".join(made).replace("\0", " ")


def sizes(placement: Placement) -> dict[str, int]:
    """Return p and m, and v if every rank has v stages."""
    p, stages = placement.ranks, placement.stages
    even = stages % p == 0 and all(len(placement.chunks(rank)) * p == stages * placement.routes for rank in range(p))
    return {"p": p, **({"v": stages // p} if even else {}), "m": placement.microbatches}


def placement_name(placement: Placement) -> str:
    """Return the name of a placement: linear, loop, vee, irregular, or 2-route for two routes."""
    if placement.routes > 1:
        return f"{placement.routes}-route"
    ranks, turn = placement.rank_of[0].tolist(), list(range(placement.ranks))
    chunks = len(ranks) // len(turn)
    if ranks == turn:
        return "linear"
    if ranks == turn * chunks:
        return "loop"
    return "vee" if ranks == [r for c in range(chunks) for r in (turn if c % 2 == 0 else turn[::-1])] else "irregular"


def kinds_of(schedule: Schedule, costs: Costs) -> tuple[str, ...]:
    """Return the names of the costs that the times of a schedule depend on, except C."""
    used = costs_used(schedule, costs)
    return tuple(key for key in TIMES if key in used)


def listed_caps(caps: Sequence[Fraction]) -> str:
    return shown(caps[0]) if len(set(caps)) == 1 else ",".join(map(shown, caps))


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a verdict. caps: the cap of each rank, in the unit of peaks, or None for no caps; fused: True for
    full backwards.

    asked: caps in bytes as the user typed them, from which `caps` and the release rule were derived; otherwise None.
    decided: text that describes decisions in addition to the order; empty if there are none. pairs: True if an F may
    share a slot with a B. again: the F that may run again: ``any``, ``stages`` for all or no F of each stage, or all F
    of listed stages. own: the names of the costs that matter if only the order of a schedule's operations is decided.
    """

    placement: Placement
    costs: Costs
    release: Release
    caps: tuple[Fraction, ...] | None
    fused: bool
    objective: str
    asked: tuple[Bytes, ...] | None = None
    decided: str = ""
    pairs: bool = False
    again: str = ""
    own: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, schedule: Schedule, costs: Costs, release: Release, caps: tuple[Fraction, ...] | None, objective: str
    ) -> Terms:
        """Make terms that have the placement and the kind of backward of a schedule."""
        return cls(schedule.placement, costs, release, caps, bool((schedule.op == Op.B).any()), objective)

    def whole_caps(self, parts: int) -> list[int | None]:
        """Return the cap of each rank in units of 1 / `parts`, rounded down; None for a rank without a cap."""
        return [None if cap is None else int(cap * parts // 1) for cap in self.caps or [None] * self.placement.ranks]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the costs of all kinds of operations that run, with FB if pairs are decided."""
        if self.own or self.forward_only:
            return self.own or ("F",)
        again = ("R",) if self.again else ()
        if self.pairs:
            return ("F", "I", "W", "B", *again, "FB")
        return ("F", "B", *again) if self.fused else ("F", "I", "W", *again)

    @property
    def forward_only(self) -> bool:
        """True if all stages are frozen, so that no stage has a backward."""
        return len(self.placement.frozen) == self.placement.stages > 0

    @property
    def text(self) -> str:
        """The terms, in one line."""
        if self.asked is not None:
            return f"{self.text_without_cap}, cap {','.join(map(gigabytes, self.asked))}"
        return f"{self.text_without_cap}, {'no cap' if self.caps is None else f'cap {listed_caps(self.caps)}'}"

    @property
    def text_without_cap(self) -> str:
        """The terms without the cap, in one line."""
        named = " ".join(f"{name}={value}" for name, value in sizes(self.placement).items())
        backward = "no backward" if self.forward_only else "full backward" if self.fused else "split backward"
        backward = "pairs F+B, split or full backward" if self.pairs else backward
        backward = f"the schedule's own operations ({' '.join(self.own)})" if self.own else backward
        backward += ", " + _AGAIN.get(self.again, f"F of stages {self.again} run again") if self.again else ""
        rates = ",".join(
            f"{key}={_cost(value)}" for key, value in self._used.items() if not (key == "M" and self.asked)
        )
        if self.costs.unit:
            rates = ", ".join(f"{key}={self._read(key)}" for key in self._used if not (key == "M" and self.asked))
        if guessed := self.assumed:
            rates += f" (assumed: {equations(guessed)})"
        return (
            f"{placement_name(self.placement)} placement, {named}, {self.decided}{', ' * bool(self.decided)}"
            f"{self._frozen}{backward}, costs {rates}"
            f"{'' if self.asked else f', release {self.release.name}'}"
        )

    @property
    def _frozen(self) -> str:
        stages = () if self.forward_only else self.placement.frozen
        return f"stage{'s' if len(stages) > 1 else ''} {ranges(stages)} frozen, " if stages else ""

    @property
    def not_covered(self) -> str:
        """The part of these terms that no bound covers if stages are frozen; empty if the bounds are valid.

        A stage without a backward keeps nothing, but its F holds an activation while it runs.
        """
        placement = self.placement
        if not placement.frozen or self.own:
            return ""
        kept, trained = placement.wants[Result.GRADIENT], placement.wants[Result.WEIGHTS]
        if self.fused and bool((kept & ~trained).any()):
            return f"the I of stage {int(np.flatnonzero(kept & ~trained)[0])} while other stages run B"
        if self.objective == "span" and not kept.all():
            return f"the span of a rank whose stage {int(np.flatnonzero(~kept)[0])} has no backward"
        for rank in range(placement.ranks) if self.caps is not None else ():
            of = {bool(kept[stage]) for _, stage in placement.chunks(rank)}
            if len(of) > 1:
                return f"a cap on rank {rank}, which has stages both with and without a backward"
        return ""

    def _read(self, key: str) -> str:
        """Return a cost as text; if stages differ, as the smallest and the largest."""
        cost = self.costs[key]
        assert cost is not None, "all used costs are known"
        return self.costs.unit.range((least(cost), most(cost))) if key in TIMES else in_text(cost)

    @property
    def assumed(self) -> dict[str, str]:
        """The relevant costs that were derived from other costs, each with the cost that it was derived from."""
        return self.costs.assumed_of(self.kinds)

    @property
    def scalar_costs(self) -> dict[str, Fraction] | None:
        """The costs that determine times, as numbers, by their names in claims; None if a cost differs by stage."""
        found = {f"t{key}": self.costs.scalar(key) for key in (*self.kinds, "C")}
        return None if None in found.values() else {name: x for name, x in found.items() if x is not None}

    @property
    def _used(self) -> dict[str, object]:
        """The relevant costs, as JSON."""
        return {
            key: value
            for key, value in self.costs.to_json().items()
            if key in (*self.kinds, "C", "M", *"K" * bool(self.again or "R" in self.own))
        }

    def to_json(self) -> dict[str, object]:
        """Return the terms as JSON, for a refutation, which is valid only under these terms."""
        counts = [int((self.placement.route_of == route).sum()) for route in range(self.placement.routes)]
        return {
            "objective": self.objective,
            "backward": "fused" if self.fused else "split",
            "placement": self.placement.rank_of.tolist(),
            "microbatches": counts,
            "costs": self._used,
            "release": self.release.name,
            "caps": None if self.caps is None else [plain(cap) for cap in self.caps],
            **({"frozen": list(self.placement.frozen)} if self.placement.frozen else {}),
        }


_AGAIN = {"any": "any F may run again, microbatches in order", "stages": "the F of any stage may run again"}


def _cost(value: object) -> str:
    """Return a cost as text; if microbatches differ, as the smallest and the largest."""
    if isinstance(value, list) and isinstance(value[0], list):
        each = sorted({Fraction(x) for row in value for x in row})
        return f"{shown(each[0])}..{shown(each[-1])} by microbatch"
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, list) else str(value)
