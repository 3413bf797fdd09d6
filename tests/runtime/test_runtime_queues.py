"""Real processes with message queues stop where the models predict, and receive the messages that the pairing
predicts.

gloo is a rendezvous at every size, so a queue that waits for one message after the other is what a stream of NCCL
promises at least: one-stream a queue a rank and communicator, pair-stream a queue for each peer too; under strict the
rank itself waits, and each operation of a batch goes on alone. A hundred programs here; as many as you like with

    python -m tests.runtime.test_runtime_queues --cases 5000
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import pipesched
from pipesched.analysis.communication import parse_model
from pipesched.analysis.events import Events
from pipesched.model.schedule import Program
from tests.core.test_batches import batched
from tests.depth import deep
from tests.oracles.simulate import partners
from tests.runtime.queued import Players, players

MODELS = ("strict", "one-stream", "pair-stream", "async")
CASES = deep(16)
ORDERS = Path(__file__).parents[1] / "orders" / "megatron"


def play(processes: Players, case: Program, model: str) -> tuple[int, ...]:
    """Return the stops of real ranks; earlier messages must be those that were sent to them."""
    places = processes.play(case, model)
    partner = partners([case.instructions(rank) for rank in range(case.ranks)])
    for rank, place in enumerate(places):
        for at, number in place.got.items():
            there, i = partner[rank, at]
            assert number == 1000 * there + i, (rank, at, number)
    return tuple(place.at for place in places)


def differences(seeds: Iterable[int]) -> Iterator[tuple[int, bool, object]]:
    """For each program whether it hangs, and its difference from the prediction, if any. Programs of one size share one
    set of ranks.
    """
    cases = {seed: (batched(seed), random.Random(seed).choice(MODELS)) for seed in seeds}
    for size in sorted({case.ranks for case, _ in cases.values()}):
        with players(size) as processes:
            for seed, (case, model) in cases.items():
                if case.ranks == size:
                    stops = Events(case, parse_model(model)).stops
                    found = play(processes, case, model)
                    hangs = set(stops) != {-1}
                    yield seed, hangs, None if found == stops else (model, found, stops)


def test_programs_end_or_hang_where_predicted() -> None:
    """With batches and communicators, under any model, each rank is at the instruction where the analysis stops it."""
    found = list(differences(range(CASES)))
    assert [(seed, difference) for seed, _, difference in found if difference] == []
    assert CASES // 8 < sum(hangs for _, hangs, _ in found) < CASES


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
def test_megatrons_orders(name: str, model: str, ends: bool) -> None:
    """The flush of the warm-up hangs on four real ranks with one queue each; batches for m = p do not."""
    case = pipesched.load(ORDERS / f"{name}.order").program
    assert case is not None
    with players(case.ranks) as processes:
        stops = play(processes, case, model)
    assert (set(stops) == {-1}) == ends
    assert stops == Events(case, parse_model(model)).stops


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    total, hung, wrong = 0, 0, 0
    for seed, hangs, difference in differences(range(given.first, given.first + given.cases)):
        total, hung, wrong = total + 1, hung + hangs, wrong + (difference is not None)
        if difference is not None or total % 100 == 0:
            print(f"{total} programs, {hung} hang, {wrong} differences", seed, difference or "", flush=True)
    print(f"{total} programs, {hung} hang, {wrong} differences")
