"""Nothing that the checker of optima derives is above the best of all schedules, for the makespan and for the span."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipesched.check.optimum_apart import apart
from pipesched.check.optimum_bound import Bound, Part, _fits, fault
from pipesched.check.optimum_meetings import meetings
from pipesched.check.optimum_paths import Facts, facts, heads, tails
from pipesched.check.optimum_ranks import refutes
from pipesched.check.optimum_rival import rival
from pipesched.model.costs import Costs
from pipesched.model.placement import Placement, linear
from pipesched.model.release import AT_W
from pipesched.model.verdict import Terms
from tests.depth import deep
from tests.makers.instances import given, placement_of
from tests.oracles.brute import Instance, optimum, random_instance, steps

pytestmark = pytest.mark.quick

OBJECTIVES = ("makespan", "span")


def facts_of(x: Instance) -> Facts:
    return facts(Terms(placement_of(x), *given(x), x.fused, x.objective))


def of(placement: Placement, costs: Costs, cap: int | None, *, fused: bool = False) -> Facts:
    """The same cap on every rank."""
    caps = None if cap is None else (Fraction(cap),) * placement.ranks
    return facts(Terms(placement, costs, AT_W, caps, fused, "makespan"))


def instances(first: int, count: int, objective: str, most: int = 14) -> Iterator[tuple[Instance, int]]:
    """Those that are small enough, with their optimum, found without the order of microbatches."""
    for seed in range(first, first + count):
        x = replace(random_instance(seed, ranks=3, microbatches=3), objective=objective)
        best = optimum(x) if len(steps(x)) <= most else None
        if best is not None:
            yield x, best


def accepted(made: Facts, rng: random.Random, *, span: bool) -> Iterator[Bound]:
    """The highest bound of each kind and rank that the checker accepts, at some heads and tails."""
    for rank in range(len(made.cap)):
        mine = made.on(rank)
        frame = rank if span else None
        head, tail = heads(made, frame), tails(made, frame)
        alone = [(line, i) for line in mine for i in range(made.length[line])]
        for line, i in alone:
            h, w, t = head[line][i], made.work[line], tail[line][i]
            yield Bound("path", rank, h, w, t, h + w + t, 0, 0, [(line, i, i + 1)])
        for _ in range(4 if alone else 0):
            (one, i), (two, j) = rng.choice(alone), rng.choice(alone)
            h, t = head[one][i], tail[two][j]
            parts: list[Part] = []
            for line in mine:
                within = [n for n in range(made.length[line]) if head[line][n] >= h and tail[line][n] >= t]
                parts += [(line, within[0], within[-1] + 1)] if within else []
            w = sum((high - low) * made.work[line] for line, low, high in parts)
            yield Bound("one-machine", rank, h, w, t, h + w + t, 0, 0, parts)
            w = sum(made.work[line] * made.length[line] for line in mine)
            before, after = _fits(made, rank, head, h, back=False), _fits(made, rank, tail, t, back=True)
            yield Bound("ends", rank, h, w, t, h + w + t - before - after, before, after, [])


def look(first: int, count: int, objective: str) -> Counter[str]:
    """How many bounds of each kind were accepted; raises AssertionError for one that is above the optimum."""
    seen: Counter[str] = Counter()
    span = objective == "span"
    for x, best in instances(first, count, objective):
        made, rng = facts_of(x), random.Random(best)
        for bound in accepted(made, rng, span=span):
            if not fault(made, bound, span=span):
                assert bound.value <= best, (x, bound)
                seen[bound.kind] += 1
        assert not refutes(made, best, span=span), x
        seen["refuted below"] += refutes(made, best - 1, span=span)
        assert rival(made, tails(made), best - 1, span=span) is None, x
        seen["instances"] += 1
        formula = None if span else meetings(made)
        assert formula is None or formula.value <= best, x
    return seen


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_bound_is_above_the_optimum(objective: str) -> None:
    """A rank's first start is not fixed: with the span as objective nothing is assumed of it."""
    seen = look(0, 160, objective)
    assert seen["instances"] > 60 and all(seen[kind] > 100 for kind in ("path", "one-machine", "ends"))
    assert seen["refuted below"] > seen["instances"] / 2


def leave_out(first: int, count: int) -> Counter[str]:
    """Raises AssertionError where the best of m + n microbatches is less than that of m and what n are apart."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        x = random_instance(seed, ranks=3, microbatches=1)
        of = [replace(x, route_of=[0] * m) for m in range(5)]
        best = {m: optimum(of[m]) for m in range(1, 5) if len(steps(of[m])) <= 12}
        known = {m: value for m, value in best.items() if value is not None}
        for m, n in ((m, n) for m in known for n in known if m + n in known):
            later = apart(facts_of(of[m + n]), n)
            assert known[m + n] >= known[m] + later, (seed, m, n)
            seen.update(["all", "met"] if later and known[m + n] == known[m] + later else ["all"])
    return seen


def test_microbatches_that_are_left_out_take_at_least_what_they_are_apart() -> None:
    """The best of more microbatches, in any order, is the best of fewer and what is between them, or more."""
    seen = leave_out(0, deep(120))
    assert seen["met"] > 0.2 * seen["all"] > 10


@pytest.mark.parametrize(
    ("p", "cap", "m", "best"),
    [(8, cap, 16, best) for cap, best in enumerate((145, 102, 79, 68, 61, 58, 55), start=2)]
    + [(8, 4, 64, 295), (8, 5, 64, 241), (8, 6, 64, 205), (16, 11, 32, 127), (16, 10, 64, 245), (16, 11, 64, 226)]
    + [(64, 44, 128, 507), (6, 4, 13, 53), (6, 4, 17, 67)],
)
def test_meetings_are_never_above_a_known_optimum(p: int, cap: int, m: int, best: int) -> None:
    """Optima that engines proved; from k = 2 up and below (2p + 2) / 3 the formula meets them."""
    found = meetings(of(linear(p, m), Costs(), cap))
    assert found is not None and found.value <= best


def test_meetings_are_of_unit_costs_alone() -> None:
    """Another cost, a message, a V placement, B, or another release rule: the theorem says nothing."""
    assert meetings(of(linear(4, 9), Costs(), 3)) is not None
    vee = Placement(np.array([[0, 1, 1, 0]], dtype=np.int32), np.zeros(4, dtype=np.int32), 2)
    others = [
        of(linear(4, 9), Costs.parse("F=1,I=2,W=1"), 3),
        of(linear(4, 9), Costs.parse("C=1"), 3),
        of(linear(4, 9), Costs(), 3, fused=True),
        of(linear(4, 9), Costs(), None),
        of(vee, Costs(), 3),
    ]
    assert [meetings(made) for made in others] == [None] * len(others)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bounds of the checker against all schedules of small instances.")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    for objective in OBJECTIVES:
        print(objective, dict(look(asked.first, asked.cases, objective)))


if __name__ == "__main__":
    main()
