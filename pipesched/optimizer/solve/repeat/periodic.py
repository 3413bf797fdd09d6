"""Searches for a seam (`seam`) in schedules of few microbatches with a repeating kernel, at the lower bound.

    period = K * work of the busiest rank      the least possible; if the bound is met too: optimal for every m
    period > K * work of the busiest rank      if memory or round trips keep every rank from being busy: scanned upward

Numbers of microbatches from 1.5 times the number of ranks up are tried, with the smallest kernel first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil

import numpy as np

from pipesched.lift.kernel import Kernel
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.longest_paths import framed, links, longest, memory_links
from pipesched.optimizer.solve.bounds.lower_bound import Bound, lower_bound
from pipesched.optimizer.solve.engines.worker_pool import Pool
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.problem import Answer, Problem, Question
from pipesched.optimizer.solve.seam import Seam, cut, find_seam, holds, middle
from pipesched.optimizer.solve.search.state import Limits, State

_FACTORS = (1.5, 2, 2.5, 3, 4, 5)
_MOST = 8  # limit on the microbatches of a kernel whose period is longer than the work
_STEPS = 40  # steps between longer periods, as parts of a microbatch's time
_LIMIT, _LOADING = 3_000_000, 10  # steps per question, and more per operation and tick of it
_KNOWN = 200_000  # steps of heuristics
_AHEAD = 2  # questions per worker, one of which waits
_WAIT = 0.5  # seconds between two reports of progress


@dataclass(frozen=True, eq=False)
class Periodic:
    """A seam, and whether its schedule is optimal for every number of microbatches that the seam reaches.

    bound: the lower bound at the seam's own size; found_by: the engine or heuristic; rate: the result of `least_rate`.
    """

    seam: Seam
    optimal: bool
    bound: Bound
    found_by: str
    rate: Fraction

    def reachable(self, microbatches: int) -> int:
        """Return the least number of microbatches that the seam reaches and that is at least `microbatches`."""
        return self.seam.microbatches + self.seam.every * max(
            0, ceil((microbatches - self.seam.microbatches) / self.seam.every)
        )

    def printed(self, problem: Problem) -> Kernel:
        """Return the position of the kernel in the unrolled orders."""
        high = tuple(len(word) for word in self.seam.before)
        low = tuple(end - len(kernel) for end, kernel in zip(high, self.seam.kernel, strict=True))
        copies = (problem.placement.microbatches - self.seam.microbatches) // self.seam.every
        return Kernel(self.seam.every, low, high, copies)

    def state_at(self, problem: Problem) -> State:
        """Return the state of a search that found the unrolled schedule."""
        state = State(problem, lower_bound(problem))
        state.offer(self.found_by, self.seam.unrolled(problem))
        if not state.proved:
            period, every = problem.said(self.seam.period), self.seam.every
            rate = problem.unit.text(self.rate / problem.scale)
            state.stopped = (
                f"in the long run {f'{every} microbatches take' if every > 1 else 'a microbatch takes'} {period}; "
                f"no schedule takes less than {rate} per microbatch"
            )
        return state


@dataclass(frozen=True)
class Try:
    """An attempt at a seam: a schedule of at most `objective` ticks that repeats `every` microbatches per `period`."""

    problem: Problem
    bound: Bound
    objective: int
    every: int
    period: int


def periodic(
    instance: Instance,
    limits: Limits,
    progress: Callable[[State], None] = lambda state: None,
    meter: Meter | None = None,
) -> Periodic | None:
    """Search for a schedule for every number of microbatches, if possible one that is proved optimal for all of them;
    return None if the search finds none.

    meter: counts steps up to its limit; None for no limit.
    """
    with Pool(limits.workers) as pool:
        first = partial(_first, instance, pool=pool, limits=limits, progress=progress, meter=meter or Meter())
        found = first(_at_the_bound(instance, limits))
        if found is None:
            found = first(_above(instance))
            while found is not None and (shorter := first(_less(instance, found))) is not None:
                found = shorter  # the same period, with fewer operations before and after the kernel
    return found


def _first(
    instance: Instance,
    tries: Iterator[Try | Periodic],
    *,
    pool: Pool,
    limits: Limits,
    progress: Callable[[State], None],
    meter: Meter,
) -> Periodic | None:
    """Ask several questions in parallel; return the seam of the first attempt, in order, that succeeds."""
    asked, answers = deque[tuple[int, Try | Periodic]](), dict[int, Answer]()
    try:
        while not meter.late:
            while len(asked) < _AHEAD * limits.workers and (one := next(tries, None)) is not None:
                asked.append((0 if isinstance(one, Periodic) else pool.submit(_question(one, limits, meter)), one))
            if not asked:
                return None
            ticket, one = asked[0]
            if isinstance(one, Periodic):
                return one
            if ticket in answers:
                asked.popleft()
                answer = answers.pop(ticket)
                meter.spend(answer.steps)
                found = _made(instance, one, answer)
                if found is not None:
                    return found
            else:
                pool.listen(_WAIT)
                answers |= pool.arrived()
                name = f"m={one.problem.placement.microbatches}, period {one.problem.said(one.period)} for {one.every}"
                progress(State(one.problem, one.bound, doing=name))
        return None
    finally:
        for ticket, _ in asked:
            pool.cancel(ticket)


def _question(one: Try, limits: Limits, meter: Meter) -> Question:
    asked = middle(one.problem, one.objective, one.every, one.period)
    engine = "z3" if limits.engine == "z3" else "cadical"
    steps = min(meter.left, _LIMIT + _LOADING * one.problem.operations * one.objective)
    return Question(one.problem, one.objective, engine, repeat=asked, limit=int(steps), seed=limits.seed)


def _made(instance: Instance, one: Try, answer: Answer) -> Periodic | None:
    """Cut the seam from an answer; None if there is no schedule, or if it does not repeat."""
    if answer.start is None:
        return None
    _, last, every, period = middle(one.problem, one.objective, one.every, one.period)
    seam = cut(one.problem, answer.start, last + 1, every, period)
    return _checked(instance, seam, one.bound, answer.engine)


def _checked(instance: Instance, seam: Seam, bound: Bound, found_by: str) -> Periodic | None:
    """Check the seam at a few sizes; None if it fails. It is optimal if the lower bound grows at the same rate."""
    if not all(holds(seam, instance.problem, copies) for copies in (0, 1, 2, 5)):
        return None
    return Periodic(seam, _optimal(instance, seam), bound, found_by, least_rate(instance))


def _optimal(instance: Instance, seam: Seam) -> bool:
    """Return True if the bound grows at the same rate as the seam's objective, judged by a few sizes.

    The heads of a rank's first operations and the tails of its last ones are the same for every m, so a bound with all
    the rank's work in between grows at that rate. A longest path does so if a part of it can be repeated.
    """
    for copies in range(4):
        problem = instance.problem(seam.microbatches + copies * seam.every)
        bound = lower_bound(problem)
        if bound.value != seam.value + copies * seam.period:
            return False
    if bound.kind == "path":
        return _repeats(problem, bound, seam)
    return seam.period == seam.every * int(problem.work[bound.rank]) // problem.placement.microbatches


def _repeats(problem: Problem, bound: Bound, seam: Seam) -> bool:
    """Return True if a longest path leads from an operation to the K-th one after it, and takes at least the period."""
    found, made = framed(problem, bound.frame), links(problem)
    duration = problem.duration[problem.sequence]
    on = np.flatnonzero(found.head + duration + found.tail == bound.value)
    for x in on.tolist():
        y = x + seam.every
        if y in on and problem.sequence[x] == problem.sequence[min(y, problem.operations - 1)]:
            least = np.full(problem.operations, -(2**40))
            least[x] = 0
            return bool(longest(problem.length, made, least)[y] >= seam.period)
    return False


def _work(problem: Problem) -> int:
    """Return the compute time of the busiest rank per microbatch, in ticks."""
    return int(problem.work.max()) // problem.placement.microbatches


def least_rate(instance: Instance) -> Fraction:
    """Return the least time per microbatch in the long run, in ticks: from the work of the busiest rank, or from a
    round trip.

    If F of a microbatch waits for the end of a W (or I) of the microbatch k earlier, the longest path from F to the end
    of that W fits once into the time of k microbatches.
    """
    problem = instance.problem(2)
    made = links(problem)
    best = Fraction(_work(problem))
    for link in memory_links(problem):
        least = np.full(problem.operations, -(2**40))
        least[problem.first[link.later]] = 0
        trip = int(longest(problem.length, made, least)[problem.first[link.earlier]]) + link.delay
        best = max(best, Fraction(trip, max(1, link.offset)))
    return best


def _at_the_bound(instance: Instance, limits: Limits) -> Iterator[Try | Periodic]:
    """Yield known orders that meet the bound and repeat, then attempts at small sizes with the least period."""
    ranks = instance.placement.ranks
    rate = least_rate(instance)
    if rate > _work(instance.problem(1)):
        return
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
    from pipesched.optimizer.solve.portfolio import orders

    for name, order in orders(problem, _KNOWN, limits.seed):
        if convert.value(problem, order) == bound.value:
            start = convert.run(problem, order)
            seam = None if start is None else find_seam(problem, start)
            found = None if seam is None else _checked(instance, seam, bound, name)
            if found is not None and found.optimal:
                yield found
            return


def _above(instance: Instance) -> Iterator[Try | Periodic]:
    """Yield attempts with longer periods and ample time for warm-up and cool-down, sorted by time per microbatch."""
    problem = instance.problem(max(3 * _MOST, 4 * instance.placement.ranks))
    bound, work = lower_bound(problem), _work(problem)
    rate = least_rate(instance)
    ample_rate = 2 * max(rate, Fraction(work))
    longest_period = [ceil(ample_rate * every) for every in range(_MOST + 1)]
    step = max(1, int(rate) // _STEPS)
    kernels = [(k, x) for k in range(1, _MOST + 1) for x in range(ceil(rate * k), longest_period[k] + 1, step)]
    for every, period in sorted(kernels, key=lambda kernel: (kernel[1] / kernel[0], kernel[0])):
        ample = bound.value + 4 * period + period * problem.placement.microbatches // every // 2
        yield Try(problem, bound, ample, every, period)


def _less(instance: Instance, found: Periodic) -> Iterator[Try | Periodic]:
    """Yield attempts to shorten a schedule with the same period: by fewer microbatches, then by a smaller objective."""
    seam = found.seam
    fewer = seam.microbatches - seam.every
    if fewer > seam.every:
        problem = instance.problem(fewer)
        yield Try(problem, lower_bound(problem), seam.value - seam.period, seam.every, seam.period)
    problem = instance.problem(seam.microbatches)
    bound = lower_bound(problem)
    step = (seam.value - bound.value) // 2
    while step >= 1:
        yield Try(problem, bound, seam.value - step, seam.every, seam.period)
        step //= 2
