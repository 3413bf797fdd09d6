"""When real gloo processes recompute forwards at R, gradients equal those of undivided training, random numbers
repeat, and live activations are as predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipesched.analysis.holdings import memory
from pipesched.compile import load, lower
from pipesched.examine import Options
from pipesched.model.release import AT_W
from pipesched.stream import Stream, dumps, loads
from pipesched.support.source import Source
from tests.depth import some
from tests.runtime import cases
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published
from tests.runtime.test_runtime_frozen import kept_after_slots

LINEAR = "schedule again(p, m) stage s in 0 .. p on rank s "
WARM = "let w = min(p - 1 - r, m) repeat w { F } "
ORDERS = {
    "gpipe": LINEAR + "rank r { repeat m { F } repeat m { R B } }",
    "gpipe split": LINEAR + "rank r { repeat m { F } repeat m { R I W } }",
    "1f1b": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F R B }} repeat w {{ R B }} }}",
    "early": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F R B }} repeat w {{ R }} repeat w {{ B }} }}",
    "zb_h1": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F R I if r > 0 {{ W }} }} repeat w {{ R I }} drain W }}",
    "some": LINEAR
    + f"rank r {{ {WARM} repeat m - w {{ F if r % 2 == 0 {{ R }} I W }} repeat w {{ if r % 2 == 0 {{ R }} B }} }}",
    "frozen": LINEAR + f"frozen 0 rank r {{ {WARM} repeat m - w {{ F R B }} repeat w {{ R B }} }}",
    "between": LINEAR + f"frozen 1 rank r {{ {WARM} repeat m - w {{ F R I W }} repeat w {{ R I W }} }}",
    "vee": "schedule vee(p, m) stage s in 0 .. 2 * p on rank if s < p then s else 2 * p - 1 - s "
    "rank r { repeat m { F[0] } repeat m { F[1] } repeat m { R[1] B[1] } repeat m { R[0] I[0] W[0] } }",
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


@pytest.mark.parametrize("p", some([4, 3, 2], 2, usual=3))
@pytest.mark.parametrize("order", tuple(ORDERS))
def test_gradients_and_live_activations(ranks: Ranks, order: str, p: int) -> None:
    """Gradients and loss are those of undivided training; a recomputed F keeps nothing until its R."""
    schedule = load(Source("again.ps", ORDERS[order]), Options({"p": p, "m": p + 1})).schedule
    predicted = memory(schedule, AT_W)
    stream = published(lower(schedule))
    assert loads(dumps(stream)) == stream
    for rank, result in enumerate(ranks.run(p, cases.gradients, stream, "float64")):
        assert result["error"] <= 1e-12 and result["loss"] <= 1e-12, rank
        assert result["untouched"], rank
        assert result["counts"] == kept_after_slots(predicted, rank), rank
        assert result["left"] == result["handed"] == 0, rank


def made(order: str, p: int) -> Stream:
    return published(lower(load(Source("again.ps", ORDERS[order]), Options({"p": p, "m": p + 1})).schedule))


@pytest.mark.parametrize("order", ["gpipe", "gpipe split", "vee"])
def test_the_random_numbers_are_those_of_the_first_time(ranks: Ranks, order: str) -> None:
    """For stages with dropout, gradients are those of the order without R, with the same seed."""
    plain = load(
        Source("plain.ps", ORDERS[order].replace("R[1]", "").replace("R[0]", "").replace("R ", "")),
        Options({"p": 2, "m": 3}),
    )
    first: list[Any] = ranks.run(2, cases.random, published(lower(plain.schedule)))
    again: list[Any] = ranks.run(2, cases.random, made(order, 2))
    assert first == again and all(first)


def test_a_stage_that_changes_its_input_is_refused(ranks: Ranks) -> None:
    """The stage is refused at its R, on its rank: it would recompute other values."""
    found: list[Any] = ranks.run(1, cases.changing, made("gpipe", 1))
    assert found == [("PS831", "stage 0 changes its input in place, so its forward cannot be run again")]
