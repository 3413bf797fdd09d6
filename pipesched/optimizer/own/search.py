"""The search for a shorter order of a schedule's own slots.

    the order at hand, list schedules by longest tail and by turn ──> best
    a slot of a critical block moved within it, kept if the order is not longer than one of the last few ──> best

A critical block is a row of slots on one rank without idle time, on a longest path of the order: only a move in one of
them can shorten it. (Nowicki and Smutnicki, Management Science 42, 1996; late acceptance: Burke and Bykov, 2017.)
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipesched.optimizer.own.run import Orders, Slots
from pipesched.optimizer.solve.meter import Meter

_EACH = 1.5  # steps to time a slot
_LATE = 30  # an order is kept if it is not longer than that of so many moves before
_CRITICAL = 0.7  # share of the moves that are within critical blocks; the others may open the way to them
_SWAPPED = 0.5  # share of these in which two neighbours change places at an end of the block
_EXCHANGED = 0.1  # share of the moves in which two microbatches change places on all ranks, if they differ
_PATIENCE = 400  # moves without a better order, per rank, after which the search begins again at the best


def listed(slots: Slots, turn: Sequence[int]) -> Orders | None:
    """Return the orders in which each rank runs, of the slots that can start first, the one whose turn is first; None
    if the caps stop it.
    """
    ranks = len(slots.cap)
    left = [sorted((x for x, r in enumerate(slots.rank) if r == rank), key=turn.__getitem__) for rank in range(ranks)]
    end, clock, held = [-1] * len(slots.cost), [0] * ranks, [0] * ranks
    engine: dict[int, int] = {}
    orders: Orders = [[] for _ in range(ranks)]

    def start(x: int, rank: int) -> int | None:
        cap = slots.cap[rank]
        if cap is not None and held[rank] + slots.needs[x] > cap:
            return None
        if any(end[y] < 0 for y in slots.here[x]) or any(end[y] < 0 for y, _ in slots.inputs[x]):
            return None
        return max([clock[rank], *(end[y] + delay for y, delay in slots.inputs[x])])

    def first(rank: int) -> tuple[int, int] | None:
        found = [(at, n) for n, x in enumerate(left[rank][:_WIDE]) if (at := start(x, rank)) is not None]
        return min(found, default=None)

    next_of = [first(rank) for rank in range(ranks)]
    while any(left):
        ready = [(one, rank) for rank, one in enumerate(next_of) if one is not None]
        if not ready:
            return None
        (at, n), rank = min(ready)
        x = left[rank].pop(n)
        end[x] = clock[rank] = at + slots.cost[x]
        held[rank] += slots.adds[x]
        for copy, of in slots.begins.get(x, ()):
            end[copy] = engine[of] = max(engine.get(of, 0), end[x]) + slots.cost[copy]
        orders[rank].append(x)
        touched = {rank, *(slots.rank[y] for y in slots.follow[x] if y < len(slots.rank))}
        for other in touched:
            next_of[other] = first(other)
    return orders


_WIDE = 64  # slots of a rank that are looked at for its next one


@dataclass(eq=False)
class Search:
    """The search. bound: no order is below it; given: the objective of the order at hand, None if it is over the caps;
    impossible: the reason why no order is within the caps, if one is known.
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

    def run(self, orders: Orders, name: str) -> None:
        """Take the order at hand, then shorter ones, until the bound or the meter's limit."""
        slots, each = self.slots, int(_EACH * len(self.slots.cost)) + 1
        self.impossible = slots.too_large
        if self.impossible:
            return
        self.meter.spend(each)
        if all(slots.fits(rank, order) for rank, order in enumerate(orders)):
            self._offer(orders, name)
            self.given = self.value
        tails = sorted(range(len(slots.rank)), key=lambda x: (-slots.tails[x], x))
        frees = sorted(range(len(slots.rank)), key=lambda x: (slots.adds[x] > 0, _turn(orders)[x]))
        for way, turn in (("longest tail", tails), ("turn", frees)):
            if self.best is None or (self.value > self.bound and self.meter.left > 4 * each):
                self.meter.spend(4 * each)
                found = listed(slots, _turn([turn]))
                if found is not None:
                    self._offer(found, f"list schedule by {way}")
        if self.best is not None and self.value > self.bound:
            self._move(random.Random(self.seed), each)

    def _offer(self, orders: Orders, source: str) -> None:
        end = self.slots.ends(orders)
        if end is not None and (self.best is None or self.slots.value(orders, end) < self.value):
            self.best, self.value, self.source = orders, self.slots.value(orders, end), source

    def _move(self, rng: random.Random, each: int) -> None:
        """Move slots in critical blocks."""
        assert self.best is not None
        slots, since, name = self.slots, 0, f"local search from {self.source}"
        now, value, recent = self.best, self.value, [self.value] * _LATE
        blocks = _blocks(slots, now, slots.ends(now) or [])
        microbatches = sorted({i for _, _, i in slots.named})
        whole = [(rank, 0, len(order)) for rank, order in enumerate(now) if len(order) > 1]
        while self.value > self.bound and whole and not self.meter.late:
            self.meter.spend(each)
            since += 1
            if since > _PATIENCE * len(now):
                now, value, since, recent = self.best, self.value, 0, [self.value] * _LATE
                blocks = _blocks(slots, now, slots.ends(now) or [])
            if microbatches and rng.random() < _EXCHANGED:
                orders = slots.exchanged(now, *rng.sample(microbatches, 2))
            else:
                some = blocks if blocks and rng.random() < _CRITICAL else whole
                orders = _moved(slots, now, rng.choice(some), rng)
            end = slots.ends(orders) if orders is not None else None
            if orders is None or end is None:
                continue
            after = slots.value(orders, end)
            if after <= max(value, recent[since % _LATE]):
                now, value, blocks = orders, after, _blocks(slots, orders, end)
            recent[since % _LATE] = value
            if after < self.value:
                self.best, self.value, self.source, since = orders, after, name, 0


def _turn(orders: Iterable[Sequence[int]]) -> list[int]:
    """Return the place of each slot in its order."""
    place = {x: i for order in orders for i, x in enumerate(order)}
    return [place[x] for x in range(len(place))]


def _moved(slots: Slots, orders: Orders, block: tuple[int, int, int], rng: random.Random) -> Orders | None:
    """Return the orders with one slot of a block at another place of the block, or just past its end; None if that is
    not within the cap.
    """
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


def _blocks(slots: Slots, orders: Orders, end: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the blocks of a longest path of at least two slots: rank, first place, place after the last."""
    place = {x: i for order in orders for i, x in enumerate(order)}
    ranks = [r for r, order in enumerate(orders) if order]
    first = [end[orders[r][0]] - slots.cost[orders[r][0]] if slots.span else 0 for r in ranks]
    x = orders[max(zip(ranks, first, strict=True), key=lambda of: end[orders[of[0]][-1]] - of[1])[0]][-1]
    path = [x]
    while (start := end[x] - slots.cost[x]) > 0:
        i, order = place[x], orders[slots.rank[x]]
        if i and end[order[i - 1]] == start:
            x = order[i - 1]
        else:
            x = next((slots.source(y) for y, delay in slots.inputs[x] if end[y] + delay == start), -1)
            if x < 0:
                break
        path.append(x)
    blocks, last = [], path[0]
    high = place[last] + 1
    for one, two in [*pairwise(path), (path[-1], -1)]:
        if two < 0 or slots.rank[two] != slots.rank[one] or place[two] != place[one] - 1:
            if high - place[one] > 1:
                blocks.append((slots.rank[one], place[one], high))
            high = place[two] + 1 if two >= 0 else 0
    return blocks
