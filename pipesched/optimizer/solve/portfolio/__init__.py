"""Good orders found without a solver: upper bounds with which the search begins.

    zero_bubble       alternate F and I, with W in the gaps           one stage per rank
    repeating         a pattern that repeats, without a bubble         where memory is scarce
    list_scheduling   the most urgent operation that can start         any placement, any caps
    justify           all of these, compacted in both directions        improves warm-up and cool-down
    local_search      moves along the longest paths                    the rest of the time
    neighbourhoods    windows of the best order, by CP-SAT             the rest of the time, where it is installed
    late_start        ranks that begin later                              for the span

Work is counted in steps, not in time, so that the result does not depend on how busy the machine is.

The orders are schedules: they do not deadlock, and respect the caps. The caller measures their objectives again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from pipesched.optimizer.solve.bounds.least_cap import least_cap
from pipesched.optimizer.solve.candidates import Candidate, Entry, Pool
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.portfolio.banker import Room, one_by_one
from pipesched.optimizer.solve.portfolio.justify import Justifier, pushed
from pipesched.optimizer.solve.portfolio.late_start import late
from pipesched.optimizer.solve.portfolio.list_scheduling import listed, listings, policies
from pipesched.optimizer.solve.portfolio.local_search import walks
from pipesched.optimizer.solve.portfolio.neighbourhoods import neighbourhoods
from pipesched.optimizer.solve.portfolio.repeating import building_blocks, patterns
from pipesched.optimizer.solve.portfolio.zero_bubble import zero_bubble
from pipesched.optimizer.solve.problem import Orders, Problem

SMALL = 20_000  # operations beyond which compacting each better order takes too long
FAMILIES, PUSHES = 0.5, 0.75  # fractions of the first look after which these families pause
LATE = ", ranks begin later"
SHARE, WINDOWS, WALKS = 500_000, 1_000_000, 2_000_000  # steps of families, windows and walks per turn
ZERO, PATTERN, LISTED = 2, 1, 20  # steps charged per operation, for families that do not count steps
FEW_ROUTES, CROWDED = 4, 46  # with more routes, a step for so many comparisons of sequences of a rank

Family: TypeAlias = Iterator[tuple[str, Orders]]


def orders(problem: Problem, steps: int, seed: int = 0) -> Iterator[tuple[str, Orders]]:
    """Yield (name, orders), each better than all before, until `steps` are used or no family has more orders.

    It yields nothing if a cap is below `least_cap`; otherwise it yields at least once.
    """
    pool, any_found = Pool(problem, Meter()), False
    for found in search(pool, steps, seed):
        if found is not None:
            any_found = True
            yield found
        if any_found and pool.meter.spent >= steps:
            return


def search(pool: Pool, look: int, seed: int = 0) -> Iterator[tuple[str, Orders] | None]:
    """Yield (name, orders), each better than all before, without a limit; None in between, so that the caller can check
    the meter.

    pool: the known orders, from which the search begins. look: the number of steps of the first round, in which every
    family gets its turn.
    """
    problem = pool.problem
    if bool((problem.cap < least_cap(problem)).any()):
        return
    for name, found in _tried(pool, look, seed):
        if found is None or not pool.offer(name, found):
            yield None
            continue
        yield name, found
        if problem.objective == "span":
            later, runs = late(problem, found)
            pool.meter.spend(runs * problem.operations)
            if pool.offer(name + LATE, later):
                yield name + LATE, later


def _tried(pool: Pool, look: int, seed: int) -> Iterator[Candidate]:
    """Yield candidates from the families and the compacted pool, then from local search and families in turn."""
    problem, meter = pool.problem, pool.meter
    begun = meter.spent
    justifier = Justifier(problem)
    yield from _until(
        _counted(zero_bubble(problem), meter, ZERO * problem.operations), meter, begun + int(FAMILIES * look)
    )
    yield from _push(pool, pool.entries[:1], justifier)
    if not pool.entries:
        yield _first(problem, meter)
    families = _families(pool, justifier, seed)
    yield from _until(families, meter, begun + int(FAMILIES * look))
    yield from _until(_push(pool, list(pool.entries), justifier), meter, begun + int(PUSHES * look))
    walk = walks(pool, justifier, seed)
    yield from _until(walk, meter, begun + look)
    active: dict[Iterator[Candidate], int] = {walk: WALKS, neighbourhoods(pool, seed): WINDOWS, families: SHARE}
    while active:
        for family, share in list(active.items()):
            before = meter.spent
            yield from _until(family, meter, before + share)
            if meter.spent < before + share:
                del active[family]


def _first(problem: Problem, meter: Meter) -> Candidate:
    """Return an order that fits all feasible caps; with many routes, a list schedule if it cannot deadlock."""
    if problem.placement.routes > FEW_ROUTES and Room(problem).always:
        meter.spend(LISTED * problem.operations)
        return "list schedule, backward first", listed(problem, dict(policies(problem))["backward first"])
    return "one microbatch at a time", one_by_one(problem)


def _families(pool: Pool, justifier: Justifier, seed: int) -> Iterator[Candidate]:
    problem, meter = pool.problem, pool.meter
    for entry in _in_turn(
        _counted(building_blocks(problem), meter, PATTERN * problem.operations),
        _counted(patterns(problem, seed), meter, PATTERN * problem.operations + _crowded(problem)),
        listings(problem, meter),
    ):
        before = pool.best
        yield entry
        if pool.best < before and problem.operations <= SMALL:
            yield from _push(pool, pool.entries[:1], justifier)


def _crowded(problem: Problem) -> int:
    """Return the steps to add for a pattern with many routes, where each sequence is placed among those of its rank."""
    held = np.bincount(problem.rank, minlength=problem.ranks)
    return int((held**3).sum()) // CROWDED if problem.placement.routes > FEW_ROUTES else 0


def _push(pool: Pool, entries: list[Entry], justifier: Justifier) -> Iterator[Candidate]:
    for _, name, found in entries:
        yield pushed(name), justifier.push(found, pool.meter)


def _counted(family: Family, meter: Meter, steps: int) -> Family:
    """Charge the meter `steps` for every candidate of a family."""
    for entry in family:
        meter.spend(steps)
        yield entry


def _until(family: Iterator[Candidate], meter: Meter, steps: int) -> Iterator[Candidate]:
    """Yield candidates until the meter reaches `steps`; the family can continue later."""
    while meter.spent < steps and (entry := next(family, None)) is not None:
        yield entry


def _in_turn(*families: Family) -> Family:
    """Yield from several families in turn until all are exhausted."""
    left = list(families)
    while left:
        for family in list(left):
            entry = next(family, None)
            if entry is None:
                left.remove(family)
            else:
                yield entry


__all__ = ["orders", "search"]
