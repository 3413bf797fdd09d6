"""The search for the least span lets a rank delay its start by choosing a different first microbatch.

    trying everything   every order of every rank, run as early as it goes, microbatches in any order (`brute`)
    by hand             an order that the answer once denied

More of it, in both objectives: ``python -m tests.core.test_spans --cases 1000 --objective span``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

import pipesched
from pipesched.model.columns import Ints
from pipesched.optimizer.optimize import optimize
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.longest_paths import within
from pipesched.optimizer.solve.bounds.lower_bound import rank_bounds
from pipesched.optimizer.solve.portfolio.banker import one_by_one
from pipesched.optimizer.solve.portfolio.late_start import labelled
from pipesched.optimizer.solve.problem import Orders, Problem
from pipesched.optimizer.solve.search.state import Limits
from tests.depth import deep
from tests.makers.instances import problem_of
from tests.optimizer.test_cross_check import asked
from tests.oracles.brute import Instance, optimum, steps

SIZES = ((2, 1, 3), (2, 1, 4), (2, 2, 2), (3, 1, 2), (3, 1, 3))
"""p, v and m: at most 18 operations with a fused backward, 24 with a split one."""
LATE = """rank 0: F0.0 F0.1 F2.1 F0.2 F2.0 I2.1 W2.1 F2.2 I0.1 W0.1 I2.0 W2.0 I0.0 W0.0 I2.2 W2.2 I0.2 W0.2
rank 1: F1.1 F1.0 F3.1 I3.1 F1.2 I1.1 F3.0 I3.0 W1.1 I1.0 F3.2 I3.2 W1.0 I1.2 W1.2 W3.0 W3.1 W3.2
"""


def random_span(seed: int, objective: str = "span", most: int = 18) -> Instance:
    """Return the uneven costs, latency, caps by rank, fused and split; stages in line, around, there and back, or at
    random."""
    rng = random.Random(seed)
    while True:
        p, v, m = rng.choice(SIZES)
        line = list(range(p))
        ways = [line * v, line + line[::-1], rng.sample(line * v, p * v)] if v > 1 else [line, rng.sample(line, p)]
        ranks, high = rng.choice(ways), rng.choice((3, 5, 9))
        stages = len(ranks)
        forward, inner, weight = ([rng.randint(1, high) for _ in ranks] for _ in range(3))
        message = [rng.randint(0, 3) for _ in ranks] if rng.random() < 0.5 else [0] * stages
        cap = [15 * rng.randint(v, 2 * v + m) for _ in line]
        whole = [i + w for i, w in zip(inner, weight, strict=True)]
        x = Instance(
            [ranks], [0] * m, p, rng.random() < 0.5, forward, inner, weight, whole, message,
            [15] * stages, [0] * stages, [15] * stages, cap, objective,
        )  # fmt: skip
        if len(steps(x)) <= most:
            return x


def differs(x: Instance) -> str:
    """Return the fault of the answer to an instance, or empty."""
    answer, best = optimize(asked(x, Limits(60.0))), optimum(x)
    if best is None:
        return "" if answer.value is None else f"{answer.verdict}, and there is no schedule"
    right = answer.value == best and answer.lower_bound == best
    return "" if right else f"{answer.verdict}; the least is {best}"


def found(seeds: range, objective: str, most: int = 18) -> Iterator[str]:
    for seed in seeds:
        if wrong := differs(random_span(seed, objective, most)):
            yield f"seed {seed}: {wrong}"


@pytest.mark.parametrize("objective", ["span", "makespan"])
def test_the_least_of_all_orders(objective: str) -> None:
    """Neither the order of microbatches nor the first start of a rank is assumed."""
    assert not list(found(range(deep(3)), objective))


@pytest.mark.nightly
def test_a_rank_begins_late_where_that_is_shorter() -> None:
    """On a loop with p=2, v=2, m=3, rank 1 begins with microbatch 1 and does not wait for it; the span is its work,
    36."""
    costs, release = "F=[4,2,1,3],I=1,W=[2,2,2,3]", "W"
    by_hand = pipesched.verify(pipesched.Source("late.txt", LATE), mem_cap=[Fraction(5, 2)] * 2, costs=costs)
    answer = pipesched.optimize(
        p=2, v=2, m=3, placement="loop", mem_cap=Fraction(5, 2), objective="span", costs=costs, release=release
    )
    assert by_hand.time is not None and answer.span == by_hand.time.span == 36
    assert answer.lower_bound == 36


@pytest.mark.parametrize("seed", range(deep(30)))
def test_no_schedule_is_outside_its_windows_and_below_its_bounds(seed: int) -> None:
    """The spans of random orders are not below the bound of any rank; and their starts, counted from the first of all,
    are within the windows of their span.
    """
    problem = problem_of(random_span(seed, most=36))
    bound = max(one.value for rank in range(problem.ranks) for one in rank_bounds(problem, rank))
    for start in some_starts(problem, random.Random(seed)):
        assert problem.value(start) >= bound
        low, high = within(problem, problem.value(start))
        assert (low <= start).all() and (start <= high).all()


def some_starts(problem: Problem, rng: random.Random) -> Iterator[Ints]:
    """Yield the starts of random orders that finish within the caps."""
    for _ in range(60):
        turn = sorted(range(problem.operations), key=lambda x: int(problem.index[x]) + 2 * rng.random())
        orders = [[x for x in turn if problem.rank[problem.sequence[x]] == rank] for rank in range(problem.ranks)]
        start = convert.run(problem, in_sequence(problem, orders))
        if start is not None and (convert.peak(problem, orders) <= problem.cap).all():
            yield start


def in_sequence(problem: Problem, orders: Orders) -> Orders:
    """Return the orders with each sequence in microbatch order."""
    words = [problem.sequence[np.array(order, dtype=np.int64)] for order in orders]
    return labelled(problem, words, {})


@pytest.mark.parametrize("seed", range(deep(12)))
def test_another_first_microbatch_is_the_same_work(seed: int) -> None:
    """Every rank runs the same operations of the same stages in the same places, each microbatch once."""
    problem = problem_of(random_span(seed, most=36))
    rng, orders = random.Random(seed), one_by_one(problem)
    words = [problem.sequence[np.array(order, dtype=np.int64)] for order in orders]
    made = labelled(problem, words, {rank: rng.randrange(2) for rank in range(problem.ranks)})
    assert all((problem.sequence[np.array(a)] == b).all() for a, b in zip(made, words, strict=True))
    assert sorted(x for order in made for x in order) == list(range(problem.operations))
    assert labelled(problem, words, {}) == orders


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=18, help="operations")
    parser.add_argument("--objective", choices=("span", "makespan"), default="span")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.cases)
    wrong = list(found(seeds, options.objective, options.most))
    print(*wrong, f"{options.cases} instances of {options.objective}, {len(wrong)} differences", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
