"""What shows a bound, with its numbers, which add up."""

from __future__ import annotations

from fractions import Fraction

from pipesched.check.optimum_bound import Bound
from pipesched.model.numbers import shown


def explained(bound: Bound, scale: int) -> str:
    """A bound in words; scale: ticks of the unit of time."""
    head, work, tail, total, before, after = (
        shown(Fraction(ticks, scale))
        for ticks in (bound.head, bound.work, bound.tail, bound.value, bound.before, bound.after)
    )
    if bound.kind == "path":
        return f"the longest path, through rank {bound.rank}: {total}"
    if bound.kind == "ends":
        fits = [f"{before} fit into the first {head}"] * (bound.head > 0)
        fits += [f"{after} into the last {tail}" if fits else f"{after} fit into the last {tail}"] * (bound.tail > 0)
        total_of = _sum((bound.head, head), (bound.work, work), (-bound.before, before), (-bound.after, after))
        told = f"rank {bound.rank} has {work} of work, of which its cap lets {' and '.join(fits)}"
        return f"{told}: {total_of}{f' + {tail}' * (bound.tail > 0)} = {total}"
    apart = bound.frame not in (None, bound.rank)
    begins, end = (f"{head} after rank {bound.frame}", f"rank {bound.frame}") if apart else (f"after {head}", "the end")
    where = [f"begins {begins}"] * (bound.head > 0) + [f"ends {tail} before {end}"] * (bound.tail > 0)
    told = f"rank {bound.rank} has {work} of work" + f" that {' and '.join(where)}" * bool(where)
    return told + f": {_sum((bound.head, head), (bound.work, work), (bound.tail, tail))} = {total}" * bool(where)


def named(bound: Bound) -> str:
    """Where it comes from, in a word."""
    return "the longest path" if bound.kind == "path" else f"rank {bound.rank}"


def _sum(*parts: tuple[int, str]) -> str:
    """``8 + 10 - 3``: the parts that are not 0, those with a minus whose number is negative."""
    there = [(sign, text) for sign, text in parts if sign]
    return "".join(f" {'-' if sign < 0 else '+'} {text}" for sign, text in there).removeprefix(" + ")
