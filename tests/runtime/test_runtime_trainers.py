"""Each row of the table in `pipesched/runtime/README.md`, which lists what the runtime supports, is tested on real
processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from tests.runtime import (
    test_runtime_again,
    test_runtime_delayed,
    test_runtime_evaluate,
    test_runtime_frozen,
    test_runtime_offload,
    test_runtime_packed,
    test_runtime_readers,
    test_runtime_slices,
    test_runtime_steps,
    test_runtime_tied,
    test_runtime_variants,
    trainers,
)
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import stream_of

TOLERANCE = 1e-12
README = Path(__file__).parents[2] / "pipesched" / "runtime" / "README.md"


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "views": {"gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True},
    "static": {"static_graph": True},
    "hook": {"hook": allreduce_hook},
    "static views": {"static_graph": True, "gradient_as_bucket_view": True},
}
REPLICAS = [
    ("1f1b", "plain", False),
    ("1f1b", "unused", False),
    ("1f1b", "static", False),
    ("zb_h1", "plain", True),
    ("zb_h1", "static views", False),
    ("zb_h1", "hook", False),
    ("zb_v", "unused", False),
    ("interleaved", "static", False),
    ("dualpipe", "views", True),
]


@pytest.mark.parametrize(("name", "options", "apart"), REPLICAS)
def test_replicas(ranks: Ranks, name: str, options: str, apart: bool) -> None:
    """In every stage two replicas of a pipeline leave the gradients of the undivided model on both batches.

    After one step, and after three of which the second was within `no_sync`. Weights that one replica uses get their
    share; those that none uses stay without a gradient where DDP is to look for them. Buffers are those of the first.
    """
    for rank, found in enumerate(ranks.run(4, trainers.replicas, stream_of(name, p=2, m=4), OPTIONS[options], apart)):
        assert max(found["errors"]) <= TOLERANCE, rank
        assert found["buffers"] == 0, rank
        if "find_unused_parameters" in OPTIONS[options]:
            assert all(found["unused"]), rank


def test_replicas_that_are_none(ranks: Ranks) -> None:
    """Different streams on one replica are refused on all; stages that are not averaged like others cause a warning."""
    streams = [stream_of("1f1b", p=2, m=m) for m in (4, 8)]
    for stage, found in enumerate(ranks.run(4, trainers.unequal, streams, [0, 1])):
        assert "error[PS831]: DistributedDataParallel averages replicas 0 and 1 of stage" in found
        assert f"stage {stage % 2}, which run different streams" in found
    found = ranks.run(4, trainers.unequal, streams[:1] * 2, [0])
    told = "stages are averaged over different numbers of replicas (stage 0: 2, stage 1: 1)"
    assert found == [told, "", told, ""]


REFUSED = {
    "FSDP1": "stage 0: FullyShardedDataParallel (FSDP1) is not supported",
    "FSDP2": "stage 0: fully_shard (FSDP2) is not supported",
    "tensor parallel": "stage 0: the weight 'wide.weight' is a DTensor (tensor parallel), which is not supported",
    "replicate()": "stage 0: the composable replicate() is not supported",
    "DDP over all processes": "DistributedDataParallel averages stage 0 on rank 0 and stage 1 on rank 1",
    "DDP, frozen later": "stage 0: DistributedDataParallel built when other weights were trained is not supported",
    "hooks on weights": "stage 0: the weight 'norm.weight' is hooked by register_post_accumulate_grad_hook",
    "optimizer in the backward": "stage 0: the weight 'norm.weight' is updated by an optimizer in the backward",
}


@pytest.mark.parametrize("kind", list(trainers.REFUSED))
def test_what_is_refused(ranks: Ranks, kind: str) -> None:
    """By name, when the runtime is built, on every rank with the same message and the remedy."""
    found = ranks.run(2, trainers.refused, stream_of("zb_h1", p=2, m=2), kind)
    assert len(set(found)) == 1
    assert found[0].startswith(f"RunError: error[PS831]: {REFUSED[kind]}")
    assert "= help: " in found[0]


@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
@pytest.mark.parametrize("kind", [*(kind for kind in trainers.AROUND if kind != "plain"), "autocast"])
def test_what_is_put_around_stages(ranks: Ranks, name: str, kind: str) -> None:
    """After two steps with an optimizer, gradients and weights are those of the same wrapping in one piece.

    A compiled graph has one backward for all, so I runs it, with a warning.
    """
    autocast = kind == "autocast"
    found = ranks.run(2, trainers.around, stream_of(name, p=2, m=4), "plain" if autocast else kind, autocast)
    for rank, result in enumerate(found):
        assert result["error"] <= 1e-5, rank
        assert result["weights"] <= 1e-6, rank
        assert result["split"] == (name == "1f1b" or rank == 0 or not kind.startswith("compile") or kind == EAGER), rank


def test_autocast_that_begins_late() -> None:
    """A dtype that appears after the runtime was built is refused, with the right place of autocast."""
    with ranks_of(2) as ranks:
        first, _ = ranks.run(2, trainers.cast_late, stream_of("1f1b", p=2, m=2), timeout=1)
    assert first.startswith(
        "RunError: error[PS824]: activation 0 of stage 0 is bfloat16[3, 6], but the other end expects"
    )
    assert "= help: the dtypes differ: put autocast around `Runtime(…)` as well as around `Runtime.step`" in first


EAGER = "compile eager"  # leaves the graph as it is


@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
def test_a_scaler_that_ranks_share(ranks: Ranks, name: str) -> None:
    """Gradients are unscaled when the optimizer runs, and an overflow on one rank skips the step on all."""
    for rank, result in enumerate(ranks.run(2, trainers.scaled, stream_of(name, p=2, m=4))):
        assert result == {"error": pytest.approx(0, abs=1e-5), "skipped": True, "scale": 512.0}, rank


@pytest.mark.parametrize("where", ["microbatch", "step"])
def test_shapes_that_change(where: str) -> None:
    """Changed shapes are refused on their rank, before anything is posted."""
    with ranks_of(2) as ranks:
        first, _ = ranks.run(2, trainers.reshaped, stream_of("1f1b", p=2, m=4), where, timeout=1)
    assert first.startswith("RunError: error[PS824]: the input of stage 0, microbatch ")
    assert "is float64[6, 6], but the other end expects float64[3, 6]" in first


# The test of each row of the table, and a parameter of it.
ROWS: dict[str, tuple[Any, str]] = {
    "plain modules": (test_runtime_variants.test_irregular_models, "outputs"),
    "DDP": (test_replicas, "static views"),
    "FSDP1": (test_what_is_refused, "FSDP1"),
    "FSDP2": (test_what_is_refused, "FSDP2"),
    "tensor parallel": (test_what_is_refused, "tensor parallel"),
    "torch.compile": (test_what_is_put_around_stages, "compile in place"),
    "autocast": (test_what_is_put_around_stages, "autocast"),
    "GradScaler": (test_a_scaler_that_ranks_share, "zb_h1"),
    "reentrant checkpointing": (test_runtime_variants.test_irregular_models, "reentrant"),
    "non-reentrant checkpointing": (test_runtime_variants.test_irregular_models, "recomputed"),
    "selective checkpointing": (test_runtime_variants.test_irregular_models, "selective"),
    "STEPs inside the order": (test_runtime_delayed.test_every_version_is_that_of_the_formula, "pipedream"),
    "gradient accumulation": (test_runtime_steps.test_training_goes_on_as_undivided, ""),
    "evaluation, inference": (test_runtime_evaluate.test_outputs_are_those_of_the_undivided_model, "zb_v-p4"),
    "keyword inputs": (test_runtime_evaluate.test_what_is_refused, "keyword"),
    "frozen stages": (test_runtime_frozen.test_gradients_and_live_activations, "zb_h1"),
    "weights tied across stages": (test_runtime_tied.test_tied_weights_are_trained_as_one, "1f1b"),
    "stages that read several stages": (test_runtime_readers.test_gradients_and_live_activations, "looped"),
    "slices of sequences": (test_runtime_slices.test_gradients_are_those_of_whole_sequences, "split"),
    "recomputation": (test_runtime_again.test_gradients_and_live_activations, "zb_h1"),
    "offloading": (test_runtime_offload.test_gradients_and_where_activations_are, "zb_h1"),
    "forward only": (test_runtime_steps.test_forward_only, ""),
    "packed sequences": (test_runtime_packed.test_gradients_and_live_tokens, "split"),
    "unexpected shapes": (test_shapes_that_change, "step"),
    "hooks on weights": (test_what_is_refused, "hooks on weights"),
}


def test_every_row_has_a_test() -> None:
    """And each of these tests has a row."""
    table = README.read_text("utf-8").partition("## Supported features")[2].partition("## Messages")[0]
    assert re.findall(r"^\| ([^|]+) \| ", table, re.M)[1:] == list(ROWS)
    for test, parameter in ROWS.values():
        values = [value for mark in getattr(test, "pytestmark", ()) for value in mark.args[1]]
        flat = {part for value in values for part in (value if isinstance(value, tuple) else (value,))}
        assert not parameter or parameter in flat, (test, parameter)
