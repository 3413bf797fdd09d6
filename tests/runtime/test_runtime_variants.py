"""Models that are not a stack of equal blocks are trained correctly, or refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pipesched
from pipesched.compile import lower
from pipesched.stream import Stream
from pipesched.support.source import Source
from tests.depth import deep, in_usual_run
from tests.runtime import cases
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published, stream_of
from tests.runtime.variants import VARIANTS

TOLERANCE = 1e-12


NOT_SPLIT = {
    "reentrant": "Recomputed cannot be split: reentrant activation checkpointing",
    "selective": "Selective cannot be split: selective activation checkpointing",
    "selective by policy": "Selective cannot be split: selective activation checkpointing",
    "selective loss": "Block cannot be split: selective activation checkpointing",
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


MODELS = [name for name in VARIANTS if name != "shared"]
ORDERS = [("zb_h2", 4, 7), ("1f1b", 3, 4), ("dualpipe", 2, 4), ("zb_h1", 3, 4)]


@pytest.mark.parametrize(
    ("schedule", "p", "m", "name"),
    [
        (*order, name)
        for i, order in enumerate(ORDERS)
        for j, name in enumerate(MODELS)
        if deep(1) > 1 or i == j % 4 or (i % 2 == j % 2 and not in_usual_run())
    ],
)
def test_irregular_models(ranks: Ranks, schedule: str, p: int, m: int, name: str) -> None:
    """Gradients and loss are those of the undivided model, and a split stage causes no warning."""
    for rank, result in enumerate(ranks.run(p, cases.variant, stream_of(schedule, p=p, m=m), name)):
        assert result["error"] <= TOLERANCE, rank
        assert result["loss"] <= TOLERANCE, rank
        if name not in NOT_SPLIT:
            assert result["warnings"] == [], rank


@pytest.mark.parametrize(("schedule", "p", "m"), [("1f1b", 3, 4), ("zb_h1", 3, 4), ("dualpipe", 2, 4)])
def test_inputs_that_want_a_gradient_get_it(ranks: Ranks, schedule: str, p: int, m: int) -> None:
    """The model's own input has the gradient of undivided training, on the rank that it enters."""
    stream = stream_of(schedule, p=p, m=m)
    for rank, result in enumerate(ranks.run(p, cases.variant, stream, "input")):
        count, error = result["inputs"]
        first = [route.microbatches for route in stream.placement if route.ranks[0] == rank]
        assert count == sum(end - begin for begin, end in first), rank
        assert error <= TOLERANCE, rank


@pytest.mark.parametrize("name", list(NOT_SPLIT))
def test_a_stage_that_cannot_be_split_says_so(ranks: Ranks, name: str) -> None:
    """Checkpointing with one backward runs it at I under a split schedule, with one reason on each such rank.

    The first stage has nothing to split: its I does nothing. A loss is part of the last stage.
    """
    *others, last = [result["warnings"] for result in ranks.run(3, cases.variant, stream_of("zb_h1", p=3, m=4), name)]
    assert others[0] == []
    for told in [last] if name == "selective loss" else [*others[1:], last]:
        (warning,) = told
        assert warning.startswith(f"NotSplit: {NOT_SPLIT[name]}")


@pytest.mark.parametrize("schedule", ["interleaved", "vee", "dualpipe"])
def test_weights_that_stages_of_one_rank_share(ranks: Ranks, schedule: str) -> None:
    """A tensor in two stages of a rank is divided and exchanged once."""
    stream = {
        "interleaved": lambda: stream_of("interleaved", p=1, v=2, m=3),  # stages 0 and 1 on the only rank
        "vee": vee,  # stages 0 and 3 on rank 0
        "dualpipe": lambda: stream_of("dualpipe", p=2, m=4),  # down 0 and up 1 on rank 0
    }[schedule]()
    for rank, result in enumerate(ranks.run(len(stream.ranks), cases.variant, stream, "shared")):
        assert result["error"] <= TOLERANCE, rank
        assert result["warnings"] == [], rank


def test_a_weight_shared_across_ranks_is_noticed(ranks: Ranks) -> None:
    """If it is not declared, each rank has a part of the gradient; the first rank warns and names both ends."""
    first, *_ = ranks.run(3, cases.variant, stream_of("1f1b", p=3, m=4), "shared")
    (warning,) = first["warnings"]
    assert warning.startswith("LooksTied: 'weight' of stage 0 and 'weight' of stage 2 begin with the same values")
    assert first["error"] > 0.01


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2"])
@pytest.mark.parametrize("name", ["outputs", "recomputed", "no_weights", "frozen"])
def test_one_rank_needs_no_process_group(ranks: Ranks, schedule: str, name: str) -> None:
    """At p = 1 every schedule that allows it runs without torch.distributed."""
    stream = stream_of(schedule, p=1, m=3)
    (result,) = ranks.run(1, cases.variant, stream, name)
    assert result["error"] <= TOLERANCE
    assert result["loss"] <= TOLERANCE


def vee() -> Stream:
    """Return two stages on each of two ranks, there and back: F and B of one microbatch after the other."""
    text = """
schedule vee(p, m)
stage s in 0 .. 2 * p on rank if s < p then s else 2 * p - 1 - s
rank r { for k in 0 .. m { F[0] F[1] B[1] B[0] } }
"""
    schedule = pipesched.load(Source("vee.ps", text), p=2, m=3)
    return published(lower(schedule))
