"""Instances for the optimizer and for the searches in `oracles/brute.py` and `oracles/walk.py`, and schedules for
them."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.optimizer.solve.problem import Problem, Sizes, build
from tests.oracles.brute import Instance, Step, steps
from tests.oracles.walk import Case

PART = Fraction(1, 15)
"""The unit in which instances count memory."""


def _column(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def placement_of(x: Instance) -> Placement:
    return Placement(np.array(x.rank_of, dtype=np.int32), np.array(x.route_of, dtype=np.int32), x.ranks)


def problem_of(x: Instance) -> Problem:
    """Return the problem in whole numbers, built directly."""
    ticks = {op: _column(getattr(x, op.name)) for op in (Op.F, Op.I, Op.W, Op.B)}
    takes, at_input, at_weight, cap = map(_column, (x.takes, x.at_input, x.at_weight, x.cap))
    frees = {Op.I: at_input, Op.W: at_weight, Op.B: takes}
    sizes = Sizes(Fraction(1), ticks, _column(x.C), PART, {Op.F: takes}, frees, cap)
    return build(placement_of(x), sizes, fused=x.fused, objective=x.objective)


def given(x: Instance) -> tuple[Costs, Release, tuple[Fraction, ...]]:
    """Return the costs, release rule and caps in a user's form."""
    rows = {key: tuple(map(Fraction, getattr(x, key))) for key in ("F", "I", "W", "B", "C")}
    held = tuple(PART * amount * x.stages / x.ranks for amount in x.takes)
    share = Fraction(x.at_input[0], x.takes[0])
    return Costs({**rows, "M": held}), Release("given", share, 1 - share), tuple(PART * cap for cap in x.cap)


def simulated(x: Instance, orders: list[list[Compute]]) -> int | None:
    """Return the makespan of complete orders within the caps, one microbatch of memory at a time; else None."""
    known = {step.name: step for step in steps(x)}
    ends: dict[tuple[str, int, int], int] = {}
    at, clock, held = [0] * x.ranks, [0] * x.ranks, [0] * x.ranks
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                one = order[at[rank]]
                step = known.get((one.op.name, one.stage, one.microbatch))
                if step is None or step.rank != rank or step.name in ends or (step.needs and step.needs not in ends):
                    break
                held[rank] += step.start
                if max(held[rank], held[rank] + step.end) > x.cap[rank]:
                    return None
                held[rank] += step.end
                clock[rank] = max(clock[rank], ends[step.needs] + step.message if step.needs else 0) + step.work
                ends[step.name] = clock[rank]
                at[rank], moved = at[rank] + 1, True
    return max(clock) if len(ends) == len(known) and at == [len(order) for order in orders] else None


def some_orders(x: Instance, rng: random.Random, tries: int = 20) -> list[list[Compute]] | None:
    """Return the best of some random orders, or one microbatch after another; None if all exceed the caps."""
    alone: list[list[Compute]] = [[] for _ in range(x.ranks)]
    for step in steps(x):
        alone[step.rank].append(_compute(step))
    found = [alone, *(_by_chance(x, rng) for _ in range(tries))]
    values = [(value, n) for n, orders in enumerate(found) if (value := simulated(x, orders)) is not None]
    return found[min(values)[1]] if values else None


def _by_chance(x: Instance, rng: random.Random) -> list[list[Compute]]:
    orders: list[list[Compute]] = [[] for _ in range(x.ranks)]
    done: set[tuple[str, int, int]] = set()
    held, left = [0] * x.ranks, steps(x)
    while left:
        ready = [
            step
            for step in left
            if (not step.needs or step.needs in done) and held[step.rank] + step.start <= x.cap[step.rank]
        ]
        if not ready:
            break
        step = rng.choice(ready)
        left.remove(step)
        done.add(step.name)
        held[step.rank] += step.start + step.end
        orders[step.rank].append(_compute(step))
    return orders


def _compute(step: Step) -> Compute:
    kind, stage, microbatch = step.name
    return Compute(Op[kind], stage, microbatch)


def schedule_of(x: Instance, orders: list[list[Compute]]) -> Schedule:
    return Schedule.from_orders(orders, placement_of(x))


def problem_of_case(case: Case) -> Problem:
    """Return a case of `walk` as a problem."""
    size = np.array(case.size)
    at_input, at_weight = (np.array([int(x * share) for x in case.size]) for share in case.shares)
    f, i, w, c, caps = map(np.array, (case.forward, case.input, case.weight, case.message, case.caps))
    ticks, frees = {Op.F: f, Op.I: i, Op.W: w, Op.B: i + w}, {Op.I: at_input, Op.W: at_weight, Op.B: size}
    sizes = Sizes(Fraction(1), ticks, c, Fraction(1, 30), {Op.F: size}, frees, caps)
    return build(Placement(np.array(case.routes), np.array(case.route_of), case.ranks), sizes, fused=case.fused)


def linear(ranks: int, microbatches: int, cap: int, *, folded: bool = False) -> Problem:
    """Return the unit costs, split, cap in activations; stages 0 .. p-1, and back where folded."""
    stages = (*range(ranks), *(reversed(range(ranks)) if folded else ()))
    one = (1,) * len(stages)
    caps, sizes = (cap * 30,) * ranks, (30,) * len(stages)
    none = (0,) * len(stages)
    case = Case(ranks, (stages,), (0,) * microbatches, one, one, one, none, sizes, "W", caps, False)
    return problem_of_case(case)
