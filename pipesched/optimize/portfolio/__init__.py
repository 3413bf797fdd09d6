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

from pipesched.optimize.portfolio.coarse import coarsened
from pipesched.optimize.portfolio.justify import Justifier, pushed
from pipesched.optimize.portfolio.kernel import patterns
from pipesched.optimize.portfolio.known import known
from pipesched.optimize.portfolio.listing import listings
from pipesched.optimize.portfolio.local import walks
from pipesched.optimize.portfolio.pool import Pool
from pipesched.optimize.portfolio.safe import least_caps
from pipesched.optimize.portfolio.vee import vee
from pipesched.optimize.portfolio.zero_bubble import zero_bubble
from pipesched.optimize.problem import Orders, Problem

WALKED = 20_000  # operations beyond which a step of local search takes too long to be worth it


def orders(problem: Problem, seconds: float) -> Iterator[tuple[str, Orders]]:
    """(name, orders), each better than all before, until the time is over or nothing more is known to be tried.

    Yields nothing if a cap is below `least_caps`, else at least once. seconds: wall; looked at between two orders, not
    within one.
    """
    began = time.monotonic()
    if bool((problem.cap < least_caps(problem)).any()):
        return
    until = began + seconds
    pool = Pool(problem)
    for share, made in ((0.5, _made(problem)), (0.75, _pushed(problem, pool, until))):
        while not pool.entries or time.monotonic() - began < share * seconds:
            entry = next(made, None)
            if entry is None:
                break
            if pool.offer(*entry):
                yield entry
    if problem.operations <= WALKED:
        yield from walks(problem, pool, until)


def _made(problem: Problem) -> Iterator[tuple[str, Orders]]:
    yield from known(problem)
    yield from zero_bubble(problem)
    yield from vee(problem)
    yield from patterns(problem)
    yield from listings(problem)


def _pushed(problem: Problem, pool: Pool, until: float) -> Iterator[tuple[str, Orders]]:
    justifier = Justifier(problem)
    for _, name, found in list(pool.entries):
        yield pushed(name), justifier.push(found, until)


__all__ = ["coarsened", "least_caps", "orders"]
