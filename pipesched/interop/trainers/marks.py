"""Find the trainer that a configuration is for, by marks that only this trainer's configurations have.

    a mark of a project that has no rules here     not judged, and the project is named
    a mark of a trainer                            that trainer
    no mark                                        not judged: four projects have a pretrain_gpt.py

Source: options of Megatron-LM's parser from core_v0.9.0 to core_v0.19.0 that 2.5, 2.6, 23.06, Megatron-DeepSpeed
(4efb479) and BLOOM's fork of it (8387ae1) lack; options of MindSpeed-LLM (c77308a) that no Megatron-LM has; example
configurations of the other projects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipesched.interop.trainers.settings import Setting, Settings


@dataclass(frozen=True)
class Mark:
    """Mark of a project's configurations. texts: kinds of text that it applies to.

    keys, words, text: patterns, one of which must be found: a key (with hyphens for underscores), a word of the command
    or of its launcher, or a place anywhere in a script. all: patterns of keys that must all be found besides.
    """

    project: str
    texts: tuple[str, ...]
    keys: str = r"\b\B"
    all: tuple[str, ...] = ()
    words: str = r"\b\B"
    text: str = r"\b\B"

    def of(self, settings: Settings) -> Setting | str | None:
        """Find the setting or the word that shows that a configuration is the project's, or None."""
        if settings.kind not in self.texts:
            return None
        keys = [(x, x.key.replace("_", "-")) for x in settings]
        if not all(any(re.fullmatch(one, key) for _, key in keys) for one in self.all):
            return None
        found = next((x for x, key in keys if re.fullmatch(self.keys, key)), None)
        if found is not None:
            return found
        word = next((x for x in settings.words if re.search(self.words, x)), None)
        return word or ((x := re.search(self.text, settings.source.text)) and settings.kind == "shell" and x[0]) or None


_SHELL, _DATA = ("shell",), ("yaml", "json", "toml")
OTHERS = (
    Mark("verl", (*_DATA, *_SHELL), r"actor-rollout-ref\..*|critic\.megatron\..*", words=r"^verl\.|/verl/"),
    Mark(
        "MindSpeed",
        _SHELL,
        r"--(?:use-fused-(?:rmsnorm|swiglu|rotary-pos-emb|ring-attention-update|mlp)|context-parallel-algo|use-mc2|"
        r"noop-layers|num-layer-list|use-cp-send-recv-overlap|tokenizer-not-use-fast|no-shared-storage|"
        r"use-ascend-\S+|reuse-fp32-param|mla-mm-split|use-flash-attn-npu|fill-neg-inf|is-instruction-dataset)",
        words=r"(?i)mindspeed",
        text=r"(?i)\bmindspeed",
    ),
    Mark(
        "a port to Ascend's NPUs",
        _SHELL,
        text=r"(?i)ascend-toolkit|\bHCCL_[A-Z_]+|\bASCEND_[A-Z_]+|\bNPUS_PER_NODE\b",
    ),
    Mark(
        "Megatron-DeepSpeed",
        _SHELL,
        r"--(?:deepspeed|deepspeed-config|deepspeed-activation-checkpointing|zero-stage|no-pipeline-parallel|"
        r"checkpoint-in-cpu|partition-activations|contigious-checkpointing|zero-[\w-]+|moe-expert-parallel-size|"
        r"ds-[\w-]+|use-flash-attn-v[12]|train-tokens|lr-decay-tokens|kill-switch-path|pad-vocab-size-to|"
        r"pp-partition-method|embed-layernorm|enable-zbh1-\w+)",
    ),
    Mark("a program that DeepSpeed starts", _SHELL, words=r"^(?:\S*/)?deepspeed$"),
    Mark("gpt-neox", ("yaml", "json"), r"pipe-parallel-size|model-parallel-size|global-num-gpus"),
    Mark("nanotron", ("yaml",), r"parallelism\.(?:pp|pp-engine|dp|tp-mode)|tokens\.batch-accumulation-per-replica"),
    Mark("NeMo AutoModel", ("yaml",), r"distributed\.(?:pp-size|pipeline\..*)|autopipeline\..*"),
    Mark("NeMo", (*_DATA, *_SHELL), r"exp-manager\..*"),
    Mark("LLaMA-Factory", ("yaml", "json"), r"finetuning-type", (r"stage",)),
    Mark("accelerate", ("yaml", "json"), r"compute-environment|megatron-lm-config\..*|distributed-type"),
)

_ONLY_CORE = (
    r"--(?:use-mcore-models|use-legacy-models|num-query-groups|group-query-attention|rotary-base|ckpt-format|auto-detect-ckpt-format|"
    r"attention-backend|context-parallel-size|expert-model-parallel-size|expert-tensor-parallel-size|norm-epsilon|"
    r"num-virtual-stages-per-pipeline-rank|pipeline-model-parallel-layout|decoder-(?:first|last)-pipeline-num-layers|"
    r"account-for-(?:embedding|loss)-in-pipeline-split|microbatch-group-size-per-virtual-pipeline-stage|"
    r"overlap-p2p-communication-warmup-flush|overlap-grad-reduce|overlap-param-gather|qk-layernorm|add-qkv-bias|"
    r"moe-(?:router|token|ffn|aux|grouped|permute|shared|layer)-[\w-]+|moe-grouped-gemm|mtp-num-layers|"
    r"multi-latent-attention|no-rope-fusion|calculate-per-token-loss|inference-(?:max|rng|dynamic)-[\w-]+|"
    r"hybrid-layer-pattern|hybrid-override-pattern|cross-entropy-loss-fusion|use-torch-fsdp2|use-custom-fsdp|"
    r"log-throughput|disable-gloo-process-groups|step-batch-size-schedule|delay-wgrad-compute|"
    r"overlap-moe-expert-parallel-comm|use-distributed-optimizer-v2|dist-ckpt-strictness|manual-gc|te-rng-tracker|"
    r"retro-project-dir|retro-attention-gate)"
)
OWN = (
    Mark(
        "torchtitan",
        ("toml", "shell", "python"),
        r"(?:--)?parallelism\.(?:pipeline|data|tensor|context|expert)-parallel-.*|model\.flavor|"
        r"(?:--)?(?:job\.config-file|model\.flavor|parallelism\.module-fqns-per-model-part)",
        words=r"^torchtitan\.|/torchtitan/",
    ),
    Mark("Megatron-core", ("shell",), _ONLY_CORE),
    Mark("Megatron-core", ("yaml",), r".*--[\w-]+"),
    Mark("Megatron-core", ("yaml",), r"model-parallel\.pipeline-model-parallel-size", (r"language-model\..*",)),
    Mark(
        "DeepSpeed",
        ("json",),
        r"train-micro-batch-size-per-gpu|zero-optimization(?:\..*)?|train-batch-size|pipeline\..*",
    ),
)


def others(settings: Settings) -> tuple[str, Setting | str] | None:
    """Project without rules here that a configuration is for, and the setting or word that shows it; or None."""
    return next(((mark.project, found) for mark in OTHERS if (found := mark.of(settings))), None)


def own(settings: Settings) -> str | None:
    """Name of the trainer with rules here that a configuration is for, or None."""
    return next((mark.project for mark in OWN if mark.of(settings)), None)
