"""Keys of Megatron's settings by release: options of its launcher, and fields of the core's configuration.

    --num-layers 12                                   a script, or MODEL_ARGS of its tests      cli
    pipeline_model_parallel_size: 4                   fields, of a recipe in YAML               core

A launcher option has the name of the field that it sets. Source: Megatron-LM, tags core_v0.9.0 to core_v0.19.0,
megatron/training/arguments.py, megatron/core/model_parallel_config.py and transformer/transformer_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipesched.interop.trainers.keys import ANY, COUNT, FLAG, FROM_0, TEXT, Key, Kind, one_of

RELEASES = ("0.9", "0.10", "0.11", "0.12", "0.13", "0.14", "0.15", "0.16", "0.17", "0.18", "0.19")

PP, VPP, LAYERS = "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "num_layers"
MICRO, GLOBAL = "micro_batch_size", "global_batch_size"
PER_CHUNK, CHUNKS = "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"
LAYOUT, GROUP, FLUSH = (
    "pipeline_model_parallel_layout",
    "microbatch_group_size_per_vp_stage",
    "overlap_p2p_comm_warmup_flush",
)
OVERLAP, BATCHED, NO_OVERLAP = "overlap_p2p_comm", "batch_p2p_comm", "no_overlap_p2p_communication"
IN_FIRST, IN_LAST = "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"
EMBEDDING, LOSS = "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"
TP, CP, MTP, STEPS = "tensor_model_parallel_size", "context_parallel_size", "mtp_num_layers", "step_batch_size_schedule"
ETP, EP, EXPERTS = "expert_tensor_parallel_size", "expert_model_parallel_size", "num_experts"
ENCODER, DECODER = "encoder_num_layers", "decoder_num_layers"
ENCODER_PP, ENCODER_TP = "encoder_pipeline_model_parallel_size", "encoder_tensor_model_parallel_size"
SHARDS, RAMPUP, DECREASE = "tensor_parallel_num_weight_shards", "rampup_batch_size", "decrease_batch_size_if_needed"
EVAL_GLOBAL, EVAL_MICRO = "eval_global_batch_size", "eval_micro_batch_size"
PATTERN, OLD_PATTERN = "hybrid_layer_pattern", "hybrid_override_pattern"
OLD_FIRST, OLD_LAST = "first_pipeline_num_layers", "last_pipeline_num_layers"

COMBINED, DELAYED, EARLY = (
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "ep_overlap_early_attn_memory_release",
)
DISPATCH, SHARED, SHARED_SIZE, DISPATCHER = (
    "overlap_dispatch_backward_with_experts_wgrad",
    "moe_shared_expert_overlap",
    "moe_shared_expert_intermediate_size",
    "moe_token_dispatcher_type",
)
GRADS, PARAMS, PARAMS_STEP, TP_OVERLAP = (
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_param_gather_with_optimizer_step",
    "tp_comm_overlap",
)
SHARDED_STATES, FSDP, TORCH_FSDP, CUSTOM_FSDP, OPTIMIZER, FORMAT = (
    "use_distributed_optimizer",
    "use_megatron_fsdp",
    "use_torch_fsdp2",
    "use_custom_fsdp",
    "optimizer",
    "ckpt_format",
)
DEFER, DEFER_LIMIT, NO_FUSION, FUSION, OFFLOAD = (
    "defer_embedding_wgrad_compute",
    "wgrad_deferral_limit",
    "no_gradient_accumulation_fusion",
    "gradient_accumulation_fusion",
    "cpu_offloading",
)
RECOMPUTE, METHOD, RECOMPUTED_LAYERS, MODULES, ACTIVATIONS, DISTRIBUTED, MOE_RECOMPUTE = (
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "recompute_activations",
    "distribute_saved_activations",
    "moe_layer_recompute",
)
SEQUENCE, HYBRID_CP, GROUPED, LATENT, BF16, FP16 = (
    "sequence_parallel",
    "hybrid_context_parallel",
    "moe_grouped_gemm",
    "multi_latent_attention",
    "bf16",
    "fp16",
)
GRAPHS, GRAPH_MODULES, GRAPH_SCOPE, GRAPH_ON, LEGACY_GEMM = (
    "cuda_graph_impl",
    "cuda_graph_modules",
    "cuda_graph_scope",
    "enable_cuda_graph",
    "moe_use_legacy_grouped_gemm",
)
POSITIONS, ROTARY, LEGACY, IMPLEMENTATION, TP_PP_DP, FROM_CHECKPOINT, DETERMINISTIC = (
    "position_embedding_type",
    "use_rotary_position_embeddings",
    "use_legacy_models",
    "transformer_impl",
    "use_tp_pp_dp_mapping",
    "use_checkpoint_args",
    "deterministic_mode",
)
FP8, FP8_RECIPE, BF16_ENDS, BF16_START, BF16_END, BACKEND = (
    "fp8",
    "fp8_recipe",
    "first_last_layers_bf16",
    "num_layers_at_start_in_bf16",
    "num_layers_at_end_in_bf16",
    "pipeline_model_parallel_comm_backend",
)

OPTIONS = {  # launcher options that are not the field's name with hyphens
    "microbatch-group-size-per-virtual-pipeline-stage": GROUP,
    "overlap-p2p-communication-warmup-flush": FLUSH,
    "decoder-first-pipeline-num-layers": IN_FIRST,
    "decoder-last-pipeline-num-layers": IN_LAST,
    "fp8-format": FP8,
}


def _minor(*rows: tuple[Kind, object, str, *tuple[str, ...]]) -> dict[str, Key]:
    """Make keys on which no size of the schedule depends; a row: kind, default, first release, then the names."""
    return {
        name: Key(kind, default, first, optional=True, minor=True)
        for kind, default, first, *names in rows
        for name in names
    }


_BOTH: Mapping[str, Key] = {
    PP: Key(COUNT, 1),
    LAYERS: Key(COUNT),
    MICRO: Key(COUNT),
    GLOBAL: Key(COUNT),
    GROUP: Key(COUNT, None, "0.10", optional=True),
    FLUSH: Key(FLAG, False, "0.10"),
    EMBEDDING: Key(FLAG, False, "0.11"),
    LOSS: Key(FLAG, False, "0.11"),
    LAYOUT: Key(ANY, None, "0.13", optional=True),
    MTP: Key(FROM_0, None, "0.12", optional=True),
    TP: Key(COUNT, 1),
    CP: Key(COUNT, 1),
    EP: Key(COUNT, 1),
    ETP: Key(COUNT, None, "0.10", optional=True),
    "pipeline_model_parallel_split_rank": Key(last="0.13", elsewhere="0.14 took it away"),
    **_minor(
        (FLAG, False, "0.9", DEFER, DISTRIBUTED, MOE_RECOMPUTE, SEQUENCE, GROUPED, TP_OVERLAP, BF16, FP16),
        (FLAG, False, "0.10", SHARED, LATENT),
        (FLAG, False, "0.12", BF16_ENDS),
        (FLAG, False, "0.13", DELAYED),
        (FLAG, False, "0.14", COMBINED),
        (FLAG, False, "0.16", HYBRID_CP),
        (FLAG, False, "0.18", DISPATCH),
        (COUNT, None, "0.9", RECOMPUTED_LAYERS),
        (COUNT, None, "0.10", SHARED_SIZE),
        (one_of("full", "selective"), None, "0.9", RECOMPUTE),
        (one_of("uniform", "block"), None, "0.9", METHOD),
        (ANY, None, "0.12", MODULES, BACKEND, GRAPH_SCOPE),
        (ANY, "allgather", "0.9", DISPATCHER),
        (ANY, None, "0.9", FP8, "fp8_recipe"),
        (ANY, "none", "0.15", GRAPHS),
        (ANY, None, "0.18", GRAPH_MODULES),
        (ANY, 0, "0.9", DEFER_LIMIT),
        (ANY, 1, "0.12", BF16_START, BF16_END),
        (FLAG, False, "0.11", GRAPH_ON, LEGACY_GEMM),
    ),
}
CLI: Mapping[str, Key] = {
    **_BOTH,
    PER_CHUNK: Key(COUNT),
    CHUNKS: Key(COUNT, first="0.11", elsewhere="0.9 and 0.10 take --num-layers-per-virtual-pipeline-stage"),
    IN_FIRST: Key(COUNT),
    IN_LAST: Key(COUNT),
    NO_OVERLAP: Key(FLAG, False),
    STEPS: Key(TEXT, None, "0.18"),
    RAMPUP: Key(ANY, None),
    DECREASE: Key(FLAG, False),
    EVAL_GLOBAL: Key(COUNT, None, "0.18"),
    EVAL_MICRO: Key(COUNT, None, "0.18"),
    SHARDS: Key(COUNT, None, "0.19"),
    ENCODER: Key(COUNT),
    DECODER: Key(COUNT),
    ENCODER_PP: Key(FROM_0, 0, last="0.13", elsewhere="0.14 took it away"),
    ENCODER_TP: Key(FROM_0, 0, last="0.13", elsewhere="0.14 took it away"),
    PATTERN: Key(TEXT, None, "0.17", elsewhere="0.16 and before take --hybrid-override-pattern, without |"),
    OLD_PATTERN: Key(TEXT, None),
    TP_PP_DP: Key(FLAG, False),
    **_minor(
        (
            FLAG,
            False,
            "0.9",
            ACTIVATIONS,
            GRADS,
            PARAMS,
            PARAMS_STEP,
            SHARDED_STATES,
            NO_FUSION,
            ROTARY,
            LEGACY,
            FROM_CHECKPOINT,
            DETERMINISTIC,
        ),
        (FLAG, False, "0.10", TORCH_FSDP),
        (FLAG, False, "0.12", CUSTOM_FSDP),
        (FLAG, False, "0.14", FSDP),
        (FLAG, False, "0.16", EARLY),
        (ANY, "torch_dist", "0.9", FORMAT),
        (ANY, "adam", "0.9", OPTIMIZER),
        (ANY, "learned_absolute", "0.9", POSITIONS),
        (ANY, "transformer_engine", "0.9", IMPLEMENTATION),
        (ANY, None, "0.9", EXPERTS),
    ),
    "num_layers_per_stage": Key(none=True, elsewhere="write --num-layers-per-virtual-pipeline-stage"),
    VPP: Key(none=True, elsewhere="the launcher takes --num-virtual-stages-per-pipeline-rank and sets this field"),
}
CORE: Mapping[str, Key] = {
    **_BOTH,
    VPP: Key(COUNT, None, optional=True),
    OVERLAP: Key(FLAG, False),
    BATCHED: Key(FLAG, True),
    IN_FIRST: Key(COUNT, None, "0.11", elsewhere="0.9 and 0.10 have first_pipeline_num_layers", optional=True),
    IN_LAST: Key(COUNT, None, "0.11", elsewhere="0.9 and 0.10 have last_pipeline_num_layers", optional=True),
    OLD_FIRST: Key(COUNT, None, last="0.10", elsewhere=f"write {IN_FIRST}", optional=True),
    OLD_LAST: Key(COUNT, None, last="0.10", elsewhere=f"write {IN_LAST}", optional=True),
    "variable_seq_lengths": Key(FLAG, False),
    **_minor((FLAG, False, "0.9", OFFLOAD), (FLAG, True, "0.9", FUSION), (FLAG, False, "0.14", EARLY)),
}
