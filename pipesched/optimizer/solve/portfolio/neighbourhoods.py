"""Large neighbourhoods: CP-SAT reorders the operations within a time window; all other operations keep their order.

    kept  ........ | window .............. | ........  kept
              head | start, start, ...     | tail

Operations before the window keep their starts, which give each operation in the window a head. Operations after it keep
their order, which gives each operation in the window a tail: the longest path through them to the end. The length of
the schedule is the largest start + duration + tail in the window, so the model has variables only for the window. For
the span, a tail counts from the first start of the rank on which its path ends. The first operation of a rank is never
in a window.

Windows of 10 to 30 % of the time slide over the best schedule; for a small problem, the last window is the whole
schedule. Half of the models, chosen at random, require a shorter schedule; the others accept one of equal length, from
which the next windows start. A round without improvement is followed by a round with a higher limit.

CP-SAT runs with one worker, a fixed seed and a limit on its deterministic time, so the same orders and seed give the
same result everywhere. (Shaw 1998: large neighbourhood search.)
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING

from pipesched.optimizer.solve.candidates import Candidate, Pool
from pipesched.optimizer.solve.convert import played
from pipesched.optimizer.solve.instance import NO_CAP
from pipesched.optimizer.solve.problem import Orders

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

NAME = "neighbourhoods of"
SHARES = (0.1, 0.15, 0.2, 0.3)  # widths of windows, as fractions of the time
FEWEST, MOST, WHOLE = 6, 360, 400  # operations of a window; most operations of a problem whose last window is the whole
LIMITS = (0.03, 0.1, 0.3, 0.6)  # deterministic time of a question, by round
LOADING, UNIT, MODELLED, SEEN = 500_000, 5_000_000, 200, 5  # a unit of CP-SAT's time
"""Steps to import OR-Tools; per unit of deterministic time, operation of a model, and operation of a problem."""
_NONE = -(2**60)


def available() -> bool:
    """Return True if OR-Tools is installed."""
    return find_spec("ortools") is not None


def neighbourhoods(pool: Pool, seed: int = 0) -> Iterator[Candidate]:
    """Yield better and better orders, starting from the best of the pool, without end; None in between."""
    if not available() or not pool.entries or pool.problem.operations < FEWEST:
        return
    pool.meter.spend(LOADING)
    search, shares = _Search(pool, seed), list(SHARES)
    if pool.problem.operations <= WHOLE:
        shares.append(1.0)
    level = 0
    while True:
        before = search.value
        for share in shares:
            yield from search.sweep(share, LIMITS[level] * (4 if share == 1.0 else 1))
        level = level if search.value < before else min(level + 1, len(LIMITS) - 1)


@dataclass(frozen=True)
class _Window:
    """A window. ranks: for each rank, its operations in the window, in order; head, tail: the head and tail of each of
    these operations; held: the memory that each rank holds when the window begins.
    """

    ranks: list[list[int]]
    head: dict[int, int]
    tail: dict[int, int]
    held: list[int]

    @property
    def size(self) -> int:
        return len(self.head)


class _Search:
    """The current orders and their windows."""

    def __init__(self, pool: Pool, seed: int) -> None:
        problem = pool.problem
        self.pool, self.problem, self.seed = pool, problem, seed
        self.random = random.Random(seed)
        self.duration = problem.durations
        self.sequence: list[int] = problem.sequence.tolist()
        self.takes: list[int] = problem.takes[problem.sequence].tolist()
        self.frees: list[int] = problem.frees[problem.sequence].tolist()
        self.cap: list[int] = problem.cap.tolist()
        self.needs, self.delay = problem.producers
        self.follow: list[list[int]] = [[] for _ in self.needs]
        for x, y in enumerate(self.needs):
            if y >= 0:
                self.follow[y].append(x)
        self._take(*pool.entries[0])

    def _take(self, value: int, name: str, orders: Orders) -> None:
        run = played(self.problem, orders)
        assert run is not None, "the pool contains no order with a deadlock"
        self.value, self.name, self.orders, self.run = value, name.removeprefix(NAME).strip(), orders, run
        self.tail = self._tails()

    def sweep(self, share: float, limit: float) -> Iterator[Candidate]:
        """Slide a window over the schedule, by half its width at a time."""
        end = max(self.run.start) + 1
        width = max(1, int(end * share))
        at = self.random.randint(-width // 2, 0) if share < 1 else 0
        while at < end:
            if self.pool.best < self.value:
                self._take(*self.pool.entries[0])
            yield self._improved(at, width, limit)
            at += max(1, width // 2) if share < 1 else width

    def _improved(self, first: int, width: int, limit: float) -> Candidate:
        """Reorder one window."""
        name, meter = f"{NAME} {self.name}", self.pool.meter
        window = self._window(first, first + width)
        meter.spend(SEEN * self.problem.operations)
        if window.size > MOST:
            window = self._window(first, first + max(1, width * MOST // window.size))
        if window.size < FEWEST:
            return name, None
        most = self.value - self.random.randint(0, 1)
        start, spent = _solved(self, window, most, limit)
        meter.spend(MODELLED * window.size + int(spent * UNIT))
        if start is None:
            return name, None
        orders = [self._replaced(order, mine, start) for order, mine in zip(self.orders, window.ranks, strict=True)]
        value = self.pool.value_of(orders)
        if value is None or value > self.value:
            return name, None
        self._take(value, name, orders)
        return (name, orders) if value < self.pool.best else (name, None)

    def _replaced(self, order: Sequence[int], mine: Sequence[int], start: dict[int, int]) -> list[int]:
        """Return the order of a rank, with the operations in the window sorted by their new starts."""
        if not mine:
            return list(order)
        at = order.index(mine[0])
        anew = sorted(mine, key=lambda x: (start[x], start[x] + self.duration[x]))
        return [*order[:at], *anew, *order[at + len(mine) :]]

    def _tails(self) -> list[int]:
        """Return the longest path from each operation's end to the schedule's end, given the orders of all ranks."""
        start, duration = self.run.start, self.duration
        tail, after = [_NONE] * len(duration), [-1] * len(duration)
        for order in self.orders:
            for x, y in pairwise(order):
                after[x] = y
            if order:
                tail[order[-1]] = self._end(order)
        for x in sorted(range(len(duration)), key=lambda x: (start[x], start[x] + duration[x]), reverse=True):
            best = tail[x]
            if (y := after[x]) >= 0:
                best = max(best, tail[y] + duration[y])
            for y in self.follow[x]:
                best = max(best, tail[y] + duration[y] + self.delay[y] - duration[x])
            tail[x] = best
        return tail

    def _end(self, order: Sequence[int]) -> int:
        """Return the tail at the end of a rank: 0 or, for the span, minus the first start of the rank."""
        return -self.run.start[order[0]] if self.problem.objective == "span" else 0

    def _window(self, first: int, last: int) -> _Window:
        """Return the window of the operations that start at first .. last - 1."""
        start, duration, tail = self.run.start, self.duration, self.tail
        ranks = [[x for x in order[1:] if first <= start[x] < last] for order in self.orders]
        inside = {x for mine in ranks for x in mine}
        made = _Window(ranks, {}, {}, [0] * len(ranks))
        for rank, (order, mine) in enumerate(zip(self.orders, ranks, strict=True)):
            if not mine:
                continue
            at = order.index(mine[0])
            made.held[rank] = sum(self.takes[x] - self.frees[x] for x in order[:at])
            free = start[order[at - 1]] + duration[order[at - 1]]
            after = at + len(mine)
            rest = tail[order[after]] + duration[order[after]] if after < len(order) else self._end(order)
            for x in mine:
                y = self.needs[x]
                made.head[x] = max(free, start[y] + self.delay[x]) if y >= 0 and y not in inside else free
                through = (
                    tail[z] + duration[z] + self.delay[z] - duration[x] for z in self.follow[x] if z not in inside
                )
                made.tail[x] = max(rest, *through, rest)
        return made


def _solved(search: _Search, window: _Window, most: int, limit: float) -> tuple[dict[int, int] | None, float]:
    """Return (starts in the window for the best objective found, None if above `most`; deterministic time used)."""
    from ortools.sat.python import cp_model

    duration = search.duration
    latest = {x: most - window.tail[x] - duration[x] for x in window.head}
    if any(latest[x] < head for x, head in window.head.items()):
        return None, 0.0
    model = cp_model.CpModel()
    start = {x: model.new_int_var(head, latest[x], "") for x, head in window.head.items()}
    least = max(head + duration[x] + window.tail[x] for x, head in window.head.items())
    objective = model.new_int_var(least, most, "")
    last: dict[int, int] = {}
    for rank, mine in enumerate(window.ranks):
        for x in mine:
            model.add_hint(start[x], search.run.start[x])
            model.add(objective >= start[x] + duration[x] + window.tail[x])
            if (y := search.needs[x]) in start:
                model.add(start[x] >= start[y] + search.delay[x])
            if (y := last.get(search.sequence[x], -1)) >= 0:
                model.add(start[x] >= start[y] + duration[y])
            last[search.sequence[x]] = x
        model.add_no_overlap([model.new_fixed_size_interval_var(start[x], duration[x], "") for x in mine])
        _keep_cap(model, search, mine, start, search.cap[rank] - window.held[rank])
    model.minimize(objective)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = search.random.randint(0, 1_000_000)
    solver.parameters.max_deterministic_time = limit
    solver.parameters.catch_sigint_signal = False  # otherwise CP-SAT replaces Python's handler
    found = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    starts = {x: int(solver.value(variable)) for x, variable in start.items()} if found else None
    return starts, float(solver.response_proto.deterministic_time)


def _keep_cap(model: CpModel, search: _Search, mine: Sequence[int], start: dict[int, IntVar], room: int) -> None:
    """Add the cap of a rank to the model, less the memory that the rank holds before the window."""
    taken = [x for x in mine if search.takes[x]]
    grown = [x for x in mine if search.frees[x]]
    if sum(search.takes[x] for x in taken) - sum(min(0, search.frees[x]) for x in grown) <= room or room >= NO_CAP:
        return
    times = [*(start[x] for x in taken), *(start[x] + search.duration[x] for x in grown)]
    changes = [*(search.takes[x] for x in taken), *(-search.frees[x] for x in grown)]
    model.add_reservoir_constraint(times, changes, sum(min(0, change) for change in changes), room)
