"""On microbatches of different lengths, real gloo processes train like the undivided model and hold the predicted
number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipesched.compile import examined, lower
from pipesched.examine import Options
from pipesched.support.source import Source
from tests.depth import some
from tests.runtime import packed
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published, stream_of

LINEAR = "schedule packed(p, m, length[m])\nstage s in 0 .. p on rank s\n"
VEE = "schedule packed(p, m, length[m])\nstage s in 0 .. 2 * p on rank if s < p then s else 2 * p - 1 - s\n"
WARM = "let w = min(p - 1 - r, m)  repeat w { F }  "
ORDERS = {
    "gpipe": LINEAR + "rank r { repeat m { F }  repeat m { B } }",
    "1f1b": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F B }}  repeat w {{ B }} }}",
    "split": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F I }}  repeat w {{ I W }}  drain W }}",
    "again": LINEAR + f"rank r {{ {WARM} repeat m - w {{ F R B }}  repeat w {{ R I W }} }}",
    "frozen": LINEAR + f"frozen 0\nrank r {{ {WARM} repeat m - w {{ F B }}  repeat w {{ B }} }}",
    "vee": VEE + "rank r { repeat m { F[0] }  repeat m { F[1] B[1] }  repeat m { I[0] }  drain W }",
}
COSTS = "\ncosts F[s, i] = 2 * length[i], B[s, i] = 4 * length[i], M[s, i] = length[i]\n"


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


@pytest.mark.parametrize("p", some([4, 3, 2], 2, usual=3))
@pytest.mark.parametrize("order", ORDERS)
def test_gradients_and_live_tokens(ranks: Ranks, order: str, p: int) -> None:
    """Two steps with different lengths: gradients and losses are those of the undivided model, with the mean over
    microbatches, and with the mean over tokens if the loss computes it. Live tokens after every compute are the
    predicted ones. A stage runs one dry forward for each new length.
    """
    m = p + 2
    first, last = [3 + i % 2 for i in range(m)], [1 + (5 * i + p) % 7 for i in range(m)]
    text, options = ORDERS[order] + COSTS, Options({"p": p, "m": m, "length": tuple(last)})
    analysis = examined(Source("packed.ps", text), options).analysis
    schedule, memory = analysis.schedule, analysis.memory
    stream = published(lower(schedule))
    given = p == 3
    found = ranks.run(p, packed.steps, stream, [first, last], given, order != "gpipe")
    shapes = {number: shape for result in found for number, shape in result["shapes"].items()}
    assert shapes == {number: [length, packed.WIDTH] for number, length in enumerate(last)}
    for rank, result in enumerate(found):
        assert result["error"] <= 1e-12 and result["loss"] <= 1e-12, (rank, result)
        low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
        even = schedule.stages // p
        assert result["live"] == [int(memory.kept[i]) * memory.part * even for i in range(low, high)], rank
        assert result["left"] == 0, rank
        mine = sum(1 for _, stage in stream.held_by(rank) if stage < stream.stages - 1)
        assert result["dry"] == (0 if given else len({*last} - {*first}) * mine), rank


SAID = {
    "dtype": ("PS824", "the model's input is float32[3, 6] for microbatch 1; it was float64[3, 6] before"),
    "missing": ("PS824", "the rank of stage 0 has no example of the model's input"),
    "width": ("PS824", "stage 0 cannot run on float64[3, 5]"),
    "count": ("ValueError", "3 microbatches of examples; the stream runs 4"),
}


@pytest.mark.parametrize("kind", SAID)
def test_what_is_refused(ranks: Ranks, kind: str) -> None:
    """The batch is refused with the same message on every rank, outside of a step."""
    for found in ranks.run(2, packed.refused, stream_of("1f1b", p=2, m=4), kind):
        code, said = SAID[kind]
        assert found[0] == code and said in found[1]


def test_lengths_of_another_step_are_refused() -> None:
    """A step with unexpected shapes is refused where they occur, with the call to make."""
    with ranks_of(2) as mine:
        first, _ = mine.run(2, packed.refused, stream_of("1f1b", p=2, m=4), "stale", timeout=1)
    assert first[0] == "PS824" and "is float64[3, 6], but the other end expects float64[6, 6]" in first[1]
