"""Two chains on the engines of a rank: the time is the least of all orders, found by trying every tick."""

from __future__ import annotations

import random
from functools import cache

from pipesched.engines.pair import Chain, pair
from tests.depth import deep


def tried(a: Chain, b: Chain) -> int:
    """Return the least time by breadth: at every tick each chain goes on, begins its next part, or waits."""
    a, b = [x for x in a if x[0]], [x for x in b if x[0]]

    @cache
    def steps(i: int, left: int, on: Chain) -> tuple[tuple[int, int, str], ...]:
        """What a chain may do in a tick: the next state, and the engine that it uses."""
        if left:
            return ((i, left - 1, on[i - 1][1]),)
        idle = ((i, 0, ""),)
        return idle if i == len(on) else (*idle, (i + 1, on[i][0] - 1, on[i][1]))

    states, time = {(0, 0, 0, 0)}, 0
    first, second = tuple(a), tuple(b)
    while (len(a), 0, len(b), 0) not in states:
        time += 1
        states = {
            (i, u, j, v)
            for x, y, z, w in states
            for i, u, one in steps(x, y, first)
            for j, v, other in steps(z, w, second)
            if not one or one != other
        }
    return time


def test_equals_a_search_by_single_ticks() -> None:
    """Random chains of up to six parts on one to three engines; parts of no time count for nothing."""
    rng = random.Random(1956)
    for _ in range(deep(250)):
        engines = "xyz"[: rng.randint(1, 3)]
        a, b = (tuple((rng.randint(0, 5), rng.choice(engines)) for _ in range(rng.randint(0, 6))) for _ in range(2))
        assert pair(a, b) == tried(a, b) == pair(b, a), (a, b)


def test_chains_of_64_layers() -> None:
    """On one engine they run one after the other; on engines of their own the longer one is the time."""
    layer = ((4, "x"), (7, "y"), (5, "x"), (9, "y"))
    alone = tuple((ticks, "z") for ticks, _ in layer)
    assert pair(layer * 64, alone * 64) == 25 * 64
    assert pair(alone * 64, alone * 64) == 2 * 25 * 64
    assert 25 * 64 <= pair(layer * 64, layer[::-1] * 64) <= 2 * 25 * 64
