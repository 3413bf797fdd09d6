"""Bounds, caps and costs in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pipesched.analysis.assumptions import doubts
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.release import Release
from pipesched.optimize.bounds.lower import Bound
from pipesched.optimize.bounds.warmup import Ends
from pipesched.optimize.instance import Instance
from pipesched.optimize.problem import Problem
from pipesched.optimize.search.state import State

SHOWN = 8  # ranks of a list that are printed; longer ones keep both ends


PROVED, FOUND, INFEASIBLE, NOTHING = "proved optimal", "best found", "infeasible", "nothing found"


def proved_by(state: State) -> str:
    """What shows that there is nothing below the bound."""
    refuted = state.refuted
    if refuted is not None and refuted.bound + 1 > state.bound.value:
        alone = f", on rank {refuted.ranks[0]} alone" if refuted.ranks else ""
        told = shown(state.problem.time(refuted.bound))
        if refuted.engine == "lattice":
            return f"within {told} some rank has no time for its work, taking ranks one by one{alone}"
        return f"{refuted.engine} refuting {told}{alone}"
    return explained(state.problem, state.bound)


def bound_by(state: State) -> str:
    """Where the bound comes from, in a word."""
    refuted, bound = state.refuted, state.bound
    if refuted is not None and refuted.bound + 1 > bound.value:
        return "ranks taken one by one" if refuted.engine == "lattice" else refuted.engine
    return "the longest path" if bound.kind == "path" else f"rank {bound.rank}"


def explained(problem: Problem, bound: Bound) -> str:
    """A bound with its numbers, which add up."""
    terms = bound.terms
    head, work, tail = (shown(problem.time(ticks)) for ticks in (terms.head, terms.work, terms.tail))
    total = shown(problem.time(bound.value))
    if isinstance(terms, Ends):
        before, after = (shown(problem.time(ticks)) for ticks in (terms.before, terms.after))
        fits = [f"{before} fit into the first {head}"] * (terms.head > 0)
        fits += [f"{after} into the last {tail}" if fits else f"{after} fit into the last {tail}"] * (terms.tail > 0)
        total_of = _sum((terms.head, head), (terms.work, work), (-terms.before, before), (-terms.after, after))
        told = f"rank {bound.rank} has {work} of work, of which its cap lets {' and '.join(fits)}"
        return f"{told}: {total_of}{f' + {tail}' * (terms.tail > 0)} = {total}"
    if bound.kind == "path":
        return f"the longest path, through rank {bound.rank}: {total}"
    where = [f"begins after {head}"] * (terms.head > 0) + [f"ends {tail} before the end"] * (terms.tail > 0)
    told = f"rank {bound.rank} has {work} of work" + f" that {' and '.join(where)}" * bool(where)
    return told + f": {_sum((terms.head, head), (terms.work, work), (terms.tail, tail))} = {total}" * bool(where)


def _sum(*parts: tuple[int, str]) -> str:
    """``8 + 10 - 3``: the parts that are not 0, those with a minus whose number is negative."""
    there = [(sign, text) for sign, text in parts if sign]
    return "".join(f" {'-' if sign < 0 else '+'} {text}" for sign, text in there).removeprefix(" + ")


def notes(instance: Instance, state: State) -> tuple[str, ...]:
    notes = [*state.notes, *doubts(instance.costs, instance.kinds)]
    if instance.caps is not None and instance.rounded != instance.caps:
        assert instance.rounded is not None
        notes.insert(0, f"the cap binds at {caps(instance.rounded)}: activations come in no smaller pieces")
    return tuple(notes)


def listed(values: Sequence[Fraction]) -> str:
    texts = [shown(value) for value in values]
    if len(texts) > SHOWN:
        texts = [*texts[: SHOWN // 2], "…", *texts[-SHOWN // 2 :]]
    return "  ".join(texts)


def caps(caps: Sequence[Fraction]) -> str:
    return shown(caps[0]) if len(set(caps)) == 1 else ",".join(map(shown, caps))


def cost(value: object) -> str:
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, list) else str(value)


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


def as_json(value: Fraction | None) -> int | str | None:
    if value is None:
        return None
    return value.numerator if value.denominator == 1 else str(value)
