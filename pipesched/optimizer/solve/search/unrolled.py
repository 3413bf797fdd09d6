"""Schedules of few microbatches that an engine finds, with a part that repeats, unrolled to the wanted number (`seam`).

    m0 microbatches in C ticks, of which the middle repeats K every P  ──>  m microbatches in C + (m - m0) / K * P ticks

An engine decides m0 = 2p microbatches within a second even where it cannot decide all m microbatches. P begins at the
work of the busiest rank plus half of the best schedule's loss per microbatch. For each P, C starts at the largest value
that could still give a better schedule and falls, halving the distance to the lower bound. Compaction (`justify`)
removes a few more ticks at the ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipesched.optimizer.solve.bounds.lower_bound import cost, lower_bound
from pipesched.optimizer.solve.candidates import Candidate, Pool
from pipesched.optimizer.solve.engines.decide import decide
from pipesched.optimizer.solve.portfolio.justify import Justifier, pushed
from pipesched.optimizer.solve.problem import Problem, Question
from pipesched.optimizer.solve.seam import cut, middle

NAME = "few microbatches, unrolled"
KERNELS = (1, 2)  # microbatches of a kernel
PERIODS = 12  # periods that are tried for each kernel
MOST = 500_000  # most operations x ticks of a question
LIMIT, LOADING = 1_500_000, 10  # steps of a question, and more for each of its variables


def shortened(problem: Problem, microbatches: int) -> Problem:
    """Return the problem of fewer microbatches, with one route and the same ticks."""
    placement = replace(problem.placement, route_of=problem.placement.route_of[:microbatches])
    return replace(problem, placement=placement, length=np.full_like(problem.length, microbatches))


def unrolled(pool: Pool, bound: int, engine: str, seed: int = 0) -> Iterator[Candidate]:
    """Yield better and better orders, and None in between; no orders for two routes, few microbatches or fine ticks.
    pool: the orders to improve on. bound: a lower bound on the objective.
    """
    problem = pool.problem
    if problem.placement.routes > 1:
        return
    few, many = 2 * problem.ranks, problem.placement.microbatches
    work = int(problem.work.max()) // many
    step = max(1, work // 16)
    rates = [(Fraction(k * work + n * step, k), k) for k in KERNELS for n in range(PERIODS)]
    likely = work + Fraction(pool.best - bound, 2 * many)
    rates.sort(key=lambda rate: (abs(rate[0] - likely), rate))
    if 3 * few > 2 * many:
        return
    justifier = Justifier(problem)
    smalls = {n: shortened(problem, n) for n in {few + (many - few) % every for every in KERNELS}}
    for rate, every in rates:
        small = smalls[few + (many - few) % every]
        period, more = int(rate * every), int(rate * (many - small.placement.microbatches))
        most = pool.best - more - 1
        if small.operations * most > MOST:
            continue
        if "_bounds" not in small.__dict__:
            pool.meter.spend(cost(small))
        lower = lower_bound(small).value
        while lower <= most:
            asked = Question(small, most, engine, repeat=middle(small, most, every, period), seed=seed)
            limit = LIMIT + LOADING * small.operations * most
            answer = decide(replace(asked, limit=limit))
            pool.meter.spend(answer.steps)
            if answer.start is None:
                yield NAME, None
                break
            at = middle(small, most, every, period).last + 1
            orders = cut(small, answer.start, at, every, period).unrolled(problem)
            yield pushed(NAME), justifier.push(orders, pool.meter)
            most = min(most - 1, (most + lower) // 2, pool.best - more - 1)
