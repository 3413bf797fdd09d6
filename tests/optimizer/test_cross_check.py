"""All methods of computing the least makespan or span agree.

    trying everything   up to 18 operations: `brute`, which knows nothing of microbatch order, clauses or bounds
    engines             Z3, CaDiCaL: sat at the optimum, unsat a tick below
    the answer          of `optimize`, as printed: verified like anybody's file, all its claims hold

More of it: ``python -m tests.optimizer.test_cross_check --cases 500``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from pipesched.compile import Options
from pipesched.diagnostics import PipeschedError
from pipesched.model.release import Release
from pipesched.optimizer.optimize import optimize
from pipesched.optimizer.optimize_report import Optimum
from pipesched.optimizer.optimize_request import Request
from pipesched.optimizer.solve.engines.decide import ENGINES, decide
from pipesched.optimizer.solve.problem import Problem, Question
from pipesched.optimizer.solve.search.state import Limits
from pipesched.support.source import Source
from pipesched.verbs.verify import verify
from tests.depth import deep
from tests.makers.instances import given, placement_of
from tests.oracles.brute import Instance, optimum, random_instance, steps

TRIED = 18  # operations: all orders of this many are tried within a second
DECLINED = {
    "a forward takes no time",
    "I takes memory and neither I nor W takes time",
    "ranks alone do not decide it",
}
"""The outcomes that an engine may report instead of a verdict."""
RULES = {(0, 1): "W", (1, 1): "I", (1, 3): "split:2/3", (-3, 5): "torch"}


def instance(seed: int) -> Instance:
    """Return an instance, every other one small enough to try everything; some ask for the span."""
    rng = random.Random(seed)
    x = random_instance(seed) if seed % 2 else random_instance(seed, ranks=4, microbatches=5)
    ranks = max(max(row) for row in x.rank_of) + 1  # a file ends at the last rank with a stage
    x = replace(x, ranks=ranks, cap=x.cap[:ranks])
    if rng.random() < 0.03:
        x = replace(x, F=[0] * x.stages)
    if rng.random() < 0.5:
        x = replace(x, cap=[2 * cap for cap in x.cap])
    return replace(x, objective="span") if rng.random() < 0.3 and len(x.rank_of) == 1 else x


def asked(x: Instance, limits: Limits) -> Request:
    """Return the instance as a user's request."""
    costs, release, caps = given(x)
    share = release.at_input
    rule = Release.parse(RULES[share.numerator, share.denominator])
    return Request(
        parameters={"p": x.ranks, "m": len(x.route_of)},
        placement=placement_of(x),
        mem_cap=caps,
        release=rule,
        costs=costs,
        objective=x.objective,
        fused=x.fused,
        limits=limits,
    )


@dataclass(frozen=True)
class Seen:
    """The results for one instance. tried: whether everything was tried; unknown: engines that declined."""

    answer: Optimum
    best: int | None
    tried: bool
    unknown: frozenset[str]


def seen(seed: int) -> Seen:
    """Return all answers for one instance; fails if two of them differ."""
    x = instance(seed)
    request = asked(x, Limits(30.0))
    answer = optimize(request)
    problem = answer.instance.problem()
    tried = len(steps(x)) <= TRIED
    best = optimum(x) if tried else least(problem, answer)
    agrees(answer, best)
    declined = {engine for engine in ENGINES if not engine_agrees(engine, problem, best)}
    if answer.value is not None:
        reads_back(answer, request)
    return Seen(answer, best, tried, frozenset(declined))


def least(problem: Problem, answer: Optimum) -> int | None:
    """Return the optimum by an engine that is asked tick after tick below the answer."""
    if answer.value is None:
        return None
    bound = ticks(problem, answer.value)
    while (told := decide(Question(problem, bound - 1, "cadical"))).verdict == "sat":
        bound -= 1
    assert told.verdict == "unsat" or told.reason in DECLINED, told.reason
    return int(problem.time(bound))


def ticks(problem: Problem, value: Fraction | int) -> int:
    """Return a time in ticks; all costs here are whole numbers."""
    exact = value * problem.scale
    assert exact.denominator == 1
    return exact.numerator


def agrees(answer: Optimum, best: int | None) -> None:
    """Infeasible exactly if nothing is feasible; proved means least; no bound is above the least."""
    assert (answer.status == "infeasible") == (best is None)
    if best is not None:
        assert answer.value is not None and answer.lower_bound is not None
        assert answer.lower_bound <= best <= answer.value
        assert answer.status != "proved optimal" or answer.value == best


def engine_agrees(engine: str, problem: Problem, best: int | None) -> bool:
    """Return sat at the optimum, unsat below it; False where it says beforehand that it cannot know."""
    asked = [(400, "unsat")] if best is None else [(ticks(problem, best), "sat"), (ticks(problem, best) - 1, "unsat")]
    said = [(decide(Question(problem, bound, engine)), right) for bound, right in asked]
    for told, right in said:
        assert told.verdict == right or told.reason in DECLINED, (engine, right, told.verdict, told.reason)
    return all(told.verdict == right for told, right in said)


def reads_back(answer: Optimum, request: Request) -> None:
    """The printed file is right, is within the caps, and every claim of it holds or is about other costs."""
    options = Options(costs=request.costs, release=request.release, mem_cap=request.mem_cap)
    report = verify(Source("answer.ps", answer.source), options)
    assert report.ok, str(report)
    assert report.time is not None
    assert (report.time.makespan, report.time.span) == (answer.makespan, answer.span)
    assert all(claim.holds is not False for claim in report.claims)


def all_seen(seeds: range) -> Iterator[tuple[int, Seen]]:
    """Yield each instance with its results."""
    for seed in seeds:
        try:
            yield seed, seen(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {instance(seed)}: {error}") from error


@pytest.mark.parametrize("start", range(0, deep(8), 8))
def test_engines_answers_and_trying_everything_agree(start: int) -> None:
    """Engines agree on random instances with all placements, routes, rules, costs, caps and both objectives."""
    pytest.importorskip("ortools")
    found = [one for _, one in all_seen(range(start, start + 8))]
    assert any(one.tried and one.best is not None for one in found)
    assert any(one.answer.status == "infeasible" for one in found)
    assert sum(one.answer.status == "proved optimal" for one in found) > len(found) // 2


def test_the_instances_are_of_every_kind() -> None:
    """There are instances with both kinds of backward, one chunk and two, two routes, every rule, both objectives,
    uneven stages, and latency."""
    xs = [instance(seed) for seed in range(96)]
    assert {x.fused for x in xs} == {True, False} and {x.objective for x in xs} == {"makespan", "span"}
    assert any(len(x.rank_of) == 2 for x in xs) and any(0 in x.F for x in xs)
    assert any(len(set(x.C)) > 1 for x in xs) and any(len(set(x.takes)) > 1 for x in xs)
    assert any(len(set(x.cap)) > 1 for x in xs)
    assert {asked(x, Limits()).release.name for x in xs} == set(RULES.values())


def main() -> int:
    """Compare many instances; the counts of their kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    differences = 0
    began = time.monotonic()
    for seed in range(options.first, options.first + options.cases):
        try:
            one = seen(seed)
        except (AssertionError, PipeschedError) as error:
            differences += 1
            print(f"seed {seed}: {instance(seed)}: {error}", file=sys.stderr)
            continue
        kinds[one.answer.status] += 1
        kinds["tried in all orders"] += one.tried
        kinds.update(f"{engine} does not know" for engine in one.unknown)
    print(f"{options.cases} instances, {differences} differences, {time.monotonic() - began:.0f} s; {dict(kinds)}")
    return differences > 0


if __name__ == "__main__":
    sys.exit(main())
