"""Writes a choice as DeepSpeed's JSON and, for a pipeline, the call to PipelineModule that the JSON cannot express.

    p layout      num_stages; partition_method "type:Block" if stages have equally many layers, "uniform" if the
                  embedding and the head count as a layer each
    b m B         train_micro_batch_size_per_gpu, gradient_accumulation_steps, train_batch_size
    ZeRO          zero_optimization.stage; with a pipeline 0 or 1
    recompute     activation_checkpoint_interval 1, every layer

Source: DeepSpeed 0.19.8, deepspeed/runtime/config.py and the files that rows name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pipesched.interop.launch.rules import Rule, Setup, only_schedules

_ENGINE, _MODULE = "DeepSpeed, deepspeed/runtime/pipe/engine.py", "DeepSpeed, deepspeed/runtime/pipe/module.py"
RULES = (
    only_schedules(["1f1b"], f"{_ENGINE}: TrainSchedule"),
    Rule(
        lambda x: x.choice.p > 1 and x.x.zero > 1,
        "its pipeline engine refuses ZeRO {x.x.zero}, which splits gradients",
        f"{_ENGINE}: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
    ),
    Rule(
        lambda x: x.x.tensor * x.x.context * x.x.expert > 1,
        "the model determines t, c and e; the configuration cannot set them",
        "DeepSpeed, deepspeed/runtime/config.py",
    ),
    Rule(
        lambda x: x.x.recompute in ("selective", "operations"),
        "it recomputes only whole layers",
        f"{_MODULE}: activation_checkpoint_interval",
    ),
    Rule(lambda x: x.choice.p > 1 and not _method(x), "it only splits layers evenly", f"{_MODULE}: _partition_layers"),
    Rule(lambda x: x.choice.p > 1 and x.a.tied, "a tied head requires a TiedLayerSpec in the model", _MODULE),
    Rule(
        lambda x: x.x.replicas > 1 or x.x.linears == "fp8",
        "configurations with copy groups or fp8 matrix products are not written",
        "DeepSpeed, deepspeed/runtime/config.py",
    ),
    Rule(lambda x: x.a.dtype == "fp8", "parameters must have 16 or 32 bits", "DeepSpeed, deepspeed/runtime/config.py"),
)


def _method(x: Setup) -> str:
    """Return the partition method that makes these stages; an empty string if there is none."""
    if x.even:
        return "type:Block"
    counts = list(map(len, x.layers))
    counts[0] += 1
    counts[-1] += 1
    return "uniform" if len({*counts}) == 1 else ""


def files(x: Setup) -> Mapping[str, str]:
    """Return the text of each file, by file name: the JSON file and, if needed, the Python module."""
    made: dict[str, object] = {
        "train_batch_size": x.x.batch,
        "train_micro_batch_size_per_gpu": x.x.microbatch,
        "gradient_accumulation_steps": x.choice.m,
        "zero_optimization": {"stage": x.x.zero, "overlap_comm": True},
    }
    if x.a.dtype != "fp32":
        made[x.a.dtype] = {"enabled": True}
        made["data_types"] = {"grad_accum_dtype": "fp32" if x.x.gradient_bytes == 4 else x.a.dtype}
    found = {"plan.json": json.dumps(made, indent=2) + "\n"}
    interval = 1 if x.x.recompute == "full" else 0
    if x.choice.p > 1:
        found["plan.py"] = (
            f"# {x.choice} for DeepSpeed {x.release}\n"
            f"# layers: a list of the embedding, {x.a.layers} layers of class Block, and the head with the last norm\n"
            "from deepspeed.pipe import PipelineModule\n\n"
            "\n"
            "def pipeline(layers, loss_fn):\n"
            "    return PipelineModule(\n"
            f'        layers, num_stages={x.choice.p}, partition_method="{_method(x)}", loss_fn=loss_fn,\n'
            f"        activation_checkpoint_interval={interval},\n"
            "    )\n"
        )
    elif interval:
        found["plan.py"] = (
            "# recompute=full: call every layer through this function\nfrom deepspeed.checkpointing import checkpoint\n"
        )
    return found
