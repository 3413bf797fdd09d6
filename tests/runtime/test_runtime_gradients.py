"""Real gloo processes compute the same gradients as undivided training, with the predicted memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

import pipesched
from pipesched.analysis.holdings import Memory, memory
from pipesched.model.release import AT_W
from tests.depth import deep, some
from tests.runtime import cases
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import SCHEDULES, stream_of

COUNTS: dict[str, Callable[[int], tuple[int, ...]]] = {
    "interleaved": lambda p: (p, 2 * p, 3 * p),
    "zb_h2": lambda p: (2 * p - 1, 2 * p, 3 * p + 1),
    "zb_v": lambda p: (p, 2 * p, 3 * p),  # 3 of 4 stages nearly cancel in float32, for every schedule
    "dualpipe": lambda p: (2 * p, 2 * p + 2, 3 * p),
    "dualpipev": lambda p: (2 * p, 2 * p + 1, 3 * p),
}
LIBRARY = (
    "naive",
    "gpipe_reversed",
    "eager_1f1b",
    "looped_bfs",
    "interleaved_n",
    "interleaved_overlap",
    "grouped_interleaved",
    "interleaved_zb",
    "chimera",
    "chimera_n",
    "bitpipe",
    "hanayo",
    "1f1b_v",
    "v_half",
    "v_min",
    "v_zb",
    "capped",
)
TOLERANCE = {"float64": 1e-12, "float32": 1e-6}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


def sizes() -> Iterator[tuple[str, int, int]]:
    """Yield every schedule at the supported ones of 2, 3 and 4 ranks, with three numbers of microbatches."""
    for p in (2, 3, 4):
        for name in SCHEDULES:
            if name == "dualpipe" and p % 2:
                continue
            counts = COUNTS.get(name, lambda p: (p, 2 * p - 1, 2 * p + 2))(p)
            yield from ((name, p, m) for m in counts)


SIZES = list(sizes())


@pytest.mark.parametrize(
    ("name", "p", "m", "kind"),
    some(
        [
            (*size, kind)
            for i, size in enumerate(SIZES)
            for kind in TOLERANCE
            if deep(1) > 1 or i % 3 == (i // 3 + size[1]) % 3 or (kind, size[1]) == ("float64", 2)
        ],
        1,
        usual=3,
    ),
)
def test_gradients_and_live_activations(ranks: Ranks, name: str, p: int, m: int, kind: str) -> None:
    """Gradients and loss are those of undivided training, within the tolerance, with either kind of backward.

    With ``--full`` one of three numbers of microbatches in turn, all on two ranks, and a third of these in a usual run;
    all with ``--depth 2``.

    Live activations are the predicted ones, release at W, at their peak and after every compute, and none is left.
    """
    stream = stream_of(name, p=p, m=m)
    schedule = pipesched.load(name, p=p, m=m)
    predicted = memory(schedule, AT_W)
    for rank, result in enumerate(ranks.run(p, cases.gradients, stream, kind)):
        assert result["error"] <= TOLERANCE[kind], rank
        assert result["loss"] <= TOLERANCE[kind], rank
        assert Fraction(result["peak"] * p, stream.stages) == predicted.peak[rank], rank
        assert result["counts"] == held_after_slots(predicted, rank), rank
        assert result["left"] == result["handed"] == 0, rank


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_trains(ranks: Ranks, name: str) -> None:
    """All other chains, loops, waves and routes train correctly, at one size, or at all with ``--depth 2``."""
    for p in (4,) if deep(1) == 1 or name == "chimera_n" else (2, 4):
        test_gradients_and_live_activations(ranks, name, p, 2 * p, "float64")


def held_after_slots(predicted: Memory, rank: int) -> list[int]:
    """Return the activations of stages, after each slot of a rank: an overlap pair is one slot."""
    schedule = predicted.schedule
    low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
    last = [i for i in range(low, high) if i + 1 == high or not schedule.joined[i + 1]]
    return [int(predicted.held[i]) for i in last]


def test_both_copies_are_equal_after_sync(ranks: Ranks) -> None:
    """The two copies of a stage of DualPipe hold the same gradients, bit for bit; an optimizer keeps them equal."""
    stream = stream_of("dualpipe", p=4, m=10)
    found = ranks.run(4, cases.gradients, stream, "float32")
    for stage in range(stream.stages):
        copies = {result["digests"][stage] for result in found if stage in result["digests"]}
        assert len(copies) == 1 and sum(stage in result["digests"] for result in found) == 2, stage
