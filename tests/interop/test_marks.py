"""A trainer is recognized by an option that only it has; an option that two trainers share identifies neither of them.

The options of each project are typed from its parser: Megatron-LM v2.5 to core_v0.19.0, Megatron-DeepSpeed (4efb479,
and BLOOM's 8387ae1), MindSpeed-LLM (c77308a).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import pipesched

SIZES = "--num-layers 8 --micro-batch-size 1 --global-batch-size 8 --pipeline-model-parallel-size 4"
OWN = {
    "--deepspeed --deepspeed_config ds.json": "Megatron-DeepSpeed",
    "--zero-stage 1": "Megatron-DeepSpeed",
    "--no-pipeline-parallel": "Megatron-DeepSpeed",
    "--pp-partition-method type:transformer": "Megatron-DeepSpeed",
    "--use-fused-rmsnorm": "MindSpeed",
    "--reuse-fp32-param": "MindSpeed",
    "--use-mcore-models": "Megatron-core",
    "--num-query-groups 8 --group-query-attention": "Megatron-core",
    "--retro-project-dir /retro --retro-attention-gate 0": "Megatron-core",
}
SHARED = (
    "--data-impl mmap",  # Megatron-LM to 23.06, and both forks
    "--no-query-key-layer-scaling",  # the same
    "--pretrained-checkpoint /checkpoint",  # tasks/main.py of all
    "--prompt-type knowledge",  # tasks/msdp of Megatron-LM, and MindSpeed-LLM
    "--fp16 --lr 1e-4",
)


def said(words: str, folder: Path, before: str = "") -> str:
    """Return the result for a script with these options."""
    file = folder / "train.sh"
    file.write_text(f"{before}torchrun --nproc_per_node 4 pretrain_gpt.py {SIZES} {words}\n", "utf-8")
    return str(pipesched.check_config(file))


@pytest.mark.parametrize(("words", "project"), OWN.items())
def test_an_option_of_its_own_names_a_project(words: str, project: str, tmp_path: Path) -> None:
    """An option that only one trainer has identifies this trainer."""
    text = said(words, tmp_path)
    assert [x for x in dict.fromkeys(OWN.values()) if f"belongs to {x}," in text or f"  {x} " in text] == [project], (
        text
    )


@pytest.mark.parametrize("words", SHARED)
def test_a_shared_option_names_nobody(words: str, tmp_path: Path) -> None:
    """An option of several projects does not name one: not judged, and no project is stated as a fact."""
    text = said(words, tmp_path)
    assert "PS871" in text and "pipesched has no rules" not in text and "  Megatron-core " not in text, text


def test_a_launcher_is_not_a_project(tmp_path: Path) -> None:
    """DeepSpeed's launcher starts programs of many projects."""
    file = tmp_path / "train.sh"
    file.write_text(f"deepspeed --num_gpus 8 pretrain_gpt.py {SIZES}\n", "utf-8")
    text = str(pipesched.check_config(file))
    assert "PS871" in text and "Megatron-DeepSpeed" not in text and "DeepSpeed starts" in text, text


def test_hardware_is_not_a_project(tmp_path: Path) -> None:
    """Variables of Ascend's driver are set by trainers that do not use MindSpeed."""
    text = said("--fp16", tmp_path, "export HCCL_CONNECT_TIMEOUT=1200\n")
    assert "MindSpeed" not in text and "Ascend" in text, text
