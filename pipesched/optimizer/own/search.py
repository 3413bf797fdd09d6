"""The search for a shorter order of a schedule's own slots.

    the given order, list schedules by longest tail and by turn ──> best
    move a slot within a critical block; keep the order if it is no longer than the order some moves before ──> best

A critical block is a series of slots on one rank, without idle time between them, on a longest path; only a move in
such a block can shorten the order. (Nowicki and Smutnicki, Management Science 42, 1996; late acceptance: Burke and
Bykov, 2017.)
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from pipesched.optimizer.own.run import Orders, Slots
from pipesched.optimizer.solve.meter import Meter

_WIDE = 2_000  # slots of a rank that are looked at for its next one
_WINDOWS = (1, 2, 3, 4, 5, 6, 8, 12)  # sequences that are open at once in list schedules under a cap
_FEW = 10_000  # steps to time an order up to which list schedules are made at any limit
_EACH = 1.5  # steps to time a slot
_LATE = 30  # an order is kept if it is not longer than the order this many moves before
_CRITICAL = 0.7  # share of the moves within critical blocks; the other moves may make such moves possible
_SWAPPED = 0.5  # share of these in which two neighbours change places at an end of the block
_EXCHANGED = 0.1  # share of the moves in which two microbatches change places on all ranks, if they differ
_PATIENCE = 400  # moves without a better order, per rank, after which the search begins again at the best


Block: TypeAlias = tuple[int, int, int]
"""A block: the rank, the position of the first slot, and the position after the last slot."""


class Listing:
    """A list schedule: of the slots that can start at the earliest time, a rank runs the one with the smallest `turn`.

    turn: the priority of each slot. window: only F of this many sequences can run, from the oldest unfinished one on.
    """

    def __init__(self, slots: Slots, turn: Sequence[int], window: int) -> None:
        self.slots, ranks = slots, range(len(slots.cap))
        self.end, self.clock, self.held = [-1] * len(slots.cost), [0 for _ in ranks], [0 for _ in ranks]
        self.engine: dict[int, int] = {}
        self.window, self.oldest, self.open = window, 0, Counter(slots.sequence)
        self.left: Orders = [[] for _ in ranks]
        for x in sorted(range(len(slots.rank)), key=turn.__getitem__):
            self.left[slots.rank[x]].append(x)

    def orders(self) -> Orders | None:
        """Return the orders; None if no further slot fits within the caps."""
        slots, made = self.slots, [list[int]() for _ in self.left]
        following = [self._first(rank) for rank in range(len(made))]
        while any(self.left):
            ready = [(one, rank) for rank, one in enumerate(following) if one is not None]
            if not ready:
                return None
            (at, n), rank = min(ready)
            x = self.left[rank].pop(n)
            self._run(x, rank, at)
            made[rank].append(x)
            closed = self._closed(x)
            for other in (
                range(len(made)) if closed else {rank, *(slots.rank[y] for y in slots.follow[x] if y < len(slots.rank))}
            ):
                following[other] = self._first(other)
        return made

    def _closed(self, x: int) -> bool:
        """Record that a slot has run; return True if it completes the oldest unfinished sequence."""
        self.open[self.slots.sequence[x]] -= 1
        before = self.oldest
        while self.oldest in self.open and not self.open[self.oldest]:
            self.oldest += 1
        return self.oldest > before

    def _run(self, x: int, rank: int, at: int) -> None:
        self.end[x] = self.clock[rank] = at + self.slots.cost[x]
        self.held[rank] += self.slots.adds[x]
        for copy, of in self.slots.begins.get(x, ()):
            self.end[copy] = self.engine[of] = max(self.engine.get(of, 0), self.end[x]) + self.slots.cost[copy]

    def _first(self, rank: int) -> tuple[int, int] | None:
        """Return the start of the slot that a rank would run next, and its index in `left`; None if no slot can."""
        best: tuple[int, int] | None = None
        for n, x in enumerate(self.left[rank][:_WIDE]):
            at = self._start(x, rank)
            if at is not None and (best is None or at < best[0]):
                best = at, n
                if at <= self.clock[rank]:
                    break
        return best

    def _start(self, x: int, rank: int) -> int | None:
        slots, end, cap = self.slots, self.end, self.slots.cap[rank]
        if cap is not None and self.held[rank] + slots.needs[x] > cap:
            return None
        if slots.adds[x] > 0 and slots.sequence[x] >= self.oldest + self.window:
            return None
        if any(end[y] < 0 for y in slots.here[x]) or any(end[y] < 0 for y, _ in slots.inputs[x]):
            return None
        return max([self.clock[rank], *(end[y] + delay for y, delay in slots.inputs[x])])


@dataclass(eq=False)
class Search:
    """The search. bound: a lower bound on the objective of every order; given: the objective of the given order, None
    if it exceeds the caps; impossible: the reason why no order is within the caps, empty if unknown.
    """

    slots: Slots
    bound: int
    meter: Meter
    seed: int
    best: Orders | None = None
    value: int = 0
    source: str = ""
    given: int | None = None
    impossible: str = ""

    def run(self, known: Iterable[tuple[str, Orders]]) -> None:
        """Try the known orders, the given one first; shorten the best until it attains the bound or time is up."""
        slots, each = self.slots, int(_EACH * len(self.slots.cost)) + 1
        self.impossible = slots.too_large
        if self.impossible:
            return
        first = self._offered(known, each)
        for way, turn, window in self._turns(first):
            if self.best is None or (not self.done and (each < _FEW or self.meter.left > 4 * each)):
                self.meter.spend(4 * each)
                self._offer(Listing(slots, turn, window).orders(), f"list schedule by {way}")
        if self.best is not None and not self.done:
            self._move(random.Random(self.seed), each)

    @property
    def done(self) -> bool:
        """True if the best order attains the bound."""
        return self.best is not None and self.value <= self.bound

    def _offered(self, known: Iterable[tuple[str, Orders]], each: int) -> Orders:
        """Try the known orders until one attains the bound; return the first known order."""
        first: Orders = []
        for name, orders in known:
            self.meter.spend(each)
            if all(self.slots.fits(rank, order) for rank, order in enumerate(orders)):
                self._offer(orders, name)
                self.given = self.value if not first else self.given
            first = first or orders
            if self.done:
                break
        return first

    def _turns(self, orders: Orders) -> Iterator[tuple[str, list[int], int]]:
        """Yield slot priorities for list schedules, each with a name and a window."""
        places, slots = _turn(orders), range(len(self.slots.rank))
        tails = _turn([sorted(slots, key=lambda x: (-self.slots.tails[x], x))])
        frees = _turn([sorted(slots, key=lambda x: (self.slots.adds[x] > 0, places[x]))])
        count = max(self.slots.sequence, default=0) + 1
        yield "longest tail", tails, count
        yield "turn", frees, count
        for window in (
            [one for one in _WINDOWS if one < count] if any(cap is not None for cap in self.slots.cap) else ()
        ):
            yield f"turn, {window} at a time", frees, window

    def _offer(self, orders: Orders | None, source: str) -> None:
        end = None if orders is None else self.slots.ends(orders)
        if orders is not None and end is not None and (self.best is None or self.slots.value(orders, end) < self.value):
            self.best, self.value, self.source = orders, self.slots.value(orders, end), source

    def _move(self, rng: random.Random, each: int) -> None:
        """Move slots within critical blocks."""
        assert self.best is not None
        since, name = 0, f"local search from {self.source}"
        now, value, recent = self.best, self.value, [self.value] * _LATE
        blocks = _blocks(self.slots, now)
        while self.value > self.bound and not self.meter.late:
            self.meter.spend(each)
            since += 1
            if since > _PATIENCE * len(now):
                now, value, since, recent = self.best, self.value, 0, [self.value] * _LATE
                blocks = _blocks(self.slots, now)
            found = self._next(now, blocks, rng)
            if found is None:
                continue
            orders, after = found
            if after <= max(value, recent[since % _LATE]):
                now, value, blocks = orders, after, _blocks(self.slots, orders)
            recent[since % _LATE] = value
            if after < self.value:
                self.best, self.value, self.source, since = orders, after, name, 0

    def _next(self, now: Orders, blocks: list[Block], rng: random.Random) -> tuple[Orders, int] | None:
        """Return the orders after a random move, and their objective; None if they are not within the caps."""
        slots, microbatches = self.slots, self.slots.microbatches
        if microbatches and rng.random() < _EXCHANGED:
            orders = slots.exchanged(now, *rng.sample(microbatches, 2))
        else:
            whole = [(rank, 0, len(order)) for rank, order in enumerate(now) if len(order) > 1]
            some = blocks if blocks and rng.random() < _CRITICAL else whole
            orders = _moved(slots, now, rng.choice(some), rng) if some else None
        end = slots.ends(orders) if orders is not None else None
        return None if orders is None or end is None else (orders, slots.value(orders, end))


def _turn(orders: Iterable[Sequence[int]]) -> list[int]:
    """Return the position of each slot in the order of its rank."""
    place = {x: i for order in orders for i, x in enumerate(order)}
    return [place[x] for x in range(len(place))]


def _moved(slots: Slots, orders: Orders, block: Block, rng: random.Random) -> Orders | None:
    """Return the orders after a random slot moves within its block or just past it; None if this exceeds the cap."""
    rank, low, high = block
    order = orders[rank]
    if rng.random() < _SWAPPED:
        one = rng.choice((low, high - 2))
        two = one + 1
    else:
        one, two = rng.sample(range(max(0, low - 1), min(len(order), high + 1)), 2)
    made = order[:one] + order[one + 1 :]
    made.insert(two, order[one])
    return [*orders[:rank], made, *orders[rank + 1 :]] if slots.fits(rank, made) else None


def _path(slots: Slots, orders: Orders, end: Sequence[int]) -> Iterator[int]:
    """Yield the slots of a longest path, from last to first."""
    before = {two: one for order in orders for one, two in pairwise(order)}
    used = [order for order in orders if order]
    first = [end[order[0]] - slots.cost[order[0]] if slots.span else 0 for order in used]
    x = max(zip(used, first, strict=True), key=lambda of: end[of[0][-1]] - of[1])[0][-1]
    while x >= 0:
        yield x
        start = end[x] - slots.cost[x]
        if start > 0 and x in before and end[before[x]] == start:
            x = before[x]
        else:
            came = (slots.source(y) for y, delay in slots.inputs[x] if end[y] + delay == start > 0)
            x = next(came, -1)


def _blocks(slots: Slots, orders: Orders) -> list[Block]:
    """Return the blocks of at least two slots on a longest path."""
    end = slots.ends(orders)
    assert end is not None, "its orders run"
    place = {x: i for order in orders for i, x in enumerate(order)}
    made: list[Block] = []
    for x in _path(slots, orders, end):
        rank, i = slots.rank[x], place[x]
        if made and made[-1][:2] == (rank, i + 1):
            made[-1] = (rank, i, made[-1][2])
        else:
            made.append((rank, i, i + 1))
    return [block for block in made if block[2] - block[1] > 1]
