"""Orders that repeat a pattern: by modulo scheduling for any placement, and by building blocks for the vee placement.

One microbatch of every route runs through its chain; each operation takes the first time at which its rank is free for
long enough, *counted modulo a period T*. Repeated every T, the pattern never overlaps itself:

    T = the work of the busiest rank for one microbatch of each route     no bubble in the steady state
    T larger                                                              operations end sooner, and less memory is held

Sometimes (at random, from a seed) an operation skips a free time and leaves it to another operation; many patterns are
tried. If no free time is long enough, an operation overlaps others: the times determine only the order, and the order
is run as early as possible. The method is Rau's (Iterative modulo scheduling, MICRO 1994) without eviction.

A building block (Qi et al., 2024, arXiv:2405.15362) states the slots, each of one unit, in which a microbatch runs its
four operations on each rank: a, b = F of the rank's first and second stage, and B, A = their backwards. The block is
repeated every 6 slots, and W take the two free slots:

    slot on position j     a: 0 + up j      b: b0 - j      B: B0 + up j      A: A0 - j        up = 1: V-Min, 2: V-Half

The memory of a rank is the time from a to A plus the time from b to B, divided by 6. All blocks whose four slots never
collide are tried, with one `up` for the first positions and another `up` for the rest; V-Min and V-Half are two of
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, permutations, product

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.least_cap import alone
from pipesched.optimizer.solve.portfolio.shape import way
from pipesched.optimizer.solve.problem import Orders, Problem

TRIES = 60  # patterns tried for every period
STRETCH = (0, 1, 2, 4, 8, 16, 32)  # excess of the period over the work, in 48ths of the work
SKIP = (0.0, 0.1, 0.3, 0.5)  # probability that a free time is skipped


def patterns(problem: Problem, seed: int = 0) -> Iterator[tuple[str, Orders]]:
    """Yield named orders, some of which can exceed the caps; no orders if there are no microbatches."""
    draw = random.Random(seed)
    routes = sorted(set(problem.route.tolist()))
    if not routes or not problem.operations:
        return
    chains = [alone(problem, route).chain for route in routes]
    work = max(1, int(np.bincount(problem.rank, problem.duration, problem.ranks).max()))
    for attempt in range(TRIES):
        for more in STRETCH:
            period = work + work * more // 48
            first = np.array(_pattern(problem, chains, period, SKIP[attempt % len(SKIP)], draw), dtype=np.int64)
            yield "repeated pattern", convert.by_start(problem, first[problem.sequence] + period * problem.index)


def _pattern(
    problem: Problem, chains: list[tuple[int, ...]], period: int, skip: float, draw: random.Random
) -> list[int]:
    """Return the start of the first operation of every sequence."""
    table = _Table(problem, period)
    at = [0] * problem.sequences
    lag = {(int(b), int(a)): int(x) for b, a, x in zip(problem.before, problem.after, problem.lag, strict=True)}
    weights = {(int(problem.route[q]), int(problem.stage[q])): q for q in np.flatnonzero(problem.op == Op.W).tolist()}
    for chain in chains:
        clock = draw.randrange(period) if len(chains) > 1 and chain is not chains[0] else 0
        for c, q in enumerate(chain):
            at[q] = table.put(q, clock, skip, draw)
            clock = at[q] + int(problem.duration[q])
            if c + 1 < len(chain):
                clock += lag[q, chain[c + 1]]
    for chain in chains:
        for q in chain[len(chain) // 2 :]:
            w = weights.get((int(problem.route[q]), int(problem.stage[q])), -1)
            if w >= 0:
                at[w] = table.put(w, at[q] + int(problem.duration[q]), 0.0, draw)
    return at


class _Table:
    """The times, modulo the period, at which each rank is busy."""

    def __init__(self, problem: Problem, period: int) -> None:
        self.problem, self.period = problem, period
        self.taken: list[list[tuple[int, int]]] = [[] for _ in range(problem.ranks)]

    def put(self, q: int, ready: int, skip: float, draw: random.Random) -> int:
        """Reserve the first free time at `ready` or later or, at random, the second; return it."""
        rank, length = int(self.problem.rank[q]), int(self.problem.duration[q])
        taken = self.taken[rank]
        times = [ready, *sorted(ready + (end - ready) % self.period for _, end in taken)]
        free = [t for t in times if self._free(taken, t, length)]
        chosen = ready
        if free:
            chosen = free[1] if len(free) > 1 and draw.random() < skip else free[0]
        taken.append((chosen % self.period, (chosen + length) % self.period))
        return chosen

    def _free(self, taken: list[tuple[int, int]], t: int, length: int) -> bool:
        for begin, end in taken:
            size = (end - begin) % self.period
            before = (begin - t) % self.period
            if size and (before < length or before + size > self.period):
                return False
        return length <= self.period


PERIOD = 6
FEW = 16


@dataclass(frozen=True)
class Block:
    """A building block. slots: int64, shape (6, positions): a, b, B, A, and the W of b and of a."""

    name: str
    slots: Ints

    @property
    def chunks(self) -> int:
        """The largest number of chunks that a rank holds while the block repeats."""
        a, b, _, _, done_b, done_a = self.slots[:, None, :]
        t = np.arange(PERIOD)[:, None]
        held = (t - a) // PERIOD + (t - b) // PERIOD - (t - done_a - 1) // PERIOD - (t - done_b - 1) // PERIOD
        return int(held.max())


def block(name: str, steps: tuple[int, ...], starts: tuple[int, ...]) -> Block | None:
    """Return the block in which a and B rise by these steps from position to position; None if its slots collide.

    starts: the residues of b, B and A at position 0.
    """
    size = len(steps) + 1
    up = np.array([0, *accumulate(steps)], dtype=np.int64)
    down = -np.arange(size)
    b0, back_b0, back_a0 = starts
    a = up
    b = down + _after(b0 - size + 1, int(a[-1]) + 1) + size - 1
    back_b = up + _after(back_b0, int(b[0]) + 1)
    back_a = down + _after(back_a0 - size + 1, int(back_b[-1]) + 1) + size - 1
    slots = np.stack([a, b, back_b, back_a])
    columns = [_with_weights(column) for column in slots.T.tolist()]
    return None if None in columns else Block(name, np.array(columns, dtype=np.int64).T)


def _with_weights(slots: list[int]) -> list[int] | None:
    """Add two slots for W, together as early as possible; None if the four slots collide."""
    left = sorted(set(range(PERIOD)) - {slot % PERIOD for slot in slots})
    if len(left) > PERIOD - len(slots):
        return None
    ways = [[_after(one, slots[2] + 1), _after(two, slots[3] + 1)] for one, two in permutations(left)]
    return slots + min(ways, key=sum)


def _after(residue: int, least: int) -> int:
    """Return the smallest number with this residue that is at least `least`."""
    return least + (residue - least) % PERIOD


_NAMES = {frozenset({1}): "V-Min", frozenset({2}): "V-Half"}


def blocks(size: int) -> list[Block]:
    """Return all blocks whose step changes at most once, without duplicates; blocks that hold the most memory come
    first.

    With more than FEW positions, return only blocks with a constant step, since there are too many others.
    """
    found: dict[bytes, Block] = {}
    for first, then in product(range(1, PERIOD), repeat=2):
        for turn in range(size if first > then and size <= FEW else first == then):
            steps = tuple(first if j < turn else then for j in range(size - 1))
            name = _NAMES.get(frozenset(steps), "V building block")
            for starts in permutations(range(1, PERIOD), 3):
                made = block(name, steps, starts)
                if made is not None:
                    found.setdefault(made.slots.tobytes(), made)
    return sorted(found.values(), key=lambda b: (-b.chunks, int(b.slots.max())))


def slots(problem: Problem, made: Block) -> Ints:
    """Return the slot of every operation, int64, shape (operations,)."""
    ranks = np.array(way(problem, "vee"))
    position = np.argsort(ranks)[problem.rank]
    second = problem.stage >= len(ranks)
    row = np.select([problem.op == Op.F, problem.op == Op.I], [second, 3 - second], 5 - second)
    at: Ints = made.slots[row, position][problem.sequence] + PERIOD * problem.index
    return at


def building_blocks(problem: Problem) -> Iterator[tuple[str, Orders]]:
    """Yield named orders for the vee placement with a split backward, by all blocks within the largest cap."""
    ranks = way(problem, "vee")
    if not ranks or problem.fused:
        return
    takes = int(problem.takes.max(initial=0))
    room = int(problem.cap.max()) // takes if takes else problem.operations
    for made in blocks(len(ranks)):
        if made.chunks <= room:
            yield made.name, convert.by_start(problem, slots(problem, made))
