"""Two chains on the engines of a rank: the time is the least of all orders, found by trying every tick."""

from __future__ import annotations

import random

from pipesched.engines.pair import pair
from tests.depth import deep
from tests.oracles.engines_by_ticks import shortest


def test_equals_a_search_by_single_ticks() -> None:
    """Random chains of up to six parts on one to three engines; parts of no time count for nothing."""
    rng = random.Random(1956)
    for _ in range(deep(250)):
        engines = "xyz"[: rng.randint(1, 3)]
        a, b = (tuple((rng.randint(0, 5), rng.choice(engines)) for _ in range(rng.randint(0, 6))) for _ in range(2))
        assert pair(a, b) == shortest(a, b) == pair(b, a), (a, b)


def test_chains_of_64_layers() -> None:
    """On one engine they run one after the other; on engines of their own the longer one is the time."""
    layer = ((4, "x"), (7, "y"), (5, "x"), (9, "y"))
    alone = tuple((ticks, "z") for ticks, _ in layer)
    assert pair(layer * 64, alone * 64) == 25 * 64
    assert pair(alone * 64, alone * 64) == 2 * 25 * 64
    assert 25 * 64 <= pair(layer * 64, layer[::-1] * 64) <= 2 * 25 * 64
