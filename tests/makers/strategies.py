"""Random schedules that are correct, with costs, and random schedules that are broken.

A right one is a run that was written down: at each step some operation whose inputs are there goes next, at times two
of a rank at once. So any placement is possible, and every order on every rank, and nothing can wait in a cycle.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule

SEEDS = st.integers(0, 2**32 - 1)


def linear(ranks: int, rng: random.Random) -> list[int]:
    return list(range(ranks))


def looped(ranks: int, rng: random.Random) -> list[int]:
    return list(range(ranks)) * rng.randint(1, 3)


def vee(ranks: int, rng: random.Random) -> list[int]:
    return [*range(ranks), *reversed(range(ranks))]


def scattered(ranks: int, rng: random.Random) -> list[int]:
    """Return any stages on any ranks; a rank may hold none, or neighbouring ones."""
    return [rng.randrange(ranks) for _ in range(rng.randint(1, 5))]


SHAPES: tuple[Callable[[int, random.Random], list[int]], ...] = (linear, looped, vee, scattered)


def placement(rng: random.Random, ranks: int, microbatches: int, routes: int) -> Placement:
    """Draw one of the shapes; a second route is mirrored or random; a third one uses these copies."""
    first = rng.choice(SHAPES)(ranks, rng)
    other = [ranks - 1 - rank for rank in first] if rng.random() < 0.6 else [rng.randrange(ranks) for _ in first]
    mixed = [rng.choice(pair) for pair in zip(first, other, strict=True)]
    rank_of = np.array([first, other, mixed][:routes], dtype=np.int32)
    route_of = np.array([rng.randrange(routes) for _ in range(microbatches)], dtype=np.int32)
    return Placement(rank_of, route_of, ranks, ("down", "up", "either")[:routes])


@dataclass
class _Writer:
    """The writer of a run, rank by rank."""

    rng: random.Random
    placement: Placement
    pairs: float  # how often an F and a B of a rank that could both go next go as one slot
    last_first: bool  # whether later stages go first, as pipelines do, or any

    def __post_init__(self) -> None:
        self.stages, self.microbatches = self.placement.stages, self.placement.microbatches
        both = [(s, i) for s in range(self.stages) for i in range(self.microbatches)]
        self.split = {at: self.rng.random() < 0.5 for at in both}
        self.done: set[tuple[str, int, int]] = set()
        self.orders: list[list[Compute]] = [[] for _ in range(self.placement.ranks)]
        self.left = {("F", s, i) for s, i in both}
        self.left |= {(kind, *at) for at in both for kind in (("I", "W") if self.split[at] else ("B",))}

    def possible(self, kind: str, stage: int, microbatch: int) -> bool:
        if kind == "F":
            return stage == 0 or ("F", stage - 1, microbatch) in self.done
        if kind == "W":
            return ("I", stage, microbatch) in self.done
        after = [(k, stage + 1, microbatch) in self.done for k in "IB"]
        return ("F", stage, microbatch) in self.done and (stage == self.stages - 1 or any(after))

    def write(self) -> list[list[Compute]]:
        while self.left:
            ready = sorted(op for op in self.left if self.possible(*op))
            op = max(ready, key=lambda x: x[1]) if self.last_first else self.rng.choice(ready)
            slot = [op, *self._partner(op, ready)]
            for number, (kind, stage, microbatch) in enumerate(sorted(slot, key=lambda x: x[0] != "F")):
                rank = int(self.placement.table[stage, microbatch])
                self.orders[rank].append(Compute(Op[kind], stage, microbatch, number == 1))
                self.left.remove((kind, stage, microbatch))
                self.done.add((kind, stage, microbatch))
        return self.orders

    def _partner(self, op: tuple[str, int, int], ready: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        """Return the partner of an overlap: an F with a B or I of another microbatch, both ready, on one rank."""
        if op[0] == "W" or self.rng.random() > self.pairs:
            return []
        table = self.placement.table
        wanted = ("I", "B") if op[0] == "F" else ("F",)
        alike = [x for x in ready if x[0] in wanted and x[2] != op[2] and table[x[1], x[2]] == table[op[1], op[2]]]
        return [self.rng.choice(alike)] if alike else []


def random_schedule(seed: int, *, ranks: int = 4, microbatches: int = 4, pairs: float | None = None) -> Schedule:
    """Return a right schedule of up to the given numbers of ranks and microbatches."""
    rng = random.Random(seed)
    p, m = rng.randint(1, ranks), rng.randint(1, microbatches)
    where = placement(rng, p, m, rng.choice((1, 1, 2, 2, 3)))
    chance = rng.choice((0, 0.5, 1)) if pairs is None else pairs
    orders = _Writer(rng, where, chance, rng.random() < 0.3).write()
    return Schedule.from_orders(orders, where, "random")


def broken_schedule(seed: int) -> Schedule:
    """Return a right schedule with one to four slips; some are harmless."""
    rng = random.Random(seed ^ 0x5EED)
    good = random_schedule(seed)
    orders = [good.order(rank) for rank in range(good.ranks)]
    for _ in range(rng.randint(1, 4)):
        rng.choice((_shuffle, _swap, _drop, _again, _elsewhere, _relabel))(rng, orders)
    return Schedule.from_orders(orders, good.placement, "broken")


def shuffled_schedule(seed: int) -> Schedule:
    """Return a right schedule with swapped operations on a rank: complete, and often deadlocked."""
    rng = random.Random(seed ^ 0x5EED)
    good = random_schedule(seed)
    orders = [good.order(rank) for rank in range(good.ranks)]
    for _ in range(rng.randint(1, 5)):
        rng.choice((_shuffle, _swap, _swap, _swap))(rng, orders)
    alone = [
        [
            Compute(x.op, x.stage, x.microbatch, x.second and i > 0 and not order[i - 1].second)
            for i, x in enumerate(order)
        ]
        for order in orders
    ]
    return Schedule.from_orders(alone, good.placement, "shuffled")


def _some(rng: random.Random, orders: list[list[Compute]], least: int = 1) -> list[Compute]:
    enough = [order for order in orders if len(order) >= least]
    return rng.choice(enough) if enough else []


def _shuffle(rng: random.Random, orders: list[list[Compute]]) -> None:
    order = _some(rng, orders)
    low = rng.randint(0, len(order))
    part = order[low : low + 4]
    rng.shuffle(part)
    order[low : low + 4] = part


def _swap(rng: random.Random, orders: list[list[Compute]]) -> None:
    if order := _some(rng, orders, 2):
        i = rng.randrange(len(order) - 1)
        order[i], order[i + 1] = order[i + 1], order[i]


def _drop(rng: random.Random, orders: list[list[Compute]]) -> None:
    if order := _some(rng, orders):
        del order[rng.randrange(len(order))]


def _again(rng: random.Random, orders: list[list[Compute]]) -> None:
    if order := _some(rng, orders):
        order.insert(rng.randint(0, len(order)), rng.choice(order))


def _elsewhere(rng: random.Random, orders: list[list[Compute]]) -> None:
    if order := _some(rng, orders):
        x = order.pop(rng.randrange(len(order)))
        there = rng.choice(orders)
        there.insert(rng.randint(0, len(there)), x)


def _relabel(rng: random.Random, orders: list[list[Compute]]) -> None:
    if order := _some(rng, orders):
        i = rng.randrange(len(order))
        x = order[i]
        kind = rng.choice((x.op, x.op, Op.F, Op.I, Op.W, Op.B))
        order[i] = Compute(
            kind, max(0, x.stage + rng.randint(-1, 1)), max(0, x.microbatch + rng.randint(-1, 1)), x.second
        )


@st.composite
def schedules(draw: st.DrawFn, *, pairs: float | None = None) -> Schedule:
    """Return the right schedules."""
    return random_schedule(draw(SEEDS), pairs=pairs)


_NUMBERS = st.fractions(min_value=0, max_value=5, max_denominator=6) | st.sampled_from([Fraction(0), Fraction(1)])


@st.composite
def costs(draw: st.DrawFn, stages: int) -> Costs:
    """Return the costs for a number of stages: zeros and fractions, uniform or by stage, B and FB given or not."""
    given: dict[str, Fraction | tuple[Fraction, ...]] = {}
    for key in ("F", "I", "W", "B", "FB", "C"):
        how = draw(st.sampled_from(["default", "one", "one", "list"]))
        if how == "one":
            given[key] = draw(_NUMBERS)
        elif how == "list":
            given[key] = tuple(draw(st.lists(_NUMBERS, min_size=stages, max_size=stages)))
    made = Costs(given)
    try:
        made.ticks(stages)
    except PipeschedError:  # a B that is less than the part of it that is given
        return Costs({key: cost for key, cost in given.items() if key != "B"})
    return made


@st.composite
def sizes(draw: st.DrawFn, stages: int) -> list[Fraction]:
    """Return the size of one F of each stage: nothing, an even stage, or any share of one."""
    return draw(st.lists(_NUMBERS, min_size=stages, max_size=stages))
