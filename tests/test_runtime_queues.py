"""Real processes whose ranks have queues stop where the models say, and receive what the pairing says.

gloo is a rendezvous at every size, so a queue that waits for one message after the other is what a stream of NCCL
promises at least: one-stream a queue a rank and communicator, pair-stream a queue for each peer too; under strict the
rank itself waits, and each operation of a batch goes on alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pipesched
from pipesched.analysis import termination
from pipesched.analysis.communication import parse_model
from pipesched.model.program import Program
from tests.depth import deep
from tests.oracles.simulate import partners
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.queued import queued
from tests.test_batches import batched

MODELS = ("strict", "one-stream", "pair-stream", "async")
AT_ONCE = 4
TIMEOUT = 1.0  # seconds without progress that count as a hang: hundreds of times what a message takes
SAFE, DEADLOCKED = deep(80), deep(28)
ORDERS = Path(__file__).parent / "orders" / "megatron"


def drawn(wanted: bool, count: int) -> list[tuple[Program, str, tuple[int, ...]]]:
    """So many programs that end, or do not, each under a model; those with batches come first."""
    found = []
    for seed in range(100 * count):
        rng = random.Random(seed)
        case, model = batched(seed), rng.choice(MODELS)
        stops = termination.stops(case, parse_model(model))
        if (set(stops) == {-1}) == wanted and (case.group >= 0).any():
            found.append((case, model, stops))
        if len(found) == count:
            return found
    raise AssertionError("too few")


def play(ranks: Ranks, case: Program, model: str) -> tuple[int, ...]:
    """Where real ranks stop; what they received before must be what was sent to them."""
    lists = [case.instructions(rank) for rank in range(case.ranks)]
    results = ranks.run(case.ranks, queued, lists, model, TIMEOUT, timeout=TIMEOUT, limit=TIMEOUT + 30)
    partner = partners(lists)
    for rank, (_, got) in enumerate(results):
        for place, number in got.items():
            there, i = partner[rank, place]
            assert number == 1000 * there + i, (rank, place, number)
    return tuple(stop for stop, _ in results)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(6) as made:
        yield made


def test_programs_that_end_do(ranks: Ranks) -> None:
    """Under each model, with batches and communicators."""
    for number, (case, model, stops) in enumerate(drawn(True, SAFE)):
        assert play(ranks, case, model) == stops, (number, model)


def test_programs_that_hang_do_where_predicted() -> None:
    """Every rank at the instruction where the analysis stops it. What hangs needs no CPU, so a few do at a time."""
    cases = list(enumerate(drawn(False, DEADLOCKED)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(_hang, [cases[i::AT_ONCE] for i in range(AT_ONCE)]):
            pass


def _hang(given: list[tuple[int, tuple[Program, str, tuple[int, ...]]]]) -> None:
    with ranks_of(4) as ranks:
        for number, (case, model, stops) in given:
            assert play(ranks, case, model) == stops, (number, model)


@pytest.mark.parametrize(
    ("name", "model", "ends"),
    [
        ("p4_v2_m4_flush", "one-stream", False),
        ("p3_v2_m3_flush", "one-stream", True),
        ("p5_v2_m5_flush", "one-stream", True),
        ("p4_v2_m4_flush", "pair-stream", True),
        ("p4_v2_m4_overlap", "one-stream", True),
        ("p2_v2_m2_flush", "one-stream", True),
        ("p2_v2_m2_batched", "strict", True),
        ("p4_v2_m4_batched", "strict", True),
    ],
)
def test_megatrons_orders(ranks: Ranks, name: str, model: str, ends: bool) -> None:
    """The flush of the warm-up hangs on four real ranks with one queue each; batches of m = p do not."""
    case = pipesched.load(ORDERS / f"{name}.order").program
    assert case is not None
    stops = play(ranks, case, model)
    assert (set(stops) == {-1}) == ends
    assert stops == termination.stops(case, parse_model(model))
