"""Writes a choice as a TOML file for torchtitan 0.2, with a CSV if torch has no class for the order.

    p layout      pipeline_parallel_degree; module_fqns_per_model_part lists the modules of every stage
    schedule      pipeline_parallel_schedule; with a CSV it names only the placement
    t c e         tensor_, context_, expert_parallel_degree; t also splits sequences
    b m           pipeline_parallel_microbatch_size b, local_batch_size b m; without a pipeline local_batch_size b
    ZeRO          p > 1: 1, parameters stay gathered during a step; p = 1: 2 "never", 3 "always" reshard after forward;
                  0 is DDP, which has neither p nor t nor c

Source: torchtitan 0.2.0 to 0.2.2, config/job_config.py, train.py, and the files that rows name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipesched.interop.launch.rules import Rule, Setup, only_schedules
from pipesched.orders import torch_csv
from pipesched.planning.layouts.prediction import order

_CLASSES = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "interleaved_zb": "InterleavedZeroBubble",
    "zb_v": "ZBVZeroBubble",
}
_BY_CSV = {
    "zb_h1": "1F1B",
    "zb_h2": "1F1B",
    "1f1b_v": "ZBVZeroBubble",
    "v_half": "ZBVZeroBubble",
    "v_min": "ZBVZeroBubble",
}
_NAMES = {**_CLASSES, **_BY_CSV}
_SPLIT = ("zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "interleaved_zb")
_FLAVORS = {
    (6, 256, 16, 2048): ("llama3", "debugmodel"),
    (32, 4096, 32, 128256): ("llama3", "8B"),
    (80, 8192, 64, 128256): ("llama3", "70B"),
    (126, 16384, 128, 128256): ("llama3", "405B"),
    (28, 1024, 16, 151936): ("qwen3", "0.6B"),
    (28, 2048, 16, 151936): ("qwen3", "1.7B"),
    (36, 2560, 32, 151936): ("qwen3", "4B"),
    (36, 4096, 32, 151936): ("qwen3", "8B"),
    (40, 5120, 40, 151936): ("qwen3", "14B"),
    (64, 5120, 64, 151936): ("qwen3", "32B"),
    (48, 2048, 32, 151936): ("qwen3", "30B-A3B"),
    (27, 2048, 16, 102400): ("deepseek_v3", "16B"),
    (60, 5120, 128, 102400): ("deepseek_v3", "236B"),
    (61, 7168, 128, 129280): ("deepseek_v3", "671B"),
}
"""Name and flavor of the model with each (layers, hidden size, heads, vocabulary): torchtitan 0.2.2,
models/*/__init__.py."""

_DIMS = "torchtitan 0.2, distributed/parallel_dims.py"
_FSDP = "torchtitan 0.2, models/llama3/infra/parallelize.py"
RULES = (
    only_schedules(_NAMES, "torch, distributed/pipelining/schedules.py: get_schedule_class"),
    Rule(
        lambda x: x.x.recompute == "selective",
        "it can recompute operations or everything, but not only attention scores",
        "torchtitan 0.2, distributed/activation_checkpoint.py",
    ),
    Rule(
        lambda x: x.choice.schedule in _SPLIT and x.choice.p > 1 and x.x.recompute != "none",
        "with recomputation, its W recomputes a block once for each group of parameters",
        "torchtitan#773, measured on torch 2.13",
    ),
    Rule(
        lambda x: x.choice.schedule in _SPLIT and x.choice.p > 1 and x.x.kernels == "fused",
        "a compiled block is a single node of the autograd graph, so I and W cannot be separated",
        "pytorch#161904",
    ),
    Rule(
        lambda x: x.x.kernels == "cpu",
        "it does not support CPU kernels",
        "torchtitan 0.2",
    ),
    Rule(
        lambda x: x.choice.p > 1 and x.x.zero != (x.copies > 1),
        "with a pipeline, FSDP is ZeRO 1: parameters and gradients stay unsharded during a step",
        f"{_FSDP}: apply_fsdp",
    ),
    Rule(
        lambda x: x.choice.p == 1 and x.x.zero == 1,
        "FSDP without a pipeline is ZeRO 2 or 3",
        f"{_FSDP}: apply_fsdp",
    ),
    Rule(
        lambda x: x.x.zero == 0 and x.copies > 1 and x.choice.p * x.x.tensor * x.x.context * x.x.expert > 1,
        "it replicates without sharding only if there is no other parallelism",
        f"{_FSDP}: DDP has not supported > 1D parallelism",
    ),
    Rule(
        lambda x: x.a.sequence % (2 * x.x.tensor * x.x.context),
        "a sequence length of {x.a.sequence:,} is not a multiple of 2 t c",
        f"{_DIMS}: seq_len_divisor",
    ),
    Rule(
        lambda x: x.x.expert > 1 and not x.since("0.2.2") and x.x.expert % (x.x.context * x.x.tensor),
        "e is not a multiple of t c",
        f"{_DIMS}: _validate",
    ),
    Rule(
        lambda x: x.x.expert > 1 and x.x.data * x.x.context * x.x.tensor % x.x.expert,
        "e does not divide t c d, the number of ranks per stage",
        f"{_DIMS}: build_mesh",
    ),
    Rule(
        lambda x: x.choice.schedule == "1f1b" and 1 < x.choice.p > x.choice.m,
        "1F1B needs at least as many microbatches as stages",
        "torch 2.11, distributed/pipelining/schedules.py: Schedule1F1B",
    ),
    Rule(
        lambda x: x.a.dtype in ("fp8", "fp16"),
        "parameters must be in bf16 or fp32, not {x.a.dtype}",
        "torchtitan 0.2, config/job_config.py: Training.mixed_precision_param",
    ),
    Rule(
        lambda x: x.choice.p > 1 and x.a.tied,
        "a pipeline puts a tied head and its embedding on different stages",
        "torchtitan 0.2, models/qwen3/model/model.py: enable_weight_tying",
    ),
)


def files(x: Setup) -> Mapping[str, str]:
    """Return the text of each file, by file name: the TOML file, and the CSV if torch has no class for the order."""
    by_csv = x.choice.p > 1 and (x.order is not None or x.choice.schedule in _BY_CSV)
    made = {"plan.toml": "\n".join(_lines(x, by_csv=by_csv)) + "\n"}
    if by_csv:
        own = x.order or order(x.choice.schedule, tuple(x.choice.sizes.items()))
        made["plan.csv"] = "".join(torch_csv.pieces(own))
    return made


def _lines(x: Setup, *, by_csv: bool) -> Iterator[str]:
    a, choice, training = x.a, x.choice, x.x
    yield f"# {choice} for torchtitan {x.release} on {x.space.gpus} GPUs: one step of {training.batch} sequences."
    yield "# Left out: data, tokenizer, learning rate, steps."
    yield "[model]"
    known = _FLAVORS.get((a.layers, a.hidden, a.heads, a.vocabulary))
    if known is None:
        yield f"# no torchtitan model has these sizes: register a flavor with {a.layers} layers, hidden size {a.hidden}"
    name, flavor = known or ("llama3", a.name)
    yield from (f'name = "{name}"', f'flavor = "{flavor}"')
    if training.linears == "fp8":
        yield 'converters = ["quantize.linear.float8"]'
    yield from ("", "[training]")
    yield f"local_batch_size = {training.microbatch * (choice.m if choice.p > 1 else 1)}"
    yield f"global_batch_size = {training.batch}"
    yield f"seq_len = {a.sequence}"
    yield f'mixed_precision_param = "{"bfloat16" if a.dtype == "bf16" else "float32"}"'
    yield from ("", "[parallelism]", *_parallel(x, by_csv=by_csv))
    by_operation = training.recompute == "operations"
    yield from ("", "[activation_checkpoint]", f'mode = "{"selective" if by_operation else training.recompute}"')
    yield from ['selective_ac_option = "op"'] if by_operation else []
    yield from ("", "[compile]", f"enable = {str(training.kernels == 'fused').lower()}")
    if training.linears == "fp8":
        yield from ("", "[quantize.linear.float8]", 'filter_fqns = ["output"]')


def _parallel(x: Setup, *, by_csv: bool) -> Iterator[str]:
    choice, training = x.choice, x.x
    groups = training.replicas if training.zero else training.data
    yield f"data_parallel_replicate_degree = {groups}"
    yield f"data_parallel_shard_degree = {training.data // groups}"
    yield f'fsdp_reshard_after_forward = "{"always" if training.zero == 3 else "never"}"'
    yield f"tensor_parallel_degree = {training.tensor}"
    yield f"context_parallel_degree = {training.context}"
    yield f"expert_parallel_degree = {training.expert}"
    if training.expert > 1:
        yield "expert_tensor_parallel_degree = 1"
    yield f"pipeline_parallel_degree = {choice.p}"
    if choice.p == 1:
        return
    yield f'pipeline_parallel_schedule = "{_NAMES[choice.schedule]}"'
    if by_csv:
        yield 'pipeline_parallel_schedule_csv = "plan.csv"'
    yield f"pipeline_parallel_microbatch_size = {training.microbatch}"
    yield "module_fqns_per_model_part = ["
    last = len(x.layers) - 1
    for stage, layers in enumerate(x.layers):
        names = ["tok_embeddings"] if stage == 0 else []
        names += [f"layers.{layer}" for layer in layers]
        names += ["norm", "output"] if stage == last else []
        yield "  [" + ", ".join(f'"{name}"' for name in names) + "],"
    yield "]"
