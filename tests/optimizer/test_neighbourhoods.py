"""When CP-SAT reorders a section of an order, the result is valid, no longer than before, and the same for the same
seed; for a section that covers the whole order it is optimal."""

from __future__ import annotations

from itertools import islice

import pytest

from pipesched.model.costs import Costs
from pipesched.model.release import AT_W
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.candidates import Pool
from pipesched.optimizer.solve.instance import Instance, placement_at
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.portfolio.banker import one_by_one
from pipesched.optimizer.solve.portfolio.neighbourhoods import available, neighbourhoods
from pipesched.optimizer.solve.problem import Orders, Problem
from tests.depth import deep
from tests.makers.instances import problem_of
from tests.oracles.brute import optimum, random_instance, steps

pytestmark = pytest.mark.skipif(not available(), reason="needs OR-Tools")


def improved(problem: Problem, questions: int, seed: int = 0) -> list[Orders]:
    """Return the orders found by a number of questions, from one microbatch after another."""
    pool, found = Pool(problem, Meter()), []
    pool.offer("one by one", one_by_one(problem))
    for name, orders in islice(neighbourhoods(pool, seed), questions):
        if orders is not None:
            assert pool.offer(name, orders)
            found.append(orders)
    return found


def vee(objective: str) -> Problem:
    placement = placement_at("vee", {"p": 3, "v": 2, "m": 6})
    costs = Costs.parse("F=[3,4,5,3,4,6],I=[5,4,3,6,5,4],W=2,C=1")
    return Instance(placement, costs, AT_W, None, False, objective).problem()


@pytest.mark.parametrize("objective", ["makespan", pytest.param("span", marks=pytest.mark.nightly)])
def test_each_is_valid_and_shorter(objective: str) -> None:
    """Every order keeps all rules, by the check of a table of starts, and is shorter than the orders before it; the
    same seed finds the same orders, another seed different ones.
    """
    problem = vee(objective)
    found = improved(problem, 60)
    values = [problem.value(run) for run in (convert.run(problem, one) for one in found) if run is not None]
    assert len(values) == len(found) > 3 and values == sorted(set(values), reverse=True)
    for one, value in zip(found, values, strict=True):
        start = convert.run(problem, one)
        assert start is not None and not convert.fault(problem, start, value)
        assert not bool((convert.peak(problem, one) > problem.cap).any())
    assert improved(problem, 60) == found != improved(problem, 60, seed=7)


def test_the_whole_as_a_window_is_optimal() -> None:
    """In small problems the last window of a round contains all operations, and finds the optimum of all schedules."""
    small = [seed for seed in range(200) if 7 <= len(steps(random_instance(seed))) <= 14][: deep(10)]
    seen = 0
    for seed in small:
        x = random_instance(seed)
        best, problem = optimum(x), problem_of(x)
        if best is None or x.objective != "makespan" or not bool((problem.duration > 0).all()):
            continue
        pool = Pool(problem, Meter())
        pool.offer("one by one", one_by_one(problem))
        for name, orders in islice(neighbourhoods(pool), 400):
            if orders is not None:
                pool.offer(name, orders)
        assert pool.best == best, seed
        seen += 1
    assert seen > 3
