"""What Megatron's settings are: options of its launcher, and fields of the core's configuration, by release.

    --num-layers 12                                   a script, or MODEL_ARGS of its tests      cli
    pipeline_model_parallel_size: 4                   fields, of a recipe in YAML               core

An option of the launcher goes by the name of what it sets here. Source: Megatron-LM, tags core_v0.9.0 to core_v0.19.0,
megatron/training/arguments.py, megatron/core/model_parallel_config.py and transformer/transformer_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipesched.trainers.keys import ANY, COUNT, FLAG, FROM_0, TEXT, Key

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

OPTIONS = {  # of the launcher, where that is not the name with hyphens
    "microbatch-group-size-per-virtual-pipeline-stage": GROUP,
    "overlap-p2p-communication-warmup-flush": FLUSH,
    "decoder-first-pipeline-num-layers": IN_FIRST,
    "decoder-last-pipeline-num-layers": IN_LAST,
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
    "pipeline_model_parallel_comm_backend": Key(TEXT, None, "0.12", optional=True),
    "pipeline_model_parallel_split_rank": Key(last="0.13", elsewhere="0.14 took it away"),
    "delay_wgrad_compute": Key(FLAG, False, "0.13"),
}
CLI: Mapping[str, Key] = {
    **_BOTH,
    PER_CHUNK: Key(COUNT),
    CHUNKS: Key(COUNT, first="0.11", elsewhere="0.9 and 0.10 take --num-layers-per-virtual-pipeline-stage"),
    IN_FIRST: Key(COUNT),
    IN_LAST: Key(COUNT),
    NO_OVERLAP: Key(FLAG, False),
    STEPS: Key(TEXT, None, "0.18"),
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
    "first_pipeline_num_layers": Key(COUNT, None, last="0.10", elsewhere=f"write {IN_FIRST}", optional=True),
    "last_pipeline_num_layers": Key(COUNT, None, last="0.10", elsewhere=f"write {IN_LAST}", optional=True),
    "variable_seq_lengths": Key(FLAG, False),
}
