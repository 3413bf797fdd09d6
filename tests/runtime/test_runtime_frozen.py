"""With frozen stages, real gloo processes train like the undivided model, with the predicted memory; a model whose
frozen stages differ from the stream is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from pipesched.__main__ import main
from pipesched.analysis.holdings import Memory, memory
from pipesched.compile import load, lower
from pipesched.examine import Options
from pipesched.library.inputs import read
from pipesched.model.release import AT_W
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.depth import some
from tests.runtime import cases
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published

SIZES = (  # schedule, ranks, microbatches, stages
    ("1f1b", 2, 3, 2),
    ("1f1b", 4, 5, 4),
    ("gpipe", 3, 3, 3),
    ("interleaved", 2, 4, 4),
    ("zb_h1", 2, 3, 2),
    ("zb_h1", 3, 4, 3),
    ("zb_h1", 4, 6, 4),
    ("zb_v", 2, 4, 4),
    ("zb_v", 3, 6, 6),
    ("dualpipe", 2, 6, 2),
    ("dualpipe", 4, 8, 4),
    ("dualpipev", 2, 4, 4),
)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


def frozen_of(stages: int) -> dict[str, tuple[int, ...]]:
    """Return an encoder, all before the last stage, one in between, the last one, every other one."""
    chosen = {"first": (0,), "but last": (*range(stages - 1),), "last": (stages - 1,)}
    if stages > 2:
        chosen |= {"between": (1,), "other": (*range(0, stages, 2),), "behind": (*range(1, stages),)}
    return chosen


@lru_cache
def schedule_of(name: str, ranks: int, microbatches: int, frozen: tuple[int, ...]) -> Schedule:
    source = read(name)
    text = source.text + "".join(f"frozen {stage}\n" for stage in frozen)
    return load(Source(source.name, text), Options({"p": ranks, "m": microbatches})).schedule


def cases_of() -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
    for name, p, m, stages in SIZES:
        yield from ((name, p, m, frozen) for frozen in frozen_of(stages).values())


@pytest.mark.parametrize(("name", "p", "m", "frozen"), some(list(cases_of()), 4))
def test_gradients_and_live_activations(ranks: Ranks, name: str, p: int, m: int, frozen: tuple[int, ...]) -> None:
    """Gradients and loss are those of undivided training with the same frozen weights, which get none.

    Live activations after every compute are the predicted ones, and none is left.
    """
    schedule = schedule_of(name, p, m, frozen)
    predicted = memory(schedule, AT_W)
    for rank, result in enumerate(ranks.run(p, cases.gradients, published(lower(schedule)), "float64")):
        assert result["error"] <= 1e-12 and result["loss"] <= 1e-12, rank
        assert result["untouched"], rank
        assert result["counts"] == kept_after_slots(predicted, rank), rank
        assert result["left"] == result["handed"] == 0, rank


def kept_after_slots(predicted: Memory, rank: int) -> list[int]:
    """Return the activations of stages after each slot of a rank."""
    schedule = predicted.schedule
    low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
    last = [i for i in range(low, high) if i + 1 == high or not schedule.joined[i + 1]]
    return [int(predicted.kept[i]) for i in last]


REFUSED = (
    ("frozen asks", (0,), {}, "stage 0 is frozen, but its weight 'norm.weight' requires a gradient"),
    ("trained does not", (0,), {0: False, 1: False}, "stage 1 is trained, but none of its weights requires a gradient"),
    ("in between", (1,), {1: True}, "stage 1 is frozen, but its weight"),
)


@pytest.mark.parametrize(("name", "frozen", "asks", "said"), REFUSED)
def test_a_model_that_disagrees_is_refused(
    ranks: Ranks, name: str, frozen: tuple[int, ...], asks: dict[int, bool], said: str
) -> None:
    """The model is refused on every rank, before the first step, with the stage and the weight."""
    stream = published(lower(schedule_of("1f1b", 3, 3, frozen)))
    found: list[Any] = ranks.run(3, cases.disagreeing, stream, asks, ())
    assert all(code == "PS831" and said in message for code, message in found), found


def test_a_weight_that_is_tied_to_a_frozen_one_is_refused(ranks: Ranks) -> None:
    """The weight is refused if tied across ranks by `tied`, or on one rank as one tensor."""
    stream = published(lower(schedule_of("1f1b", 3, 3, (0,))))
    tied = (((0, "wide.weight"), (2, "wide.weight")),)
    found: list[Any] = ranks.run(3, cases.disagreeing, stream, {0: False}, tied)
    said = "a weight is tied between stage 0, which is frozen, and stage 2, which is not"
    assert all(code == "PS831" and said in message for code, message in found), found
    stream = published(lower(schedule_of("zb_v", 2, 4, (0,))))
    found = ranks.run(2, cases.disagreeing, stream, {}, (), (0, 3))
    assert all(code == "PS831" and "is tied to a weight of stage 3" in message for code, message in found), found


def test_the_engine_of_torch_refuses_frozen_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By name, before any process starts."""
    file = tmp_path / "frozen.ps"
    file.write_text(
        "schedule f(p, m) stage s in 0 .. p on rank s frozen 0 rank r { repeat m { F B } }", encoding="utf-8"
    )
    assert main(["run", str(file), "--p", "2", "--m", "2", "--engine", "torch"]) == 1
    assert "error[PS814]: `run` does not support frozen stages with torch's engine" in "".join(capsys.readouterr())
