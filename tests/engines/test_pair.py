"""The time of two chains of parts on a rank's engines is the least of all orders, which are tried tick by tick."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from pipesched.engines.pair import TooLong, begun, pair
from tests.depth import deep
from tests.oracles.engines_by_ticks import shortest


def test_equals_a_search_by_single_ticks() -> None:
    """Random chains of up to six parts on one to three engines; parts of duration 0 have no effect."""
    rng = random.Random(1956)
    for _ in range(deep(250)):
        engines = "xyz"[: rng.randint(1, 3)]
        a, b = (tuple((rng.randint(0, 5), rng.choice(engines)) for _ in range(rng.randint(0, 6))) for _ in range(2))
        assert pair(a, b) == shortest(a, b) == pair(b, a), (a, b)


@pytest.mark.parametrize("few", [0, 1000], ids=["by rows", "by bounds"])
def test_starts_are_an_order_of_that_length(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chain in order, one part at a time on an engine, the last end at the least time."""
    monkeypatch.setattr("pipesched.engines.pair._FEW", few)
    rng = random.Random(1957)
    for _ in range(deep(250)):
        chains = [[(rng.randint(1, 5), rng.choice("xy")) for _ in range(rng.randint(0, 8))] for _ in range(2)]
        time, *starts = begun(*chains)
        placed = [
            [(start, start + ticks, engine) for start, (ticks, engine) in zip(row, chain, strict=True)]
            for row, chain in zip(starts, chains, strict=True)
        ]
        for row in placed:
            assert all(before[1] <= after[0] for before, after in pairwise(row))
        for one in placed[0]:
            assert all(one[1] <= x[0] or x[1] <= one[0] for x in placed[1] if x[2] == one[2])
        assert max([0, *(end for row in placed for _, end, _ in row)]) == time


def test_a_search_without_end_is_given_up() -> None:
    """4,096 parts in no pattern on three engines: the budget is left within seconds."""
    rng = random.Random(3)
    chains = [[(rng.randint(1, 99), rng.choice("xyz")) for _ in range(64)] * 64 for _ in range(2)]
    with pytest.raises(TooLong):
        pair(*chains)


def test_chains_of_64_layers() -> None:
    """On one engine the chains run one after the other; on separate engines the longer chain determines the time."""
    layer = ((4, "x"), (7, "y"), (5, "x"), (9, "y"))
    alone = tuple((ticks, "z") for ticks, _ in layer)
    assert pair(layer * 64, alone * 64) == 25 * 64
    assert pair(alone * 64, alone * 64) == 2 * 25 * 64
    assert 25 * 64 <= pair(layer * 64, layer[::-1] * 64) <= 2 * 25 * 64


def test_chains_in_no_pattern() -> None:
    """Some 200 parts a chain: the search by bounds and the one by rows find the same time, for huge ticks too."""
    rng = random.Random(11)
    a, b = ([(rng.randint(1, 99), rng.choice("xyz")) for _ in range(200)] for _ in range(2))
    by_rows, by_bounds = pair(a, b), pair([*a, *[(1, "n")] * 2000], [*b, *[(1, "m")] * 2000])
    assert by_bounds == by_rows + 2000
    huge = 10**20
    assert pair([(x * huge, on) for x, on in a], [(x * huge, on) for x, on in b]) == by_rows * huge
