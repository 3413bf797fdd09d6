"""The trainer reads the files that `plan --trainer` writes; `check` accepts them, and every dimension is read back
unchanged.

The readers here are of the standard library alone; they share no code with the writers, nor with `check`.
"""

from __future__ import annotations

import ast
import json
import random
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.planning.launch import Launch, launcher
from pipesched.planning.layouts.space import Choice, Space, refuses
from pipesched.planning.transformer.config import Experts, Training, Transformer
from pipesched.planning.transformer.model_file import read
from pipesched.planning.transformer.trainers import row_of
from tests.depth import deep

DENSE = Transformer(
    layers=24, hidden=1024, heads=16, vocabulary=32000, sequence=2048, kv_heads=8, learned_positions=False
)
SPARSE = replace(DENSE, experts=Experts(8, 2, 1024, 1, 1), gated=True, biases=False, dropout=False, norm="rms")
TIED = replace(DENSE, tied=True, layers=18, sequence=1024)
MODELS = [
    DENSE,
    SPARSE,
    TIED,
    replace(TIED, tied=False),
    *(read(name)[0] for name in ("llama3-70b", "deepseek-v3", "megatron-18.4b")),
]
TRAINERS = ("megatron==0.16", "megatron==0.13", "torchtitan==0.2", "torchtitan==0.2.0", "deepspeed")
READ = dict[str, object]


def options(text: str) -> dict[str, str]:
    """Return the options of a script's command, with their last value."""
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    found, name = {}, ""
    for word in words[words.index("torchrun") :]:
        if word.startswith("--"):
            name = word[2:]
            found[name] = ""
        elif name:
            found[name], name = word, ""
    return found


def letters(layout: str) -> list[int]:
    """Return the layers of every stage of Megatron's layout."""
    while group := re.search(r"\(([^()]*)\)\*(\d+)|(\w)\*(\d+)", layout):
        again = group[1] * int(group[2]) if group[2] else group[3] * int(group[4])
        layout = layout[: group.start()] + again + layout[group.end() :]
    return [stage.count("t") for stage in layout.split("|")]


def megatron(files: Mapping[str, str], gpus: int) -> READ:
    given = options(files["plan.sh"])
    whole = {name: int(value) for name, value in given.items() if value.isdigit()}
    p, t, c = (whole[f"{name}-parallel-size"] for name in ("pipeline-model", "tensor-model", "context"))
    stages = p * whole.get("num-virtual-stages-per-pipeline-rank", 1)
    layout = given.get("pipeline-model-parallel-layout")
    layers = letters(layout) if layout else [whole["num-layers"] // stages] * stages
    assert whole["nproc_per_node"] * whole["nnodes"] == gpus and gpus % (p * t * c) == 0
    assert sum(layers) == whole["num-layers"]
    return {
        "p": p,
        "t": t,
        "c": c,
        "d": gpus // (p * t * c),
        "e": whole.get("expert-model-parallel-size", 1),
        "v": len(layers) // p,
        "b": whole["micro-batch-size"],
        "batch": whole["global-batch-size"],
        "zero": int("use-distributed-optimizer" in given),
        "recompute": given.get("recompute-granularity", "none"),
        "compiled": False,
        "linears": given.get("fp8-format") == "hybrid" and "fp8-param-gather" not in given,
        "replicas": whole.get("num-distributed-optimizer-instances", 1),
        "layers": layers if p > 1 else None,
        "sequence_parallel": "sequence-parallel" in given,
        "split_experts": given.get("expert-tensor-parallel-size", str(t)),
    }


def torchtitan(files: Mapping[str, str], gpus: int) -> READ:
    made = tomllib.loads(files["plan.toml"])
    own, training, again = made["parallelism"], made["training"], made["activation_checkpoint"]
    p, t, c, e = (own[f"{name}_parallel_degree"] for name in ("pipeline", "tensor", "context", "expert"))
    shard, replicas = own["data_parallel_shard_degree"], own["data_parallel_replicate_degree"]
    assert p * t * c * shard * replicas == gpus
    local, batch = training["local_batch_size"], training["global_batch_size"]
    b = own["pipeline_parallel_microbatch_size"] if p > 1 else local
    assert p == 1 or local * shard * replicas == batch
    parts = own.get("module_fqns_per_model_part", [])
    layers = [sum(name.startswith("layers.") for name in part) for part in parts]
    named = [name for part in parts for name in part]
    assert not parts or named == ["tok_embeddings", *(f"layers.{i}" for i in range(sum(layers))), "norm", "output"]
    whole = p > 1 or own["fsdp_reshard_after_forward"] == "always"
    split = shard * c > 1
    return {
        "p": p,
        "t": t,
        "c": c,
        "d": shard * replicas,
        "e": e,
        "v": len(parts) // p if parts else 1,
        "b": b,
        "batch": batch,
        "zero": 0 if not split else 1 if p > 1 else 3 if whole else 2,
        "recompute": "operations" if again == {"mode": "selective", "selective_ac_option": "op"} else again["mode"],
        "compiled": made["compile"]["enable"],
        "linears": made["model"].get("converters", []) == ["quantize.linear.float8"],
        "replicas": replicas if split else 1,
        "layers": layers or None,
        "sequence_parallel": t > 1,
        "split_experts": str(own.get("expert_tensor_parallel_degree", t)),
    }


def deepspeed(files: Mapping[str, str], gpus: int) -> READ:
    made, python = json.loads(files["plan.json"]), files.get("plan.py", "")
    calls = {
        x.func.id: x for x in ast.walk(ast.parse(python)) if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)
    }
    given = {x.arg: x.value for x in calls["PipelineModule"].keywords} if calls else {}
    literal = {name: x.value for name, x in given.items() if isinstance(x, ast.Constant)}
    p = literal.get("num_stages", 1)
    again = literal.get("activation_checkpoint_interval", 0) or ("checkpoint" in python and p == 1)
    assert isinstance(p, int) and gpus % p == 0
    b, steps, batch = (
        made[name] for name in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    )
    assert b * steps * (gpus // p) == batch
    count = int(found[1]) if (found := re.search(r"embedding, (\d+) layers of", python)) else 0
    ends = literal.get("partition_method") == "uniform"
    each = (count + 2 * ends) // p
    assert not given or p * each == count + 2 * ends
    return {
        "p": p,
        "t": 1,
        "c": 1,
        "d": gpus // p,
        "e": 1,
        "v": 1,
        "b": b,
        "batch": batch,
        "zero": made["zero_optimization"]["stage"],
        "recompute": "full" if again else "none",
        "compiled": False,
        "linears": False,
        "replicas": 1,
        "layers": [each - ends * (stage in (0, p - 1)) for stage in range(p)] if given else None,
        "sequence_parallel": False,
        "split_experts": "1",
    }


READERS: dict[str, Callable[[Mapping[str, str], int], READ]] = {
    "megatron": megatron,
    "torchtitan": torchtitan,
    "deepspeed": deepspeed,
}


def wanted(choice: Choice, space: Space) -> READ:
    """Return what a configuration of a choice must say, by the definitions of the plan's letters."""
    x, count, stages = choice.training, space.transformer.layers, choice.cut.stages
    layers = list(x.layout or [-(-count // stages)] * stages)
    outside_in = [stage for pair in zip(reversed(range(stages)), range(stages), strict=True) for stage in pair]
    for stage in outside_in[: sum(layers) - count]:
        layers[stage] -= 1
    return {
        **{name: choice[name] for name in ("p", "t", "c", "d", "e", "v", "b", "zero", "recompute")},
        "batch": x.batch,
        "compiled": x.trainer == "torch" and x.kernels == "fused",
        "linears": x.linears == "fp8",
        "replicas": x.replicas,
        "layers": layers if choice.p > 1 else None,
        "sequence_parallel": x.sequence_parallel and x.tensor > 1,
        "split_experts": "1" if x.expert > 1 else str(x.tensor),
    }


def random_choice(dice: random.Random, trainer: str) -> tuple[Space, Choice]:
    """Return a choice that is not refused, of a random model on a random cluster."""
    while True:
        a, gpus = dice.choice(MODELS), dice.choice((4, 8, 16, 32, 48, 64))
        x = Training(batch=gpus * dice.choice((2, 4, 12)), sequence_parallel=dice.random() < 0.5)
        x = replace(x, trainer=row_of(trainer), linears=dice.choice(("", "", "fp8")) if a.dtype == "bf16" else "")
        x = replace(x, replicas=dice.choice((1, 1, 2)) if a.experts is None else 1, kernels=dice.choice(("", "fused")))
        p = dice.choice([p for p in (1, 2, 3, 4, 6, 8) if gpus % p == 0])
        only: dict[str, tuple[Any, ...]] = {"p": (p,), "b": (dice.choice((1, 2, 4)),)}
        alone = trainer == "deepspeed"
        only |= {"t": (1 if alone else dice.choice((1, 2, 4)),), "c": (1 if alone else dice.choice((1, 1, 2)),)}
        only |= {"e": (1,)} if alone else {}
        space = Space(a, launcher(trainer).training(x), gpus, min(8, gpus), only, trainer)
        found = [choice for choice in space if not refuses(space, choice)]
        if found:
            return space, dice.choice(found)


def judged(made: Launch, folder: Path) -> Any:
    for name, text in made.files.items():
        (folder / name).write_text(text, "utf-8")
    given = dict(zip(*[iter(made.options.split())] * 2, strict=True))
    return pipesched.check(
        folder / made.main,
        trainer=given["--trainer"],
        p=int(given["--p"]) if "--p" in given else None,
        processes=int(given["--processes"]) if "--processes" in given else None,
    )


@pytest.mark.parametrize("trainer", TRAINERS)
def test_check_passes_and_every_dimension_is_read_back(trainer: str, tmp_path: Path) -> None:
    """For random plans of six models: `check` finds nothing, and another reader finds every size of the choice."""
    dice, seen = random.Random(27), set[tuple[str, int, int]]()
    for _ in range(deep(20, usual=14)):
        space, choice = random_choice(dice, trainer)
        made = launcher(trainer).launch(space, choice)
        found = judged(made, tmp_path)
        assert found.ok and found.verdict == "ok", (str(choice), str(found))
        told = READERS[trainer.partition("==")[0]](made.files, space.gpus)
        want = wanted(choice, space)
        if space.transformer.experts is None:
            told["split_experts"] = want["split_experts"]
        assert told == want, str(choice)
        p, v, m = (
            None if found.plan.off else x for x in (found.plan.ranks, found.plan.chunks, found.plan.microbatches)
        )
        assert choice.p == 1 or (p, v, m) == (choice.p, choice.v, choice.m), (str(choice), found.plan)
        seen.add((choice.schedule, choice.p, choice.training.zero))
    assert len(seen) > 4, seen


def test_a_spoilt_configuration_is_refused(tmp_path: Path) -> None:
    """The check of a written file can fail: a batch that does not divide, stages that do not fit, a wrong order."""
    dice = random.Random(3)
    spoilt = {
        "megatron==0.16": (r"(?<=global-batch-size )\d+", lambda old: str(int(old) + 1)),
        "torchtitan==0.2": (r"(?<=pipeline_parallel_degree = )\d+", lambda old: str(int(old) + 1)),
        "deepspeed": (r'(?<="train_batch_size": )\d+', lambda old: str(int(old) + 1)),
    }
    for trainer, (pattern, spoil) in spoilt.items():
        space, choice = random_choice(dice, trainer)
        while choice.p == 1:
            space, choice = random_choice(dice, trainer)
        made = launcher(trainer).launch(space, choice)
        text = re.sub(pattern, lambda found, spoil=spoil: spoil(found[0]), made.files[made.main])
        assert text != made.files[made.main]
        assert not judged(replace(made, files={**made.files, made.main: text}), tmp_path).ok


PLAN = ["--gpus", "8", "--device", "a100", "--model", "small.toml", "--batch", "32", "--only", "t=2,c=1,b=1"]


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = {"layers": 24, "hidden": 2048, "heads": 16, "vocabulary": 32000, "sequence": 2048}
    (tmp_path / "small.toml").write_text("[model]\n" + "".join(f"{key} = {x}\n" for key, x in sizes.items()), "utf-8")


def test_every_row_is_one_that_the_trainer_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of `plan --trainer` have files on which the command printed beside them exits with 0; so has --config."""
    for trainer in "megatron==0.16", "torchtitan==0.2", "deepspeed==0.19.8":
        given = [*PLAN, "--trainer", trainer, "--only", "schedule=1f1b", *(["--only", "t=1"] * trainer.startswith("d"))]
        assert main(["plan", *given, "--json"]) == 0
        for row in json.loads(capsys.readouterr().out)["rows"]:
            made = row["launch"]
            for name, text in made["files"].items():
                (tmp_path / name).write_text(text, "utf-8")
            words = shlex.split(made["check"])
            assert words[:2] == ["pipesched", "check"]
            assert main(["check", str(tmp_path / words[2]), *words[3:]]) == 0, row
            assert row["zero"] < 2 or row["p"] == 1
            capsys.readouterr()
        assert main(["plan", *given, "--config", str(tmp_path / "mine.txt")]) == 0
        capsys.readouterr()
        assert (tmp_path / "mine.txt").is_file()


def test_an_order_without_a_class_comes_as_a_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ZB-H1 for torchtitan: the TOML file names the CSV that is written beside it, and `check` verifies both."""
    path = tmp_path / "zb.toml"
    given = [*PLAN, "--trainer", "torchtitan==0.2", "--only", "schedule=zb_h1", "--only", "p=4", "--config", str(path)]
    assert main(["plan", *given]) == 0
    assert 'pipeline_parallel_schedule_csv = "zb.csv"' in path.read_text("utf-8")
    capsys.readouterr()
    assert main(["check", str(path), "--trainer", "torchtitan==0.2.2", "--processes", "8"]) == 0
    assert "CSV" in capsys.readouterr().out


def test_the_optimizers_order_is_written_where_a_trainer_takes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Split backwards are faster than 1F1B: torchtitan gets them as a CSV that `check` verifies; DeepSpeed none."""
    path = tmp_path / "best.toml"
    given = [*PLAN[:-1], "t=1,c=1,b=1,p=4,schedule=1f1b,recompute=none", "--optimize", "20", "--json"]
    assert main(["plan", *given, "--trainer", "torchtitan==0.2", "--config", str(path)]) == 0
    made = json.loads(capsys.readouterr().out)
    assert 0.7 * made["optimized"]["before"] < made["optimized"]["makespan"] < made["optimized"]["before"]
    assert made["rows"][0]["launch"]["files"]["plan.csv"] == (tmp_path / "best.csv").read_text("utf-8")
    assert "W" in (tmp_path / "best.csv").read_text("utf-8")
    assert main(["check", str(path), "--trainer", "torchtitan==0.2.2", "--processes", "8"]) == 0
    assert main(["plan", *given, "--trainer", "deepspeed"]) == 0
    assert "plan.csv" not in capsys.readouterr().out


def test_what_is_not_written_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown trainer, a release for which nothing is written, and --config without a trainer have their codes."""
    for words, code in (
        (["--trainer", "megatorn"], "PS225"),
        (["--trainer", "torchtitan==0.3.0"], "PS250"),
        (["--trainer", "megatron==0.9"], "PS250"),
        (["--trainer", "megatron==7"], "PS250"),
        (["--config", "x.sh"], "PS225"),
    ):
        assert main(["plan", *PLAN, *words]) == 2
        assert code in capsys.readouterr().err
