"""Writes a choice as the command line of Megatron-LM's ``pretrain_gpt.py``.

    p v layout    --pipeline-model-parallel-size, --num-virtual-stages-per-pipeline-rank; if stages have different
                  numbers of layers, --pipeline-model-parallel-layout
    t c e         --tensor-, --context-, --expert-model-parallel-size; d follows from the number of processes
    b B           --micro-batch-size, --global-batch-size
    ZeRO 1        --use-distributed-optimizer

Source: Megatron-LM, tags core_v0.13.0 to core_v0.19.0, megatron/training/arguments.py, and the files that rows name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from fractions import Fraction

from pipesched.interop.launch.rules import Rule, Setup, only_schedules
from pipesched.planning.transformer.config import Transformer
from pipesched.planning.transformer.megatron_layout import layout_of

_ARGUMENTS = "Megatron-LM, megatron/training/arguments.py: validate_args"
RULES = (
    only_schedules(["1f1b", "interleaved"], "Megatron-LM, megatron/core/pipeline_parallel/schedules.py"),
    Rule(
        lambda x: x.x.zero > 1,
        "its distributed optimizer corresponds to ZeRO 1, not {x.x.zero}",
        "Megatron-LM, megatron/core/optimizer/distrib_optimizer.py",
    ),
    Rule(
        lambda x: x.x.context > 1 and x.a.sequence % (2 * x.x.context),
        "a sequence length of {x.a.sequence:,} is not a multiple of 2 c = 2 x {x.x.context}",
        _ARGUMENTS,
    ),
    Rule(
        lambda x: x.a.experts is not None and x.x.tensor > 1 and not x.x.sequence_parallel,
        "experts with t > 1 need sequence parallelism",
        _ARGUMENTS,
    ),
    Rule(
        lambda x: x.a.latent is not None and x.x.recompute == "selective" and x.x.attention == "flash",
        "selective recomputation applies to attention scores, which flash attention does not keep",
        "Megatron-LM, megatron/core/transformer/transformer_config.py",
    ),
    Rule(
        lambda x: x.x.recompute == "operations",
        "it can recompute modules or everything, but not single operations",
        "Megatron-LM, megatron/core/transformer/transformer_config.py: recompute_modules",
    ),
    Rule(lambda x: x.a.dtype == "fp32" and x.a.experts, "it supports grouped experts only in 16 bits", _ARGUMENTS),
)


def files(x: Setup) -> Mapping[str, str]:
    """Return the text of the script, by its file name."""
    lines = [" ".join([f"--{name}", *map(shlex.quote, values)]) for name, *values in _options(x)]
    ranks = f"torchrun --nproc_per_node {x.space.node} --nnodes {x.nodes} pretrain_gpt.py"
    head = [
        "#!/bin/bash",
        f"# {x.choice} for Megatron-LM core_v{x.release}.0: one step of {x.x.batch} sequences.",
        "# Left out: data, tokenizer, learning rate, iterations; for several nodes also torchrun's rendezvous.",
    ]
    if x.x.tensor > 1 or x.x.context > 1:
        head.append("export CUDA_DEVICE_MAX_CONNECTIONS=1")
    return {"plan.sh": "\n".join([*head, " \\\n  ".join([ranks, *lines])]) + "\n"}


def _options(x: Setup) -> Iterator[tuple[str, ...]]:
    """Yield each option as its name, followed by its values."""
    yield from _model(x.a)
    yield from _parallel(x)
    yield "micro-batch-size", f"{x.x.microbatch}"
    yield "global-batch-size", f"{x.x.batch}"
    if x.x.linears == "fp8" and x.a.dtype == "bf16":
        yield "fp8-format", "hybrid"
    if x.x.recompute == "full":
        yield "recompute-granularity", "full"
        yield "recompute-method", "uniform"
        yield "recompute-num-layers", "1"
    if x.x.recompute == "selective":
        yield "recompute-granularity", "selective"
    yield "attention-backend", "flash" if x.x.attention == "flash" else "unfused"


def _parallel(x: Setup) -> Iterator[tuple[str, ...]]:
    choice, training = x.choice, x.x
    yield "pipeline-model-parallel-size", f"{choice.p}"
    if choice.p > 1 and not x.even:
        yield "pipeline-model-parallel-layout", layout_of([len(stage) for stage in x.layers])
    elif choice.v > 1:
        yield "num-virtual-stages-per-pipeline-rank", f"{choice.v}"
    yield "tensor-model-parallel-size", f"{training.tensor}"
    if training.sequence_parallel and training.tensor > 1:
        yield ("sequence-parallel",)
    yield "context-parallel-size", f"{training.context}"
    if training.expert > 1:
        yield "expert-model-parallel-size", f"{training.expert}"
        yield "expert-tensor-parallel-size", "1"
    if training.zero:
        yield ("use-distributed-optimizer",)
    if training.replicas > 1:
        yield "num-distributed-optimizer-instances", f"{training.replicas}"
    if x.copies > 1:
        yield ("overlap-grad-reduce",)
        yield from ([("overlap-param-gather",)] if training.zero else [])
    if training.gradient_bytes == Fraction(2) and x.a.dtype == "bf16":
        yield ("grad-reduce-in-bf16",)


def _model(a: Transformer) -> Iterator[tuple[str, ...]]:
    yield "num-layers", f"{a.layers}"
    yield "hidden-size", f"{a.hidden}"
    yield "ffn-hidden-size", f"{a.feed_forward}"
    yield "num-attention-heads", f"{a.heads}"
    yield "seq-length", f"{a.sequence}"
    yield "max-position-embeddings", f"{a.sequence}"
    yield "vocab-size", f"{a.vocabulary}"
    yield "make-vocab-size-divisible-by", "1"
    yield "position-embedding-type", "learned_absolute" if a.learned_positions else "rope"
    yield "normalization", "LayerNorm" if a.norm == "layer" else "RMSNorm"
    if a.latent is None:
        yield "kv-channels", f"{a.head_size}"
    if a.latent is None and a.kv_heads != a.heads:
        yield ("group-query-attention",)
        yield "num-query-groups", f"{a.kv_heads}"
    flags = {
        "swiglu": a.gated,
        "untie-embeddings-and-output-weights": not a.tied,
        "disable-bias-linear": not a.biases,
        "bf16": a.dtype in ("bf16", "fp8"),
        "fp16": a.dtype == "fp16",
        "fp8-param-gather": a.dtype == "fp8",
    }
    yield from ((name,) for name, on in flags.items() if on)
    if a.dtype == "fp8":
        yield "fp8-format", "hybrid"
    if not a.dropout:
        yield "attention-dropout", "0"
        yield "hidden-dropout", "0"
    yield from _latent(a)
    yield from _experts(a)


def _latent(a: Transformer) -> Iterator[tuple[str, ...]]:
    if a.latent is None:
        return
    yield ("multi-latent-attention",)
    if a.latent.query:
        yield "q-lora-rank", f"{a.latent.query}"
    yield "kv-lora-rank", f"{a.latent.key_value}"
    yield "qk-head-dim", f"{a.latent.key}"
    yield "qk-pos-emb-head-dim", f"{a.latent.rope}"
    yield "v-head-dim", f"{a.latent.value}"


def _experts(a: Transformer) -> Iterator[tuple[str, ...]]:
    if a.experts is None:
        return
    yield "num-experts", f"{a.experts.count}"
    yield "moe-router-topk", f"{a.experts.per_token}"
    yield "moe-ffn-hidden-size", f"{a.experts.size}"
    yield "moe-token-dispatcher-type", "alltoall"
    yield ("moe-grouped-gemm",)
    if a.experts.shared:
        yield "moe-shared-expert-intermediate-size", f"{a.experts.shared * a.experts.size}"
    if first := a.experts.dense_layers:
        yield "moe-layer-freq", f"([0]*{first}+[1]*{a.layers - first})"
