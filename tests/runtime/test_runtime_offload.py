"""When real gloo processes copy activations to host memory at O and back at L, gradients equal those of undivided
training, and each activation is at its predicted place.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipesched.compile import load, lower
from pipesched.examine import Options
from pipesched.model.schedule import Schedule
from pipesched.stream import dumps, loads
from pipesched.support.source import Source
from tests.depth import some
from tests.runtime import cases
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published

LINEAR = "schedule away(p, m) stage s in 0 .. p on rank s "
WARM = "let w = min(p - 1 - r, m) repeat w { F O } "
ORDERS = {
    "gpipe": LINEAR + "rank r { repeat m { F O } repeat m { L B } }",
    "gpipe split": LINEAR + "rank r { repeat m { F } repeat m { O } repeat m { L I W } }",
    "1f1b": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F O L B }} repeat w {{ L B }} }}",
    "early": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F O L B }} repeat w {{ L }} repeat w {{ B }} }}",
    "zb_h1": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F O L I if r > 0 {{ W }} }} repeat w {{ L I }} drain W }}",
    "some": LINEAR + "rank r { for i in 0 .. m { F if i % 2 == r % 2 { O(i) } } "
    "for i in 0 .. m { if i % 2 == r % 2 { L } if r % 2 == 0 { I W } else { B } } }",
    "backwards": LINEAR + "rank r { repeat m { F } for i in 0 .. m { O(m - 1 - i) } "
    "for i in 0 .. m { L(m - 1 - i) } for i in 0 .. m { B(m - 1 - i) } }",
    "frozen": LINEAR + f"frozen 0 rank r {{ {WARM} repeat m - w {{ F O L B }} repeat w {{ L B }} }}",
    "between": LINEAR + f"frozen 1 rank r {{ {WARM} repeat m - w {{ F O L I W }} repeat w {{ L I W }} }}",
    "vee": "schedule vee(p, m) stage s in 0 .. 2 * p on rank if s < p then s else 2 * p - 1 - s "
    "rank r { repeat m { F[0] O[0] } repeat m { F[1] } repeat m { B[1] } repeat m { L[0] I[0] W[0] } }",
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


def where(schedule: Schedule, rank: int) -> list[tuple[int, list[tuple[int, int, int]]]]:
    """Return the after each operation of a rank the number of activations on the device and in host memory, and of
    those never copied; by hand.
    """
    there, untouched, found = set[tuple[int, int]](), set[tuple[int, int]](), []
    for x in schedule.order(rank):
        key = x.stage, x.microbatch
        trained = x.stage not in schedule.placement.frozen
        fed = any(s not in schedule.placement.frozen for s in range(x.stage))
        if x.op.name == "F" and (trained or fed):
            there.add(key)
            untouched.add(key)
        elif x.op.name == "O":
            untouched.remove(key)
        elif x.op.name in "BW" or (x.op.name == "I" and not trained):
            there.remove(key)
            untouched.discard(key)
        found.append((len(there), sorted((0, *of) for of in untouched)))
    return found


@pytest.mark.parametrize("p", some([4, 3, 2], 2, usual=3))
@pytest.mark.parametrize("order", tuple(ORDERS))
def test_gradients_and_where_activations_are(ranks: Ranks, order: str, p: int) -> None:
    """Gradients and loss are those of undivided training. From O on an activation is only in host memory, and from L
    until the end of its backward only on the device.
    """
    schedule = load(Source("away.ps", ORDERS[order]), Options({"p": p, "m": p + 1})).schedule
    stream = published(lower(schedule))
    assert loads(dumps(stream)) == stream
    for rank, result in enumerate(ranks.run(p, cases.offloaded, stream)):
        assert result["error"] <= 1e-12 and result["loss"] <= 1e-12, rank
        assert result["counts"] == where(schedule, rank), rank
        assert result["left"] == 0, rank
