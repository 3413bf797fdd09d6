"""No schedule is shorter than its lower bound, and no schedule exists below the least cap."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipesched.model.columns import Ints
from pipesched.model.costs import Costs
from pipesched.model.placement import Placement
from pipesched.model.release import AT_W, Release
from pipesched.optimizer.solve.bounds.least_cap import infeasible, least_cap
from pipesched.optimizer.solve.bounds.longest_paths import links, paths
from pipesched.optimizer.solve.bounds.lower_bound import busiest, lower_bound
from pipesched.optimizer.solve.instance import Instance as Asked
from pipesched.optimizer.solve.problem import Problem
from tests.depth import deep, in_usual_run
from tests.makers.instances import problem_of
from tests.makers.placements import linear
from tests.oracles.brute import optimum, random_instance, steps

ROWS = json.loads((Path(__file__).parents[1] / "data" / "zb_iclr_table5_6.json").read_text("utf-8"))["rows"]
SMALL = [seed for seed in range(deep(450, usual=300)) if len(steps(random_instance(seed))) <= 14]


@pytest.fixture(scope="module")
def optima() -> dict[int, int | None]:
    """Best makespan of every small instance, None if no schedule is within the caps."""
    return {seed: optimum(random_instance(seed)) for seed in SMALL}


def test_no_bound_is_above_the_optimum(optima: dict[int, int | None]) -> None:
    """On any placement, with fused and split backward, all release rules, uneven costs and caps."""
    found = {seed: lower_bound(problem_of(random_instance(seed))) for seed in SMALL if optima[seed] is not None}
    assert {seed: bound for seed, bound in found.items() if bound.value > (optima[seed] or 0)} == {}
    assert {bound.kind for bound in found.values()} == {"path", "one-machine", "ends"}


def test_bounds_are_often_the_optimum(optima: dict[int, int | None]) -> None:
    """A true bound that is far off is useless: nine in ten small instances meet theirs."""
    solved = [seed for seed in SMALL if optima[seed] is not None]
    met = [seed for seed in solved if lower_bound(problem_of(random_instance(seed))).value == optima[seed]]
    assert len(met) > 0.9 * len(solved)


def test_microbatches_may_as_well_keep_their_order(optima: dict[int, int | None]) -> None:
    """By the FIFO lemma, one of the best schedules runs every kind of a stage in microbatch order."""
    assert {seed for seed in SMALL if optimum(random_instance(seed), fifo=True) != optima[seed]} == set()


def test_least_cap_is_the_least(optima: dict[int, int | None]) -> None:
    """A schedule exists exactly if every rank's cap allows a single microbatch."""
    for seed in SMALL:
        problem = problem_of(random_instance(seed))
        assert (infeasible(problem) is None) == (optima[seed] is not None)
        assert (infeasible(problem) is None) == bool((least_cap(problem) <= problem.cap).all())
    assert {optima[seed] is None for seed in SMALL} == {True, False}


def test_the_reason_names_the_rank_and_what_it_needs() -> None:
    """A V placement on two ranks needs two of its chunks on each, one microbatch in all."""
    assert infeasible(_vee(2, 4, 1)) == (
        "rank 0 must be able to hold 1: when F of stage 3 has run, it holds stages 0, 3 of a microbatch"
    )
    assert infeasible(_vee(2, 4, 2)) is None


def test_the_busiest_set_is_the_best_of_all_sets() -> None:
    """Jackson's schedule finds the largest of least head + work + least tail, with two numbers that
    describe the set.
    """
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(1, 8))
        head, work, tail = rng.integers(0, 10, n), rng.integers(0, 4, n), rng.integers(-3, 10, n)
        found = busiest(head, work, tail)
        sets = [list(s) for size in range(1, n + 1) for s in combinations(range(n), size)]
        assert found.value == max(head[s].min() + work[s].sum() + tail[s].min() for s in sets)
        assert found.work == work[(head >= found.head) & (tail >= found.tail)].sum()


@pytest.mark.parametrize("seed", range(deep(20)))
def test_heads_and_tails_are_longest_paths(seed: int) -> None:
    """No edge can be relaxed further, and each value comes from an edge or a start."""
    problem = problem_of(random_instance(seed, ranks=4, microbatches=6))
    if infeasible(problem):
        return
    found = paths(problem)
    head, rest = np.zeros(problem.operations, dtype=np.int64), problem.duration[problem.sequence]
    for _ in range(problem.operations):
        for link in links(problem):
            one, two = (np.arange(problem.first[q], problem.first[q + 1]) for q in (link.earlier, link.later))
            one, two = one[: max(0, len(one) - link.offset)], two[link.offset :]
            head[two] = np.maximum(head[two], head[one] + link.delay)
            rest[one] = np.maximum(rest[one], rest[two] + link.delay)
    assert (found.head == head).all()
    assert (found.tail == rest - problem.duration[problem.sequence]).all()


def test_every_schedule_keeps_its_windows() -> None:
    """Random schedules keep heads and tails, with the links of memory."""
    schedules = 0
    for seed in range(250):
        x = random_instance(seed, ranks=3, microbatches=6)
        problem = problem_of(x)
        if infeasible(problem):
            continue
        found = paths(problem)
        for start in _by_chance(problem, random.Random(seed)):
            rest = problem.value(start) - start - problem.duration[problem.sequence]
            assert (start >= found.head).all() and (rest >= found.tail).all(), seed
            schedules += 1
    assert schedules > 500


def _by_chance(problem: Problem, rng: random.Random) -> Iterator[Ints]:
    """Yield the starts of schedules that always run a random next operation whose input and memory are available."""
    before = dict(
        zip(problem.after.tolist(), zip(problem.before.tolist(), problem.lag.tolist(), strict=True), strict=True)
    )
    for _ in range(10):
        start, done = np.zeros(problem.operations, dtype=np.int64), [0] * problem.sequences
        clock, held = [0] * problem.ranks, [0] * problem.ranks
        while choices := [q for q in range(problem.sequences) if _ready(problem, q, done, held, before)]:
            q = rng.choice(choices)
            rank, here = int(problem.rank[q]), int(problem.first[q]) + done[q]
            if q in before:
                one, lag = before[q]
                end = int(start[problem.first[one] + done[q]] + problem.duration[one])
                clock[rank] = max(clock[rank], end + lag)
            start[here] = clock[rank]
            clock[rank] += int(problem.duration[q])
            held[rank] += int(problem.takes[q] - problem.frees[q])
            done[q] += 1
        if done == problem.length.tolist():
            yield start


def _ready(problem: Problem, q: int, done: list[int], held: list[int], before: dict[int, tuple[int, int]]) -> bool:
    if done[q] == problem.length[q] or (q in before and done[before[q][0]] <= done[q]):
        return False
    change = int(problem.takes[q] - problem.frees[q])
    return bool(held[int(problem.rank[q])] + max(change, int(problem.takes[q])) <= problem.cap[problem.rank[q]])


def _vee(ranks: int, microbatches: int, chunks: int) -> Problem:
    line = np.arange(ranks, dtype=np.int32)
    placement = Placement(np.concatenate([line, line[::-1]])[None], np.zeros(microbatches, dtype=np.int32), ranks)
    return _asked(placement, chunks, Costs())


def _asked(placement: Placement, chunks: int, costs: Costs) -> Problem:
    """Return a problem with a cap in chunks."""
    cap = Fraction(chunks * placement.ranks, placement.stages)
    return Asked(placement, costs, AT_W, (cap,) * placement.ranks, False, "makespan").problem()


@pytest.mark.parametrize("ranks", range(2, 6 if in_usual_run() else 6 + deep(1)))
def test_a_vee_waits_for_its_first_gradient(ranks: int) -> None:
    """Unit costs: 6m of work; before the first gradient at 3p - 1 only as many F as fit; after the last F, with 3p to
    go, only I and W of as many chunks.
    """
    p, m = ranks, 2 * ranks
    for k in range(2, 2 * p + 1):
        assert lower_bound(_vee(p, m, k)).value >= 6 * m + max(0, 3 * p - 1 - k) + max(0, 3 * p - 2 * k)


@pytest.mark.parametrize(
    ("ranks", "microbatches", "chunks", "best"),
    [(4, 12, 5, 80), (4, 12, 6, 77), (4, 12, 7, 76), (4, 12, 8, 75), (6, 12, 8, 83), (8, 16, 9, 116), (8, 24, 8, 167)],
)
def test_the_bound_is_the_optimum_that_engines_found(ranks: int, microbatches: int, chunks: int, best: int) -> None:
    """V placement, unit costs: the makespans that SAT engines found, with one tick less refuted."""
    assert lower_bound(_vee(ranks, microbatches, chunks)).value == best


@pytest.mark.parametrize(("cap", "best"), [*enumerate([272, 145, 102, 79, 68, 61, 58, 55, 55], 1)])
def test_one_stage_a_rank(cap: int, best: int) -> None:
    """p = 8, m = 16, unit costs: never above proved makespans; near them from cap (2p + 1) / 3 on, where round trips do
    not slow a rank down.
    """
    line = np.arange(8, dtype=np.int32)[None]
    bound = lower_bound(_asked(Placement(line, np.zeros(16, dtype=np.int32), 8), cap, Costs()))
    assert bound.value <= best
    assert cap < 6 or best - bound.value <= 1


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=pytest.mark.nightly if row["m"] > 48 else (), id=f"{row['model']}-m{row['m']}")
        for row in ROWS[:: max(1, 4 - deep(1))]
    ],
)
def test_published_schedules_reach_the_bound(row: dict[str, Any]) -> None:
    """Measured costs of the zero-bubble paper (ICLR 2024, tables 5 and 6), microseconds, span: at cap p its automatic
    schedules are optimal, at cap 2p within one per cent.
    """
    p, m = row["p"], row["m"]
    share = Fraction(-row["mem_B"], row["mem_F"])
    times = {
        key: Fraction(round(1000 * row[name]))
        for key, name in zip("FIWC", ("T_F", "T_B", "T_W", "T_comm"), strict=True)
    }
    for caps, name, least in ((p, "zb-1p", 1), (2 * p, "zb-2p", Fraction(99, 100))):
        asked = Asked(linear(p, m), Costs(times), Release("", share, 1 - share), (Fraction(caps),) * p, False, "span")
        problem = asked.problem()
        value = problem.time(lower_bound(problem).value)
        assert least * row["cost_microsec"][name] <= value <= row["cost_microsec"][name]


def test_large_sizes_are_told_at_once() -> None:
    """At p = 64, m = 1024 and cap p, ZB-H1 is optimal, with makespan (p - 1) + 3m."""
    line = np.arange(64, dtype=np.int32)[None]
    problem = _asked(Placement(line, np.zeros(1024, dtype=np.int32), 64), 64, Costs())
    assert lower_bound(problem).value == 63 + 3 * 1024
