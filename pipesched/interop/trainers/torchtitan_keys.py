"""Keys of torchtitan's settings by release, and the values that its named models and configurations set.

Source: torchtitan 0.2.0 to 0.2.2, config/job_config.py and models/*/__init__.py; 0.3.0, config/configs.py and
models/*/config_registry.py; for names of other releases the pull requests that the rows name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipesched.interop.trainers.keys import ANY, COUNT, FLAG, FROM_0, PARTS, REST, TEXT, Key, nowhere, one_of

MAIN = "main"  # the main branch from 2026-08-20 on (#4121)
RELEASES = ("0.2.0", "0.2.1", "0.2.2", "0.3.0", MAIN)
P = "parallelism."
PP = "parallelism.pipeline_parallel_"
MICRO, LOCAL, GLOBAL = f"{PP}microbatch_size", "training.local_batch_size", "training.global_batch_size"
SCHEDULE, CSV, DEGREE, EACH = f"{PP}schedule", f"{PP}schedule_csv", f"{PP}degree", f"{PP}layers_per_stage"
FIRST_LESS, LAST_LESS, MODEL_PARTS = (
    f"{PP}first_stage_less_layers",
    f"{PP}last_stage_less_layers",
    f"{P}module_fqns_per_model_part",
)
REPLICAS, SHARDS = f"{P}data_parallel_replicate_degree", f"{P}data_parallel_shard_degree"
MODE, OVERLAP = "activation_checkpoint.mode", f"{PP}expert_parallel_overlap"
NO_GRAPHS, CONFIG = "training.disable_cuda_graphs", "--config"
COMPILE, COMPILED, CHUNKED = "compile.enable", "compile.components", "ChunkedLossWrapper"
MICROBATCHES, TOKENS = f"{P}num_pp_microbatches", "training.num_tokens_per_microbatch_per_dp_rank"

KEYS: Mapping[str, Key] = {
    DEGREE: Key(COUNT, 1),
    SCHEDULE: Key(TEXT, "1F1B"),
    CSV: Key(TEXT, "", optional=True),
    MICRO: Key(COUNT, 1, last="0.3.0", elsewhere=f"write {MICROBATCHES}"),
    EACH: Key(COUNT, None, optional=True),
    FIRST_LESS: Key(FROM_0, 1),
    LAST_LESS: Key(FROM_0, 1),
    MODEL_PARTS: Key(PARTS, None, optional=True),
    f"{PP}split_points": nowhere(f"0.1.0 had it (#1416): write {MODEL_PARTS}"),
    MICROBATCHES: Key(
        COUNT, 1, MAIN, elsewhere=f"main of 2026-08-20 (#4121) has it instead of the size: write {MICRO}"
    ),
    f"{P}pipeline_parallel_microbatches": nowhere(f"(#1073): write {MICRO}"),
    OVERLAP: Key(FLAG, True, "0.2.1", "0.2.2", elsewhere="0.2.1 and 0.2.2 alone have it"),
    REPLICAS: Key(COUNT, 1),
    SHARDS: Key(REST, -1),
    f"{P}tensor_parallel_degree": Key(COUNT, 1),
    f"{P}context_parallel_degree": Key(COUNT, 1),
    f"{P}expert_parallel_degree": Key(COUNT, 1),
    f"{P}expert_tensor_parallel_degree": Key(COUNT, 1, last="0.2.2", elsewhere="0.3.0 has no degree of its own for it"),
    f"{P}expert_parallel_comm_backend": Key(TEXT, "standard", "0.2.1", "0.2.2"),
    f"{P}fsdp_reshard_after_forward": Key(one_of("default", "always", "never"), "default"),
    f"{P}disable_loss_parallel": Key(FLAG, last="0.2.2", elsewhere="0.3.0 has no such option"),
    f"{P}enable_async_tensor_parallel": Key(FLAG, last="0.2.2", elsewhere="write compile.enable_async_tensor_parallel"),
    f"{P}enable_compiled_autograd": Key(FLAG, last="0.2.0", elsewhere="0.2.0 had it last"),
    f"{P}context_parallel_load_balancer": Key(first="0.2.2"),
    f"{P}context_parallel_rotate_method": Key(last="0.2.2", elsewhere="0.3.0 has no such option"),
    f"{P}context_parallel_ptrr_mask_key": Key(first="0.3.0"),
    f"{P}enable_fsdp_symm_mem": Key(FLAG, first="0.3.0"),
    f"{P}enable_sequence_parallel": Key(FLAG, first="0.3.0"),
    f"{P}spmd_backend": Key(TEXT, first="0.3.0"),
    LOCAL: Key(COUNT, 8, last="0.3.0", elsewhere=f"write {TOKENS}"),
    GLOBAL: Key(REST, -1, last="0.3.0", elsewhere="write training.num_tokens_per_train_step"),
    TOKENS: Key(COUNT, 16384, MAIN, elsewhere=f"write {LOCAL}"),
    "training.num_tokens_per_train_step": Key(REST, -1, MAIN, elsewhere=f"write {GLOBAL}"),
    "training.max_context_length": Key(first=MAIN, elsewhere="write training.seq_len"),
    "training.seq_len": Key(last="0.3.0", elsewhere="write training.max_context_length"),
    COMPILE: Key(FLAG, False),
    COMPILED: Key(ANY, None, optional=True),
    "training.compile": nowhere("0.1.0 had it: write compile.enable", telling=False),
    "training.batch_size": nowhere(f"(#1073): write {LOCAL}"),
    "training.data_parallel_degree": nowhere(f"write {SHARDS}", telling=False),
    **{
        f"experimental.pipeline_parallel_{name}": nowhere("before 0.1.0 the section was experimental")
        for name in ("degree", "schedule", "schedule_csv", "microbatches", "split_points")
    },
    "training.seed": Key(last="0.2.0", elsewhere="write debug.seed"),
    "training.deterministic": Key(last="0.2.0", elsewhere="write debug.deterministic"),
    "training.debug_moe_force_load_balance": Key(last="0.2.0", elsewhere="write debug.moe_force_load_balance"),
    "training.dataset": Key(TEXT, last="0.2.2", elsewhere="0.3.0 takes it from its --config"),
    "training.dataset_path": Key(ANY, last="0.2.2", elsewhere="0.3.0 takes it from its --config"),
    NO_GRAPHS: Key(FLAG, first="0.3.0"),
    **dict.fromkeys(
        (
            *(f"training.{name}" for name in ("max_norm", "steps", "enable_cpu_offload", "dtype")),
            *(f"training.mixed_precision_{name}" for name in ("param", "reduce")),
            *(f"training.gc_{name}" for name in ("freq", "debug")),
        ),
        Key(),
    ),
    MODE: Key(
        one_of("none", "selective", "full", "memory_budget"),
        "selective",
        last="0.2.2",
        elsewhere="0.3.0 takes a word: activation_checkpoint:none",
    ),
    "activation_checkpoint": Key(
        one_of("none", "selective", "full", "memory-budget"), None, "0.3.0", elsewhere=f"write {MODE}"
    ),
    "model.name": Key(TEXT, "llama3", last="0.2.2", elsewhere="0.3.0 takes --module"),
    "model.flavor": Key(TEXT, "debugmodel", last="0.2.2", elsewhere="0.3.0 takes --config"),
    "job.config_file": Key(TEXT, None, last="0.2.2", elsewhere="0.3.0 reads no TOML: give --module and --config"),
    "--module": Key(TEXT, None, "0.3.0", elsewhere="0.2.2 takes --model.name"),
    "loss": Key(first="0.3.0", elsewhere="0.2.2 has no such option"),
    CONFIG: Key(TEXT, None, "0.3.0", elsewhere="0.2.2 takes --model.flavor"),
}


@dataclass(frozen=True)
class Registered:
    """Values of a named configuration of 0.3.0: layers of its model, batch, checkpointing, schedule, loss."""

    layers: int
    batch: int
    checkpointing: str
    schedule: str = "1F1B"
    no_graphs: bool = False
    chunked: bool = True


REGISTERED = {  # models/llama3 and models/deepseek_v3, config_registry.py
    "llama3_debugmodel": Registered(6, 8, "selective", "Interleaved1F1B"),
    "llama3_debugmodel_ce_loss": Registered(6, 8, "selective", "Interleaved1F1B", chunked=False),
    "llama3_debugmodel_varlen_attn": Registered(6, 8, "selective", "Interleaved1F1B", no_graphs=True),
    "llama3_8b": Registered(32, 1, "selective"),
    "llama3_70b": Registered(80, 8, "full"),
    "llama3_405b": Registered(126, 2, "full"),
    "sft_debugmodel": Registered(6, 8, "selective"),
    "deepseek_v3_debugmodel": Registered(6, 8, "selective"),
    "deepseek_v3_16b": Registered(27, 4, "selective", "Interleaved1F1B", no_graphs=True),
    "deepseek_v3_671b": Registered(61, 4, "selective", "Interleaved1F1B", no_graphs=True),
}
LAYERS = {  # n_layers of a model and its flavor, 0.2.2: models/*/__init__.py
    "llama3": {"debugmodel": 6, "8B": 32, "70B": 80, "405B": 126},
    "deepseek_v3": {"debugmodel": 6, "16B": 27, "236B": 60, "671B": 61},
    "llama4": {"debugmodel": 6, "17bx16e": 48, "17bx128e": 48},
    "qwen3": {"debugmodel": 8, "0.6B": 28, "1.7B": 28, "4B": 36, "8B": 36, "14B": 40, "32B": 64, "30B-A3B": 48},
    "gpt_oss": {"debugmodel": 4, "20b": 24, "120b": 36},
}
