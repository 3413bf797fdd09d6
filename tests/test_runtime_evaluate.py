"""Evaluation through the modules of the training: outputs in order, losses, keyword inputs; nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pipesched
from pipesched.compile import lower
from tests.runtime import evaluated
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published, stream_of
from tests.test_forward_only import forwards

SIZES: dict[str, dict[str, int]] = {
    "1f1b-p1": {"p": 1, "m": 3},
    "1f1b-p2": {"p": 2, "m": 3},
    "gpipe-p3": {"p": 3, "m": 4},
    "zb_h1-p4": {"p": 4, "m": 5},
    "interleaved-p2": {"p": 2, "v": 2, "m": 4},
    "interleaved-p4": {"p": 4, "v": 2, "m": 4},
    "zb_v-p2": {"p": 2, "m": 4},
    "zb_v-p4": {"p": 4, "m": 8},
    "dualpipe-p4": {"p": 4, "m": 8},
    "dualpipev-p2": {"p": 2, "m": 5},
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


@pytest.mark.parametrize("alone", [False, True], ids=["of a training", "forward only"])
@pytest.mark.parametrize("scored", [True, False], ids=["scored", "outputs alone"])
@pytest.mark.parametrize("given", SIZES)
def test_outputs_are_those_of_the_undivided_model(ranks: Ranks, given: str, scored: bool, alone: bool) -> None:
    """With the stream of a training, which trains right before and after, and with a stream of forwards alone.

    Every microbatch's output comes back once, in order, on the rank of the last stage; the loss comes on all. Nothing
    is kept for a backward, and the modes and the gradients that modules have stay.
    """
    schedule, sizes = given.partition("-")[0], SIZES[given]
    stream = published(lower(forwards(pipesched.load(schedule, **sizes)))) if alone else stream_of(schedule, **sizes)
    found = ranks.run(sizes["p"], evaluated.evaluated, stream, scored)

    assert max(one["outputs"] for one in found) <= 1e-12
    assert sum(one["count"] for one in found) == sizes["m"]
    assert sum(one["count"] > 0 for one in found) == (2 if schedule == "dualpipe" else 1)
    assert max(one["losses"] for one in found) <= 1e-12
    assert max(one["trained"] for one in found) <= 1e-12
    assert all(one["modes"] and one["unchanged"] and one["kept"] == 0 for one in found)
    assert {train for one in found for train in one["train"]} == {not alone}


REFUSED = {
    "no loss": "there are targets and no loss: give one to `Runtime(loss=…)`",
    "keyword": "no stage on this rank takes the keyword 'maks'",
    "no inputs": "inputs are needed on this rank: it has the first stage",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str) -> None:
    """On the rank of the mistake, and before anything is computed."""
    with ranks_of(1) as ranks:
        assert ranks.run(1, evaluated.refused, stream_of("1f1b", p=1, m=2), what) == [REFUSED[what]]
