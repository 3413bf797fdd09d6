"""Evaluates the claims in a file, with names as the language reference defines them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tests.oracles.ps_clock import Figures
from tests.oracles.ps_interpreter import KEYS, Refused, Written, value
from tests.oracles.ps_reader import Tree


class NotApplicable(Exception):
    """A name that differs from stage to stage, or from microbatch to microbatch."""


def at_input(release: str) -> Fraction:
    kept = {"W": Fraction(1), "I": Fraction(0), "torch": Fraction(8, 5)}
    return 1 - (kept[release] if release in kept else Fraction(release.partition(":")[2]))


def names(written: Written, figures: Figures, release: str) -> dict[str, Any]:
    """Return the names of claims, functions if they take a rank."""

    def by_rank(values: list[Fraction]) -> Callable[..., Fraction]:
        def of(*rank: int) -> Fraction:
            if rank and not 0 <= rank[0] < len(values):
                raise Refused("no such rank")
            return values[rank[0]] if rank else max(values)

        return of

    def cost(key: str) -> Callable[[], Fraction]:
        def of() -> Fraction:
            found = {x for (k, _, _), x in written.model.cost.items() if k == key}
            if key == "FB" and not found:
                found = {x + written.model.cost["B", s, i] for (k, s, i), x in written.model.cost.items() if k == "F"}
            if len(found) > 1:
                raise NotApplicable
            return next(iter(found))

        return of

    ranks, made = len(figures.slots), figures
    known: dict[str, Any] = {f"t{key}": cost(key) for key in KEYS}
    known |= {
        "makespan": made.makespan,
        "span": made.span,
        "bubble": sum(made.idle) / (ranks * made.makespan) if made.makespan else Fraction(0),
        "span_bubble": sum(made.span - x for x in made.work) / (ranks * made.span) if made.span else Fraction(0),
        "work": by_rank(made.work),
        "idle": by_rank(made.idle),
        "span_idle": by_rank(made.span_idle),
        "peak": by_rank(made.peaks(at_input(release))),
        "host": by_rank(made.hosts),
    }
    return known | written.env


def judged(claim: Tree, written: Written, figures: Figures) -> bool | None:
    """Return True if a claim holds, for every rank if it names one; None if it is not applicable."""
    _, statement, release, condition = claim
    env = names(written, figures, release)
    every = [{}] if written.variable is None else [{written.variable: r} for r in range(len(figures.slots))]
    found: list[bool] = []
    try:
        for rank in every:
            inside = {**env, **rank}
            if condition is None or value(condition, inside):
                found.append(bool(value(statement, inside)))
    except NotApplicable:
        return None
    return all(found) if found else None
