"""A trainer is recognized by its own options; an error is reported only if it occurs in every release and for every
possible value of the unknown settings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pipesched
from pipesched import Source
from pipesched.interop.check_report import Checked
from pipesched.interop.trainers.megatron_sizes import TABLES
from tests.depth import deep

PLAIN = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 25 --pipeline-model-parallel-size 4 "
KNOWN = {  # texts, each with the trainer that it names, or the project that it names as one without rules here
    "a file name and shared options": ("a.sh", PLAIN, None, "forks"),
    "an option of Megatron-core alone": ("a.sh", f"{PLAIN} --use-mcore-models", "Megatron-core", ""),
    "a layout": ("a.sh", f"{PLAIN} --pipeline-model-parallel-layout x", "Megatron-core", ""),
    "the deepspeed launcher": (
        "a.sh",
        PLAIN.replace("torchrun", "deepspeed") + "--use-mcore-models",
        None,
        "a program that DeepSpeed starts",
    ),
    "ZeRO on a command line": ("a.sh", f"{PLAIN} --zero-stage 1 --transformer-impl local", None, "Megatron-DeepSpeed"),
    "BLOOM": ("a.slurm", f"{PLAIN} --data-impl mmap --deepspeed --kill-switch-path x", None, "Megatron-DeepSpeed"),
    "MindSpeed's options": ("a.sh", f"{PLAIN} --use-mcore-models --noop-layers 1", None, "MindSpeed"),
    "MindSpeed's module": ("a.sh", f"export X=mindspeed_llm\n{PLAIN} --use-mcore-models", None, "MindSpeed"),
    "Ascend": (
        "a.sh",
        f"source /usr/local/Ascend/ascend-toolkit/set_env.sh\n{PLAIN} --use-mcore-models",
        None,
        "Ascend",
    ),
    "verl": ("a.sh", "python -m verl.trainer.main actor_rollout_ref.actor.megatron.x=2 --num-layers 5", None, "verl"),
    "nanotron": ("a.yaml", "parallelism:\n  dp: 1\n  pp: 4\ntokens:\n  micro_batch_size: 2\n", None, "nanotron"),
    "NeMo": ("a.yaml", "exp_manager:\n  x: 1\nmodel:\n  pipeline_model_parallel_size: 4\n", None, "NeMo"),
    "gpt-neox": ("a.yml", "pipe_parallel_size: 4\nnum_layers: 25\n", None, "gpt-neox"),
    "fields in a YAML": ("a.yaml", "pipeline_model_parallel_size: 4\nnum_layers: 25\n", None, "other projects"),
    "a small batch": ("a.yaml", "micro_batch_size: 4\nnum_epochs: 1\n", None, "other projects"),
    "LLaMA-Factory": ("a.yaml", "stage: sft\nfinetuning_type: lora\nmicro_batch_size: 1\n", None, "LLaMA-Factory"),
    "arguments of Megatron's tests": (
        "a.yaml",
        "MODEL_ARGS:\n  --num-layers: 25\n  --pipeline-model-parallel-size: 4\n",
        "Megatron-core",
        "",
    ),
    "torchtitan": ("a.toml", "[parallelism]\npipeline_parallel_degree = 2\n", "torchtitan", ""),
    "another TOML": ("a.toml", "[training]\nsteps = 2\n", None, "other projects"),
    "DeepSpeed": ("a.json", '{"train_micro_batch_size_per_gpu": 2}', "DeepSpeed", ""),
}


def checked(name: str, text: str, **given: object) -> Checked:
    """Return the result for a text."""
    return pipesched.check(Source(name, text), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", KNOWN)
def test_a_trainer_is_named_by_what_is_its_own(case: str) -> None:
    """Otherwise nothing is judged: status 4 and no error, even if the layers do not fit the stages."""
    name, text, trainer, said = KNOWN[case]
    if name.endswith(("yaml", "yml")):
        pytest.importorskip("yaml")
    made = checked(name, text)
    assert made.trainer == trainer, str(made)
    assert said in str(made)
    if trainer is None:
        assert made.exit_status == 4 and {x.severity for x in made.diagnostics} == {"unjudged"}, str(made)
    elif "pipeline-model-parallel-size" in text and "layout" not in text:
        assert "PS877" in {str(x.code) for x in made.diagnostics}, "the layers do not go onto the stages"


OPTIONS = (
    "--num-layers 24",
    "--num-layers 25",
    "--num-layers-per-virtual-pipeline-stage 2",
    "--num-virtual-stages-per-pipeline-rank 3",
    "--decoder-first-pipeline-num-layers 3",
    "--decoder-last-pipeline-num-layers 4",
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
    "--no-overlap-p2p-communication",
    "--overlap-p2p-communication-warmup-flush",
    "--microbatch-group-size-per-virtual-pipeline-stage 6",
    "--mtp-num-layers 1",
    "--pipeline-model-parallel-layout 'Et*12|t*12L'",
    "--step-batch-size-schedule 0:8",
)


RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models --micro-batch-size 1"


def command(chance: random.Random) -> str:
    """Return a command of Megatron-core."""
    words = [RUN]
    words += chance.sample(OPTIONS, chance.randint(2, 5))
    words.append(f"--pipeline-model-parallel-size {chance.choice((2, 4))}")
    words.append(f"--global-batch-size {chance.choice((8, 24, 30, 7))}")
    return " ".join(words)


def errors(made: Checked) -> set[tuple[str, str]]:
    """Return the codes and places of the findings."""
    return {(str(x.code), str(x.where)) for x in made.diagnostics if x.severity == "error"}


def test_an_error_is_one_of_every_release_that_has_the_settings() -> None:
    """Without a release an error holds in each of them, a finding of some is possible, and sizes agree."""
    chance = random.Random(21)
    some = 0
    ends = "--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 4 --pipeline-model-parallel-size 4"
    of_some = f"{RUN} --num-layers 7 {ends}"  # nothing is left for the ranks between: an error since 0.16
    for text in (of_some, *(command(chance) for _ in range(deep(6)))):
        by_release = {x: checked("a.sh", text, trainer=f"megatron=={x}") for x in TABLES.releases}
        having = {x: made for x, made in by_release.items() if not any(c == "PS873" for c, _ in errors(made))}
        having = having or by_release
        assumed = checked("a.sh", text)
        assert errors(assumed) == set.intersection(*map(errors, having.values())), text
        told = {(str(x.found.code), str(x.found.where)) for x in assumed.possible}
        assert told == set.union(*map(errors, having.values())) - errors(assumed), text
        for name in ("ranks", "chunks", "microbatches"):
            value = getattr(assumed.plan, name)
            assert value is None or {getattr(made.plan, name) for made in having.values()} == {value}, (text, name)
        some += bool(told)
    assert some, "no case rests on a release"


def test_what_is_told_of_an_open_value_holds_whatever_it_is() -> None:
    """Errors and sizes that are reported without a number from outside the script hold for each of its values."""
    chance = random.Random(21)
    told = 0
    texts = [f"{RUN} --num-layers 25 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers $OPEN"]
    for _ in range(deep(6)):
        words = command(chance).split()
        numbers = [n for n, word in enumerate(words) if word.isdigit() and n > 5]
        words[chance.choice(numbers)] = "$OPEN"
        texts.append(" ".join(words))
    for text in texts:
        open = checked("a.sh", text, trainer="megatron==0.19")
        for value in ("1", "2", "3", "4", "8", "12"):
            filled = checked("a.sh", text, trainer="megatron==0.19", variables={"OPEN": value})
            assert errors(open) <= errors(filled), (text, value)
            for name in ("ranks", "chunks", "microbatches", "off"):
                one = getattr(open.plan, name)
                assert one is None or getattr(filled.plan, name) in (one, None), (text, value, name)
        told += bool(errors(open)) or open.plan.ranks is not None
    assert told


def test_a_value_from_elsewhere_is_no_number(tmp_path: Path) -> None:
    """null, -1, ??? and a reference leave dependent settings undecided, and are no mistake."""
    pytest.importorskip("yaml")
    for value in ("null", "-1", "???", "${oc.env:PP}", "auto"):
        text = f"MODEL_ARGS:\n  --num-layers: 25\n  --pipeline-model-parallel-size: {value}\n  --global-batch-size: 8\n"
        made = checked("a.yaml", text)
        assert not errors(made) and made.plan.ranks is None and made.plan.off is None, str(made)


def test_minus_one_is_a_wrong_degree_in_toml() -> None:
    """torchtitan's `_validate` asserts degrees of at least 1; only the shard degree may be -1."""
    for key, wrong in (("pipeline_parallel_degree", 1), ("data_parallel_shard_degree", 0)):
        made = checked("a.toml", f"[parallelism]\n{key} = -1\n", trainer="torchtitan==0.2.2")
        assert len(errors(made)) == wrong, str(made)


def test_an_unknown_number_of_samples_is_said() -> None:
    """With only a batch size, DeepSpeed runs one microbatch of a replica's share, which depends on the replicas."""
    assert "1 of an unknown number of samples" in str(checked("a.json", '{"train_batch_size": 8}'))


def test_a_setting_that_no_rule_knows_is_named() -> None:
    """The setting is named in the text and in the object."""
    made = checked("a.sh", f"{PLAIN.replace('25', '24')} --use-mcore-models --lr-warmup-iters 3 --my-own-thing 4")
    assert made.not_judged == ("--use-mcore-models", "--lr-warmup-iters", "--my-own-thing")
    assert "not judged: --use-mcore-models, --lr-warmup-iters, --my-own-thing (no rule knows them)" in str(made)
    assert made.to_json()["not_judged"] == list(made.not_judged)
