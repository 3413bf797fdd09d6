"""Bounds, caps and costs in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pipesched.analysis.assumptions import doubts
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.release import Release
from pipesched.model.verdict import listed_caps
from pipesched.optimizer.instance import Instance
from pipesched.optimizer.search.state import State

SHOWN = 8  # ranks of a list that are printed; longer ones keep both ends


def bound_by(state: State) -> str:
    """Where the bound comes from, in a word."""
    refuted, bound = state.refuted, state.bound
    if refuted is not None and refuted.bound + 1 > bound.value:
        return "ranks taken one by one" if refuted.engine == "lattice" else refuted.engine
    return "the longest path" if bound.kind == "path" else f"rank {bound.rank}"


def notes(instance: Instance, state: State) -> tuple[str, ...]:
    notes = [*state.notes, *doubts(instance.costs, instance.kinds)]
    if instance.caps is not None and instance.rounded != instance.caps:
        assert instance.rounded is not None
        notes.insert(0, f"the cap binds at {listed_caps(instance.rounded)}: activations come in no smaller pieces")
    return tuple(notes)


def listed(values: Sequence[Fraction]) -> str:
    texts = [shown(value) for value in values]
    if len(texts) > SHOWN:
        texts = [*texts[: SHOWN // 2], "…", *texts[-SHOWN // 2 :]]
    return "  ".join(texts)


def condition(costs: Costs, fused: bool) -> str:
    """The costs under which the times hold, where each is one number."""
    named = {"tF": "F", "tB": "B", "tC": "C"} if fused else {"tF": "F", "tI": "I", "tW": "W", "tC": "C"}
    numbers = {name: costs.scalar(key) for name, key in named.items()}
    if any(number is None for number in numbers.values()):
        return ""
    told = " and ".join(f"{name} == {exact(number)}" for name, number in numbers.items() if number is not None)
    return f" when {told}"


def release(rule: Release) -> str | None:
    """The rule as a claim names it, with its word; None where claims have no name for it."""
    if rule.name == "W":
        return ""
    if "=" not in rule.name:
        return f" release {rule.name}"
    return f" release split:{rule.at_weight}" if rule.at_weight <= 1 else None


def exact(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator} / {value.denominator}"
