"""With sliced sequences, real gloo processes get the loss and the gradients of whole sequences, even if slices
attend to earlier slices.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipesched import stream as streams
from pipesched.compile import load, read
from pipesched.examine import Options
from pipesched.support.source import Source
from pipesched.verbs.emit import emit
from tests.runtime import sliced
from tests.runtime.harness import Ranks, ranks_of

SPLIT = """\
schedule split(p, m, q)
slices q
stage s in 0 .. p on rank s
rank r { let w = min(p - 2 - r + q, m)  repeat w { F }  repeat m - w { F I }  repeat w { I W } drain W }
"""
SOURCES = {name: read(name) for name in ("seq1f1b", "seq1f1b_i", "terapipe")} | {"split": Source("cut.ps", SPLIT)}
SIZES = ((2, 4, 2), (2, 6, 3), (3, 8, 4), (4, 8, 2))


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "p", "m", "q"),
    [(name, *sizes) for name in SOURCES for sizes in SIZES if name != "seq1f1b_i" or sizes[0] % sizes[2] == 0],
)
def test_gradients_are_those_of_whole_sequences(ranks: Ranks, name: str, p: int, m: int, q: int) -> None:
    """Every slice attends to all earlier ones of its sequence, with as many sequences in flight as allowed."""
    source, options = SOURCES[name], Options({"p": p, "m": m, "q": q})
    assert load(source, options).schedule.slices == q
    stream = streams.loads("".join(emit(source, options, "stream").pieces()))
    assert stream.slices == q
    for rank, found in enumerate(ranks.run(p, sliced.sequences, stream, q)):
        assert found["error"] <= 1e-12 and found["loss"] <= 1e-12, (rank, found)


def test_in_another_order_they_are_not(ranks: Ranks) -> None:
    """The law above is not empty: if microbatches are not declared as slices, backwards run in the wrong order, and
    gradients of later slices are lost.
    """
    stream = streams.loads("".join(emit(read("gpipe"), Options({"p": 2, "m": 4}), "stream").pieces()))
    assert max(found["error"] for found in ranks.run(2, sliced.sequences, stream, 2)) > 1e-3
