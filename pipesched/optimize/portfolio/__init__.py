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

from pipesched.optimize.least_cap import least_cap
from pipesched.optimize.portfolio.coarse import coarsened
from pipesched.optimize.portfolio.justify import Justifier, pushed
from pipesched.optimize.portfolio.kernel import patterns
from pipesched.optimize.portfolio.known import in_flight, known
from pipesched.optimize.portfolio.listing import listings
from pipesched.optimize.portfolio.local import walks
from pipesched.optimize.portfolio.pool import Pool
from pipesched.optimize.portfolio.vee import vee
from pipesched.optimize.portfolio.zero_bubble import zero_bubble
from pipesched.optimize.problem import Orders, Problem

WALKED = 20_000  # operations beyond which a step of local search takes too long to be worth it


def orders(problem: Problem, seconds: float) -> Iterator[tuple[str, Orders]]:
    """(name, orders), each better than all before, until the time is over or nothing more is known to be tried.

    Yields nothing if a cap is below `least_cap`, else at least once. seconds: wall; looked at between two orders, not
    within one.
    """
    began = time.monotonic()
    if bool((problem.cap < least_cap(problem)).any()):
        return
    until = began + seconds
    pool, justifier = Pool(problem), Justifier(problem)
    for share, made in ((0.5, _made(problem)), (0.75, _pushed(pool, justifier, until))):
        while not pool.entries or time.monotonic() - began < share * seconds:
            entry = next(made, None)
            if entry is None:
                break
            while entry and pool.offer(*entry):
                yield entry
                over = time.monotonic() - began >= share * seconds
                entry = None if over else (pushed(entry[0]), justifier.push(entry[1], until))
    if problem.operations <= WALKED:
        yield from walks(pool, justifier, until)


def _made(problem: Problem) -> Iterator[tuple[str, Orders]]:
    """The known orders first, then one of every family in turn."""
    yield from known(problem)
    yield from zero_bubble(problem)
    families = [listings(problem), vee(problem), patterns(problem), in_flight(problem)]
    while families:
        for family in list(families):
            entry = next(family, None)
            if entry is None:
                families.remove(family)
            else:
                yield entry


def _pushed(pool: Pool, justifier: Justifier, until: float) -> Iterator[tuple[str, Orders]]:
    for _, name, found in list(pool.entries):
        yield pushed(name), justifier.push(found, until)


__all__ = ["coarsened", "orders"]
