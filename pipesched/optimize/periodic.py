"""The search for a seam (`seam`): a few microbatches, a periodic window, and the bound itself as objective.

    period = K * work of the busiest rank      the least there can be; with the bound met: optimal for every m
    period > that                              where memory or round trips do not let a rank be busy: scanned upward

Sizes from one and a half times the ranks up are tried side by side, the smallest kernel first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from pipesched.model.columns import Ints
from pipesched.model.window import Window
from pipesched.optimize import convert
from pipesched.optimize.bounds import Bound, lower_bound
from pipesched.optimize.engines.pool import Pool
from pipesched.optimize.instance import Instance
from pipesched.optimize.problem import Problem
from pipesched.optimize.question import Question
from pipesched.optimize.seam import Seam, cut, find_seam, holds, window
from pipesched.optimize.search import Limits, State

_FACTORS = (1.5, 2, 2.5, 3, 4, 5)
_MOST = 8  # microbatches of a kernel whose period is longer than the work
_LIMIT = 20.0  # seconds for one question


@dataclass(frozen=True, eq=False)
class Periodic:
    """A seam, and whether the schedule is optimal for every number of microbatches that it reaches.

    bound: at the seam's own size; found_by: what found the schedule.
    """

    seam: Seam
    optimal: bool
    bound: Bound
    found_by: str

    def reachable(self, microbatches: int) -> int:
        """The least number of microbatches from this one up that the seam reaches."""
        return self.seam.microbatches + self.seam.every * max(
            0, ceil((microbatches - self.seam.microbatches) / self.seam.every)
        )

    def printed(self, problem: Problem) -> Window:
        """Where the kernel stands in the unrolled orders."""
        high = tuple(len(word) for word in self.seam.before)
        low = tuple(end - len(kernel) for end, kernel in zip(high, self.seam.kernel, strict=True))
        copies = (problem.placement.microbatches - self.seam.microbatches) // self.seam.every
        return Window(self.seam.every, low, high, copies)

    def state_at(self, problem: Problem, started: float) -> State:
        """The unrolled schedule as the result of a search."""
        state = State(problem, lower_bound(problem), started)
        state.offer(self.found_by, self.seam.unrolled(problem))
        state.stopped = "" if state.proved else "the period is longer than the work"
        return state


@dataclass(frozen=True)
class Try:
    """A question for a seam."""

    problem: Problem
    bound: Bound
    objective: int
    every: int
    period: int


def periodic(
    instance: Instance, limits: Limits, progress: Callable[[State], None] = lambda state: None
) -> Periodic | None:
    """A schedule for every number of microbatches, optimal for all if there is a proof; None if none was found."""
    started = time.monotonic()
    with Pool(limits.workers) as pool:
        for tries in (_at_the_bound(instance, limits), _above(instance, limits)):
            found = _first(instance, tries, pool, limits, started, progress)
            if found is not None:
                return found
    return None


def _first(
    instance: Instance,
    tries: Iterator[Try | Periodic],
    pool: Pool,
    limits: Limits,
    started: float,
    progress: Callable[[State], None],
) -> Periodic | None:
    """Ask as many at a time as there are workers, and take the first that holds."""
    running: dict[int, tuple[Try, float]] = {}
    more = True
    while (more or running) and time.monotonic() - started < limits.seconds:
        while more and pool.idle:
            one = next(tries, None)
            more = one is not None
            if isinstance(one, Periodic):
                return one
            if one is not None:
                asked = window(one.problem, one.objective, one.every, one.period)
                engine = {"z3": "z3"}.get(limits.engine, "cadical")
                ticket = pool.submit(Question(one.problem, one.objective, engine, window=asked))
                running[ticket] = one, time.monotonic()
        arrived = pool.wait(0.5)
        if arrived is not None:
            one, _ = running.pop(arrived[0])
            progress(State(one.problem, one.bound, started, doing=_named(one)))
            if arrived[1].start is not None:
                found = _made(instance, one, arrived[1].start, arrived[1].engine)
                if found is not None:
                    return found
        for ticket, (_, since) in list(running.items()):
            if time.monotonic() - since > _LIMIT:
                pool.cancel(ticket)
                del running[ticket]
    return None


def _named(one: Try) -> str:
    return f"m={one.problem.placement.microbatches}, period {one.problem.time(one.period)} for {one.every}"


def _made(instance: Instance, one: Try, start: Ints, engine: str) -> Periodic | None:
    _, last, every, period = window(one.problem, one.objective, one.every, one.period)
    seam = cut(one.problem, start, last + 1, every, period)
    return _checked(instance, seam, one.bound, engine)


def _checked(instance: Instance, seam: Seam, bound: Bound, found_by: str) -> Periodic | None:
    """The seam, if the theorem shows at a few sizes; optimal if the bound grows with it."""
    if not all(holds(seam, instance.problem, copies) for copies in (0, 1, 2, 5)):
        return None
    grows = all(
        lower_bound(instance.problem(seam.microbatches + copies * seam.every)).value
        == seam.value + copies * seam.period
        for copies in (0, 1, 2, 3)
    )
    return Periodic(seam, grows, bound, found_by)


def _work(problem: Problem) -> int:
    """Of the busiest rank for one microbatch, in ticks."""
    return int(problem.work.max()) // problem.placement.microbatches


def _at_the_bound(instance: Instance, limits: Limits) -> Iterator[Try | Periodic]:
    """Small sizes, with the least period; a known order that meets the bound and repeats itself comes first."""
    ranks = instance.placement.ranks
    sizes = sorted({max(2, ceil(factor * ranks)) for factor in _FACTORS})
    for every in (1, 2, 3):
        for microbatches in sizes:
            problem = instance.problem(microbatches)
            bound = lower_bound(problem)
            if every == 1:
                yield from _from_known(instance, problem, bound, limits)
            yield Try(problem, bound, bound.value, every, every * _work(problem))


def _from_known(instance: Instance, problem: Problem, bound: Bound, limits: Limits) -> Iterator[Periodic]:
    if not limits.portfolio:
        return
    from pipesched.optimize.portfolio import orders

    for name, order in orders(problem, 0.2):
        if convert.value(problem, order) == bound.value:
            start = convert.run(problem, order)
            seam = None if start is None else find_seam(problem, start)
            found = None if seam is None else _checked(instance, seam, bound, name)
            if found is not None and found.optimal:
                yield found
            return


def _above(instance: Instance, limits: Limits) -> Iterator[Try | Periodic]:
    """Longer periods, shortest per microbatch first, with room enough before and after."""
    ranks = instance.placement.ranks
    problem = instance.problem(max(3 * _MOST, 4 * ranks))
    bound = lower_bound(problem)
    work = _work(problem)
    periods = sorted(
        (
            (period / every, every, period)
            for every in range(1, _MOST + 1)
            for period in range(every * work + 1, 2 * every * work + 1)
        ),
    )
    for _, every, period in periods:
        yield Try(
            problem,
            bound,
            bound.value + 4 * period + period * problem.placement.microbatches // every // 2,
            every,
            period,
        )
