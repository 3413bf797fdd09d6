"""Good orders without a solver: upper bounds, and where the search begins.

    known         the orders of the literature, cut to the caps        milliseconds
    zero_bubble   one F and one I at a time, W in the gaps             one stage a rank
    vee, kernel   a pattern that repeats, without a bubble             where memory is scarce
    listing       the most urgent of what has arrived and has room     any placement, any caps
    justify       all of these, pushed forward and backward            mends warm-up and cool-down
    local         moves along the longest paths                        the rest of the time

What comes out is a schedule: it ends, and keeps to the caps. The caller measures it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from pipesched.optimize.bounds.least_cap import least_cap
from pipesched.optimize.portfolio.coarse import coarsened
from pipesched.optimize.portfolio.justify import Justifier, pushed
from pipesched.optimize.portfolio.kernel import patterns
from pipesched.optimize.portfolio.known import in_flight, known
from pipesched.optimize.portfolio.listing import listings
from pipesched.optimize.portfolio.local import walks
from pipesched.optimize.portfolio.pool import Clock, Entry, Pool
from pipesched.optimize.portfolio.safe import one_by_one
from pipesched.optimize.portfolio.vee import building_blocks
from pipesched.optimize.portfolio.zero_bubble import zero_bubble
from pipesched.optimize.problem import Orders, Problem

WALKED = 20_000  # operations beyond which a step of local search, or pushing each better one, takes too long
FAMILIES, PUSHES = 0.5, 0.75  # of the time has gone when these stop


def orders(problem: Problem, seconds: float) -> Iterator[tuple[str, Orders]]:
    """(name, orders), each better than all before, until the time is over or nothing more is known to be tried.

    Yields nothing if a cap is below `least_cap`, else at least once. seconds: wall; looked at between two orders, and
    within what takes long.
    """
    if bool((problem.cap < least_cap(problem)).any()):
        return
    pool, clock = Pool(problem), Clock(time.monotonic(), seconds)
    justifier = Justifier(problem)
    for entry in _candidates(pool, justifier, clock):
        if pool.offer(*entry):
            yield entry
        if pool.entries and clock.gone() >= PUSHES:
            break
    if problem.operations <= WALKED:
        yield from walks(pool, justifier, clock.at(1.0))


def _candidates(pool: Pool, justifier: Justifier, clock: Clock) -> Iterator[tuple[str, Orders]]:
    """What is known first, then the families in turn, then all of the pool pushed together."""
    problem, until = pool.problem, clock.at(PUSHES)
    yield from known(problem)
    yield from zero_bubble(problem)
    yield from _push(pool.entries[:1], justifier, until)
    if not pool.entries:
        yield "one microbatch at a time", one_by_one(problem)
    for entry in _in_turn(
        building_blocks(problem), patterns(problem), listings(problem, clock.at(FAMILIES)), in_flight(problem)
    ):
        before = pool.best
        yield entry
        if pool.best < before and problem.operations <= WALKED:
            yield from _push(pool.entries[:1], justifier, until)
        if clock.gone() >= FAMILIES:
            break
    yield from _push(list(pool.entries), justifier, until)


def _push(entries: list[Entry], justifier: Justifier, until: float) -> Iterator[tuple[str, Orders]]:
    for _, name, found in entries:
        yield pushed(name), justifier.push(found, until)


def _in_turn(*families: Iterator[tuple[str, Orders]]) -> Iterator[tuple[str, Orders]]:
    """One of each, until all are at their end."""
    left = list(families)
    while left:
        for family in list(left):
            entry = next(family, None)
            if entry is None:
                left.remove(family)
            else:
                yield entry


__all__ = ["coarsened", "orders"]
