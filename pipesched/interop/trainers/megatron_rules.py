"""Megatron-LM's refusals that concern the pipeline, one row each: condition, message, settings, source, releases.

    RULES = (rows, rows, ...)    groups of rows; only the first broken row of a group is reported

A row applies from release `since` to release `until`, and to one kind of text (`of`): launcher options or core fields.
Source: the asserts and raises of tags core_v0.9.0 to core_v0.19.0, in the files that the rows name. Statements about
orders of messages follow from the order in which the code posts them, and were confirmed on real processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pipesched.diagnostics import AnyCode, Diagnostic
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import wrong
from pipesched.interop.trainers.megatron_keys import (
    ACTIVATIONS,
    BACKEND,
    BATCHED,
    BF16,
    BF16_END,
    BF16_ENDS,
    BF16_START,
    CHUNKS,
    COMBINED,
    CP,
    CUSTOM_FSDP,
    DECREASE,
    DEFER,
    DEFER_LIMIT,
    DELAYED,
    DETERMINISTIC,
    DISPATCH,
    DISPATCHER,
    DISTRIBUTED,
    EARLY,
    EMBEDDING,
    ENCODER,
    EP,
    ETP,
    EVAL_GLOBAL,
    EVAL_MICRO,
    FLUSH,
    FORMAT,
    FP8,
    FP8_RECIPE,
    FP16,
    FROM_CHECKPOINT,
    FSDP,
    FUSION,
    GLOBAL,
    GRADS,
    GRAPH_MODULES,
    GRAPH_ON,
    GRAPH_SCOPE,
    GRAPHS,
    GROUP,
    GROUPED,
    HYBRID_CP,
    IMPLEMENTATION,
    IN_FIRST,
    IN_LAST,
    LATENT,
    LAYERS,
    LAYOUT,
    LEGACY,
    LEGACY_GEMM,
    LOSS,
    METHOD,
    MICRO,
    MODULES,
    MOE_RECOMPUTE,
    MTP,
    NO_FUSION,
    NO_OVERLAP,
    OFFLOAD,
    OLD_FIRST,
    OLD_LAST,
    OLD_PATTERN,
    OPTIMIZER,
    OVERLAP,
    PARAMS,
    PARAMS_STEP,
    PATTERN,
    PER_CHUNK,
    POSITIONS,
    PP,
    RAMPUP,
    RECOMPUTE,
    RECOMPUTED_LAYERS,
    RELEASES,
    ROTARY,
    SEQUENCE,
    SHARDED_STATES,
    SHARED,
    SHARED_SIZE,
    STEPS,
    TORCH_FSDP,
    TP,
    TP_OVERLAP,
    TP_PP_DP,
    VPP,
)
from pipesched.interop.trainers.megatron_sizes import Sizes
from pipesched.planning.transformer.megatron_layout import faults

ARGUMENTS = "megatron/training/arguments.py: validate_args"
CONFIG = "megatron/core/transformer/transformer_config.py: __post_init__"
PARALLEL = "megatron/core/model_parallel_config.py: __post_init__"
GROUPS = "megatron/core/parallel_state.py: initialize_model_parallel"
BLOCK = "megatron/core/transformer/transformer_block.py: get_num_layers_to_build"
PLACED = "megatron/core/transformer/pipeline_parallel_layer_layout.py: validate_layer_layout"
CALCULATOR = "megatron/core/num_microbatches_calculator.py"
LOOPED = "megatron/core/pipeline_parallel/schedules.py: forward_backward_pipelining_with_interleaving"
PLAIN = "megatron/core/pipeline_parallel/schedules.py: forward_backward_pipelining_without_interleaving"
SWAPPED = "Megatron-LM#1450 (PRs #1485, #5271), p2p_communication.py; confirmed on two processes"
HYBRID = "megatron/core/models/hybrid/hybrid_layer_allocation.py: select_pipeline_segment"
_ENDS = (IN_FIRST, OLD_FIRST, IN_LAST, OLD_LAST)
_WAYS = (PER_CHUNK, CHUNKS, LAYOUT)

Said = str | Callable[[Sizes], str]


@dataclass(frozen=True)
class Rule:
    """A refusal. when: condition that breaks it. says: the message. at: keys of the settings that take part.

    since, until: the first and the last release with this refusal. of: kind of text to which it applies.
    """

    when: Callable[[Sizes], object]
    says: Said
    at: tuple[str, ...]
    source: str = ARGUMENTS
    code: AnyCode = InteropCode.CONFIG_COMBINATION
    since: str = RELEASES[0]
    until: str = RELEASES[-1]
    of: Literal["both", "cli", "core"] = "both"
    help: str | None = None

    def broken(self, x: Sizes) -> bool:
        """True if the release refuses these settings by this rule."""
        order = RELEASES.index
        there = order(self.since) <= order(x.case.release) <= order(self.until)
        return there and self.of in ("both", "cli" if x.cli else "core") and bool(self.when(x))

    def told(self, x: Sizes) -> Diagnostic:
        """Make the diagnostic, at the settings that are in the text."""
        says = self.says if isinstance(self.says, str) else self.says(x)
        places = [x[key] for key in self.at if key in x.case.settings] or [x[key] for key in self.at[:1]]
        source = self.source if "#" in self.source else f"Megatron-LM core_v{x.case.release}.0, {self.source}"
        return wrong(self.code, says, source, *places, help=self.help)


def _s(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _left(x: Sizes) -> str:
    return f"{x.middle} of {x.counted}" if x.ends else str(x.counted)


def _split(x: Sizes) -> str:
    """Message: the layers cannot be divided over the ranks."""
    named = " and the ".join(key.key.split("_")[2] for key in x.as_layers)
    counted = f", the {named} among them," if named else ""
    return f"{_left(x)} layers{counted} do not go onto {x.between} ranks{' between the ends' * bool(x.ends)}"


def _uneven(x: Sizes) -> int:
    """Layers of the first kind of rank whose layers its chunks do not divide; 0 if there is none."""
    return next((each for each in x.by_rank if x.v and each % x.v), 0)


def _stages(x: Sizes) -> list[str]:
    """Messages on the faults of a layout."""
    if x.layout is None or isinstance(x.layout, str):
        return [x.layout] if isinstance(x.layout, str) else []
    return [*faults(x.layout, x.p, x.layers, x.predicted)] if x.p else []


def _graphs(x: Sizes) -> str:
    return "" if x.open(GRAPHS) else x.text(GRAPHS).replace("none", "")


def _full_graph(x: Sizes) -> bool:
    """True if a CUDA graph captures a whole iteration."""
    return "full_iteration" in (x.text(GRAPHS), *x.words(GRAPH_SCOPE))


def _experts(x: Sizes) -> int | None:
    """Number of processes of one copy of the experts, None if not known."""
    tensor, experts = x.count(ETP) or x.count(TP), x.count(EP)
    known = x.p and x.replica and x.known(EP, ETP)
    return tensor * experts * x.p if tensor and experts and known else None


def _product(x: Sizes) -> str:
    return "" if x.encoder else f" = {x.p} x {x.count(TP)} x {x.count(CP)}"


BATCH = (
    Rule(
        lambda x: x.case.processes and x.replica and x.case.processes % x.replica,
        lambda x: (
            f"{x.case.processes} processes are not divided by {x.replica} = {x.p} x {x.count(TP)} x {x.count(CP)}"
            " of a replica"
        ),
        (PP, TP, CP),
        code=InteropCode.CONFIG_BATCH,
    ),
    Rule(
        lambda x: x.case.processes and (each := _experts(x)) and x.case.processes % each,
        lambda x: f"{x.case.processes} processes are not divided by {_experts(x)} of a replica of the experts",
        (PP, EP, ETP, TP),
        GROUPS,
        InteropCode.CONFIG_BATCH,
        since="0.10",
    ),
    Rule(
        lambda x: x.on(TP_PP_DP) and x.p > 1 and x.replica and (each := _experts(x)) and each != x.replica,
        "with ranks of the pipeline before those of data, experts have as many replicas as all else",
        (TP_PP_DP, PP, EP, ETP),
        GROUPS,
        since="0.11",
        of="cli",
    ),
    Rule(
        lambda x: x.complete and x.lacks(MICRO),
        "micro_batch_size is not given",
        (PP, GLOBAL),
        code=InteropCode.CONFIG_MISSING,
    ),
    Rule(
        lambda x: x.given(STEPS) and x.given(GLOBAL),
        "the batch is given twice: by steps, and as one number",
        (STEPS, GLOBAL),
        since="0.18",
        help="leave out --global-batch-size",
    ),
    Rule(
        lambda x: x.batch and x.count(MICRO) and not x.on(DECREASE) and x.batch % (x.at_once or x.count(MICRO) or 1),
        lambda x: f"a batch of {x.batch} is not divided by microbatches of {x.count(MICRO)}{_on(x)}",
        (GLOBAL, MICRO),
        CALCULATOR,
        InteropCode.CONFIG_BATCH,
    ),
    Rule(
        lambda x: x.batch and x.at_once and x.batch < x.at_once,
        lambda x: f"a batch of {x.batch} is less than one microbatch of {x.count(MICRO)}{_on(x)}",
        (GLOBAL, MICRO),
        CALCULATOR,
        InteropCode.CONFIG_BATCH,
    ),
    Rule(
        lambda x: (
            (batch := x.count(EVAL_GLOBAL) or x.batch)
            and (x.replicas or x.given(EVAL_GLOBAL))
            and (size := x.count(EVAL_MICRO) or x.count(MICRO))
            and batch % (size * (x.replicas or 1))
        ),
        lambda x: (
            f"an evaluation's batch of {x.count(EVAL_GLOBAL) or x.batch} is not divided by microbatches of "
            f"{x.count(EVAL_MICRO) or x.count(MICRO)}{_on(x)}"
        ),
        (EVAL_GLOBAL, EVAL_MICRO, GLOBAL, MICRO),
        ARGUMENTS,
        InteropCode.CONFIG_BATCH,
        since="0.18",
        of="cli",
    ),
    Rule(
        lambda x: x.grown and x.batch and (x.grown[1] < 1 or (x.batch - x.grown[0]) % x.grown[1]),
        lambda x: f"a batch does not grow from {x.grown[0]} to {x.batch} by {x.grown[1]}",
        (RAMPUP, GLOBAL),
        CALCULATOR,
        InteropCode.CONFIG_BATCH,
        of="cli",
    ),
    Rule(
        lambda x: x.grown and x.at_once and not x.on(DECREASE) and any(size % x.at_once for size in x.grown[:2]),
        lambda x: (
            f"a batch that grows from {x.grown[0]} by {x.grown[1]} is not divided by {x.at_once} samples of a "
            "microbatch on all replicas"
        ),
        (RAMPUP, MICRO),
        CALCULATOR,
        InteropCode.CONFIG_BATCH,
        of="cli",
    ),
)


def _on(x: Sizes) -> str:
    return "" if x.replicas is None else f" on {x.replicas} replica{'s' * (x.replicas != 1)}"


WAYS = (
    Rule(
        lambda x: len(x.given(*_WAYS)) > 1,
        lambda x: f"the chunks of a rank are given {len(x.given(*_WAYS))} times",
        _WAYS,
        since="0.11",
        of="cli",
        help="keep one of them",
    ),
    Rule(
        lambda x: x.given(VPP) and x.given(LAYOUT) and x.v is not None and x.v != x.count(VPP),
        lambda x: f"the layout has {x.v} stages of a rank; {VPP} is {x.count(VPP)}",
        (LAYOUT, VPP),
        CONFIG,
        since="0.13",
        of="core",
    ),
)
UNEVEN = (
    Rule(
        lambda x: x.given(LAYOUT) and (x.ends or x.as_layers),
        "a layout says where all layers are: nothing else may",
        (LAYOUT, *_ENDS, EMBEDDING, LOSS),
        CONFIG,
        since="0.13",
    ),
    Rule(
        lambda x: x.ends and x.as_layers,
        "layers of the first or last stage are given, and the embedding or the loss is to count as one",
        (*_ENDS, EMBEDDING, LOSS),
        CONFIG,
        since="0.11",
        help="keep one of them",
    ),
    Rule(
        lambda x: x.ends and x.count(PER_CHUNK) and not x.count(CHUNKS),
        "with an uneven first or last stage v is given by the chunks of a rank",
        (PER_CHUNK, *_ENDS),
        since="0.11",
        of="cli",
        help="write --num-virtual-stages-per-pipeline-rank",
    ),
    Rule(
        lambda x: x.ends and (x.given(PER_CHUNK) or (x.v or 1) > 1),
        "an uneven first or last stage and chunks do not go together",
        (*_ENDS, PER_CHUNK, VPP),
        BLOCK,
        until="0.10",
    ),
)
PATTERNS = (
    Rule(
        lambda x: x.given(PATTERN) and x.given(OLD_PATTERN),
        "the pattern of the layers is given twice",
        (PATTERN, OLD_PATTERN),
        help="keep --hybrid-layer-pattern",
    ),
    Rule(
        lambda x: x.segments and x.given(PER_CHUNK, CHUNKS, LAYOUT, EMBEDDING, LOSS),
        "a hybrid pattern says by its segments where the layers are: nothing else may",
        (PATTERN, OLD_PATTERN, PER_CHUNK, CHUNKS, LAYOUT, EMBEDDING, LOSS),
        help="put | between the stages of the pattern",
    ),
    Rule(
        lambda x: x.segments > 1 and x.ends,
        "the segments of a hybrid pattern are its stages: layers of the first or last may not be given",
        (PATTERN, OLD_PATTERN, *_ENDS),
    ),
    Rule(
        lambda x: x.segments and x.p and (x.segments > 1 or x.p == 1) and x.segments % x.p,
        lambda x: f"a hybrid pattern of {x.segments} segments does not go onto {x.p} ranks in equal numbers",
        (PATTERN, OLD_PATTERN, PP),
        code=InteropCode.CONFIG_STAGES,
    ),
    Rule(
        lambda x: x.segments == 1 and x.p > 1 and x.between > 0 and (x.middle or 0) % x.between,
        lambda x: f"{_split(x)} in equal numbers, and the pattern has no |",
        (PATTERN, OLD_PATTERN, PP, *_ENDS),
        HYBRID,
        InteropCode.CONFIG_STAGES,
        help="put | between the stages of the pattern",
    ),
)
_EQUAL = "choose a number of layers that the ranks divide, or say the layers of the first and last rank"
_PLACES = (LAYERS, ENCODER, PP, *_ENDS, EMBEDDING, LOSS)


def _whole(x: Sizes) -> bool:
    """True if layers are divided over ranks by number alone, without layout or pattern."""
    return x.layout is None and not x.segments and x.layers is not None and x.p > 0


def _unchunked(x: Sizes) -> int:
    """Layers of a rank if the layers of a chunk do not divide them, else 0."""
    each, rank = x.count(PER_CHUNK), (x.counted or 0) // (x.p or 1)
    return rank if each and rank % each else 0


DIVIDED = (
    Rule(
        lambda x: (x.given(LAYERS) or x.segments) and x.given(ENCODER),
        "num_layers and encoder_num_layers are both given",
        (LAYERS, ENCODER, PATTERN, OLD_PATTERN),
        of="cli",
        help="keep one of them",
    ),
    Rule(
        lambda x: x.complete and x.lacks(LAYERS, ENCODER, PATTERN, OLD_PATTERN) and not x.on(FROM_CHECKPOINT),
        "num_layers is not given",
        (PP,),
        code=InteropCode.CONFIG_MISSING,
    ),
    Rule(
        lambda x: (
            _whole(x) and x.given(LAYERS) and x.count(PER_CHUNK) and not x.count(CHUNKS) and (x.counted or 0) % x.p
        ),
        lambda x: f"{_split(x)} in equal numbers",
        _PLACES,
        code=InteropCode.CONFIG_STAGES,
        of="cli",
        help=_EQUAL,
    ),
    Rule(
        lambda x: _whole(x) and x.given(LAYERS) and not x.count(CHUNKS) and _unchunked(x),
        lambda x: f"{_unchunked(x)} layers of a rank are not divided by {x.count(PER_CHUNK)} of a chunk",
        (PER_CHUNK, *_PLACES),
        code=InteropCode.CONFIG_STAGES,
        of="cli",
    ),
    Rule(
        lambda x: (_whole(x) or x.segments == 1) and x.ends and bool(x.middle) != bool(x.between),
        lambda x: f"{_left(x)} layers are left for {x.between} ranks between the ends",
        _PLACES,
        CONFIG,
        InteropCode.CONFIG_STAGES,
        since="0.16",
    ),
    Rule(
        lambda x: _whole(x) and x.ends and x.between == 0,
        "no rank is between the ends, and the layers are divided by their number",
        _PLACES,
        CONFIG,
        InteropCode.CONFIG_STAGES,
        since="0.11",
        until="0.12",
    ),
    Rule(
        lambda x: _whole(x) and x.ends and x.between <= 0 and x.middle,
        lambda x: (
            f"the model gets {(x.counted or 0) - (x.middle or 0)} of its {x.counted} layers, silently: no rank is "
            "between the ends"
        ),
        _PLACES,
        BLOCK,
        InteropCode.CONFIG_SILENT,
    ),
    Rule(
        lambda x: _whole(x) and x.ends and x.between > 0 and (x.middle or 0) % x.between,
        lambda x: f"{_split(x)} in equal numbers",
        _PLACES,
        CONFIG,
        InteropCode.CONFIG_STAGES,
        help=_EQUAL,
    ),
    Rule(
        lambda x: _whole(x) and x.ends and (x.middle or 0) < 0,
        lambda x: (
            f"{_left(x)} layers are left for {x.between} ranks between the ends: the model gets more than it has, "
            "silently"
        ),
        _PLACES,
        BLOCK,
        InteropCode.CONFIG_SILENT,
    ),
    Rule(
        lambda x: _whole(x) and not x.ends and (x.counted or 0) % x.p,
        lambda x: f"{_split(x)} in equal numbers",
        _PLACES,
        BLOCK,
        InteropCode.CONFIG_STAGES,
        help=_EQUAL,
    ),
    Rule(
        lambda x: _whole(x) and (x.p > 1 or x.ends) and _uneven(x),
        lambda x: f"{_uneven(x)} layers of a rank are not divided by {x.v} chunks",
        (CHUNKS, VPP, *_PLACES),
        CONFIG,
        InteropCode.CONFIG_STAGES,
    ),
)
LAYOUTS = (
    Rule(
        lambda x: x.given(LAYOUT) and "m" in "".join(x.layout or ""),
        "a layout may not have an m",
        (LAYOUT,),
        PLACED,
        InteropCode.CONFIG_STAGES,
        since="0.13",
        until="0.13",
    ),
    Rule(
        lambda x: x.given(LAYOUT) and _stages(x),
        lambda x: f"the layout {_stages(x)[0]}",
        (LAYOUT, PP, LAYERS, MTP),
        PLACED,
        InteropCode.CONFIG_STAGES,
        since="0.13",
    ),
)
LOOPS = (
    Rule(
        lambda x: x.p == 1 and (x.v or 1) > 1,
        lambda x: f"1 rank has {x.v} chunks: chunks are for ranks that take turns, of which there are 2 and more",
        (PP, PER_CHUNK, CHUNKS, LAYOUT, VPP, PATTERN, OLD_PATTERN),
        GROUPS,
    ),
    Rule(
        lambda x: not x.cli and x.overlaps and x.batched and x.p > 1 and (x.v or 1) > 1,
        "messages cannot both overlap and be posted in batches",
        (OVERLAP, BATCHED),
        LOOPED,
        help=f"{BATCHED}: false",
    ),
    Rule(
        lambda x: not x.cli and x.overlaps and x.v == 1 and x.p > 1,
        "messages overlap only if a rank has several chunks: v is 1",
        (OVERLAP, VPP),
        PLAIN,
    ),
    Rule(
        lambda x: x.flush and x.v is not None and (not x.overlaps or x.batched),
        lambda x: f"messages overlap in warm-up and flush only where they overlap at all{': v is 1' * (x.v == 1)}",
        (FLUSH, NO_OVERLAP, OVERLAP, BATCHED),
        PARALLEL,
        since="0.10",
    ),
    Rule(
        lambda x: x.cli and x.p == 2 and (x.v or 1) > 1 and not x.overlaps,
        "2 ranks with chunks need overlapping messages: in a batch both go between the same two ranks",
        (PP, NO_OVERLAP),
        help="leave out --no-overlap-p2p-communication",
    ),
    Rule(
        lambda x: x.p == 2 and (x.v or 1) > 1 and x.batched and (x.m is None or x.m > x.p),
        "2 ranks with chunks post messages in batches: a gradient is taken for an activation, silently",
        (PP, NO_OVERLAP, OVERLAP, BATCHED),
        SWAPPED,
        InteropCode.CONFIG_SILENT,
        help=f"{OVERLAP}: true and {BATCHED}: false",
    ),
)
GROUPED_MICROBATCHES = (
    Rule(
        lambda x: (x.v or 1) > 1 and x.p > 1 and (x.group < x.p or (x.m is not None and x.group > x.m)),
        lambda x: (
            f"groups of {x.group} microbatches: there "
            + (
                f"may be no fewer than {x.p} ranks"
                if x.group < x.p
                else f"are {_s(x.m or 0, 'microbatch')}"[:-1] + "es"
            )
        ),
        (GROUP, PP, GLOBAL),
        LOOPED,
        InteropCode.CONFIG_BATCH,
        since="0.10",
    ),
    Rule(
        lambda x: (x.v or 1) > 1 and x.p > 1 and x.m is not None and 0 < x.m % x.group < x.p,
        lambda x: f"{x.m} microbatches in groups of {x.group} leave {(x.m or 0) % x.group}, fewer than {x.p} ranks",
        (GROUP, PP, GLOBAL),
        LOOPED,
        InteropCode.CONFIG_BATCH,
    ),
)


def _combined(
    when: Callable[[Sizes], object],
    says: str,
    *at: str,
    since: str = "0.14",
    until: str = RELEASES[-1],
    help: str = "leave out --overlap-moe-expert-parallel-comm",
) -> Rule:
    """Make a refusal that applies if experts overlap with the pipeline."""
    return Rule(
        lambda x: x.on(COMBINED) and when(x), says, (COMBINED, *at), CONFIG, since=since, until=until, help=help
    )


COMBINED_STEPS = (
    _combined(
        lambda x: x.p > 1 and x.v == 1,
        "experts overlap with the pipeline in a combined 1F1B, which needs several chunks of a rank: v is 1",
        PP,
        VPP,
        CHUNKS,
        help="give --num-virtual-stages-per-pipeline-rank 2, or leave out --overlap-moe-expert-parallel-comm",
    ),
    _combined(
        lambda x: x.known(EP) and x.count(EP) == 1,
        "experts overlap with the pipeline only where they are on several ranks",
        EP,
    ),
    _combined(
        lambda x: x.known(DISPATCHER) and x.text(DISPATCHER) not in ("alltoall", "flex"),
        "experts overlap with the pipeline only with the dispatcher alltoall or flex",
        DISPATCHER,
    ),
    _combined(
        lambda x: x.recompute == "full" or x.given(METHOD, RECOMPUTED_LAYERS),
        "experts that overlap with the pipeline are not recomputed: recompute_granularity is not full, and there is no "
        "recompute_method and no recompute_num_layers",
        RECOMPUTE,
        METHOD,
        RECOMPUTED_LAYERS,
    ),
    _combined(
        lambda x: "moe" in x.modules,
        "experts that overlap with the pipeline are not recomputed: moe is among the recompute_modules",
        MODULES,
        since="0.17",
    ),
    _combined(lambda x: x.lacks(BF16, FP16), "experts overlap with the pipeline only in bf16 or fp16", BF16, FP16),
    _combined(
        lambda x: x.on(SHARED),
        "experts overlap with the pipeline, or shared experts with their dispatch: not both",
        SHARED,
    ),
    _combined(
        lambda x: x.predicted > 1, "experts overlap with the pipeline only with one layer for prediction, or none", MTP
    ),
    _combined(
        lambda x: x.predicted == 1 and x.p == 1,
        "experts overlap with a layer for prediction only in a pipeline: p is 1",
        MTP,
        PP,
        since="0.16",
        until="0.17",
    ),
    _combined(
        lambda x: _graphs(x) not in ("", "transformer_engine"),
        "experts that overlap with the pipeline are in no CUDA graph",
        GRAPHS,
        since="0.16",
        until="0.17",
    ),
    _combined(
        lambda x: _graphs(x) == "transformer_engine" and {"moe", "mlp"} & _captured(x),
        "experts that overlap with the pipeline are in no CUDA graph",
        GRAPHS,
        GRAPH_SCOPE,
        GRAPH_MODULES,
        since="0.16",
    ),
)


def _needs(key: str, other: str, says: str, *, since: str = RELEASES[0], source: str = ARGUMENTS) -> Rule:
    """Make a refusal of flag `key` without flag `other`."""
    return Rule(lambda x: x.on(key) and x.lacks(other), says, (key, other), source, since=since)


def _alone(
    key: str, says: str, *, since: str = RELEASES[0], until: str = RELEASES[-1], source: str = ARGUMENTS
) -> Rule:
    """Make a refusal of flag `key` together with a pipeline."""
    return Rule(lambda x: x.on(key) and x.p > 1, says, (key, PP), source, since=since, until=until)


WEIGHTS = (
    Rule(
        lambda x: x.on(DELAYED, GRADS),
        "weight gradients are delayed, or gradients are reduced during compute: not both",
        (DELAYED, GRADS),
        since="0.13",
        until="0.13",
        of="cli",
    ),
    _needs(
        DELAYED,
        COMBINED,
        "weight gradients are delayed only where experts overlap with the pipeline",
        since="0.14",
        source=CONFIG,
    ),
    Rule(
        lambda x: x.on(DELAYED, LEGACY_GEMM),
        "weight gradients are not delayed with the legacy grouped GEMM",
        (DELAYED, LEGACY_GEMM),
        CONFIG,
        since="0.13",
        until="0.16",
    ),
    Rule(
        lambda x: x.on(DELAYED) and x.known(IMPLEMENTATION) and x.text(IMPLEMENTATION) != "transformer_engine",
        "weight gradients are delayed only by Transformer Engine",
        (DELAYED, IMPLEMENTATION),
        since="0.13",
        of="cli",
    ),
)
DISPATCHES = (
    Rule(
        lambda x: x.on(DISPATCH) and (x.on(COMBINED) or x.on(DELAYED)),
        "weight gradients of experts overlap with their dispatch, or they are delayed, or experts overlap with the "
        "pipeline: only one of the three",
        (DISPATCH, COMBINED, DELAYED),
        CONFIG,
        since="0.18",
    ),
)
EARLIER = (
    _needs(
        EARLY,
        COMBINED,
        "memory of attention is released early only where experts overlap with the pipeline",
        since="0.14",
        source=CONFIG,
    ),
)


def _dispatched(*able: str, since: str, until: str = RELEASES[-1]) -> Rule:
    """Make a refusal of overlapped shared experts with other dispatchers than `able`."""
    return Rule(
        lambda x: x.on(SHARED) and x.given(SHARED_SIZE) and x.known(DISPATCHER) and x.text(DISPATCHER) not in able,
        f"shared experts overlap with the dispatch only with the dispatcher {' or '.join(able)}",
        (SHARED, DISPATCHER),
        CONFIG,
        since=since,
        until=until,
    )


SHARED_EXPERTS = (_dispatched("alltoall", since="0.10", until="0.17"), _dispatched("alltoall", "flex", since="0.18"))
DEFERRED = (
    Rule(
        lambda x: x.on(DEFER) and x.p == 1,
        "weight gradients of the embedding are deferred only in a pipeline: p is 1",
        (DEFER, PP),
        PARALLEL,
    ),
    Rule(
        lambda x: x.on(DEFER) and (x.on(NO_FUSION) or (not x.cli and x.known(FUSION) and not x.on(FUSION))),
        "weight gradients of the embedding are deferred only where gradients are accumulated in the same kernel",
        (DEFER, NO_FUSION, FUSION),
        PARALLEL,
    ),
    Rule(
        lambda x: x.on(DEFER) and (x.case.settings.whole(DEFER_LIMIT) or 0) < 0,
        "the limit of deferred weight gradients is less than 0",
        (DEFER_LIMIT, DEFER),
        PARALLEL,
    ),
)
SHARDED = (
    Rule(
        lambda x: (
            x.on(PARAMS)
            and x.lacks(SHARDED_STATES, FSDP, CUSTOM_FSDP)
            and not (x.case.since("0.17") and x.text(OPTIMIZER) == "dist_muon")
        ),
        "parameters are gathered during compute only with the distributed optimizer",
        (PARAMS, SHARDED_STATES),
        help="add --use-distributed-optimizer",
    ),
    _needs(PARAMS, GRADS, "parameters are gathered during compute only where gradients are reduced during it"),
    _needs(
        PARAMS_STEP,
        SHARDED_STATES,
        "parameters are gathered during the optimizer's step only by the distributed optimizer",
    ),
    _needs(
        PARAMS_STEP,
        PARAMS,
        "parameters are gathered during the optimizer's step only where they are during compute too",
    ),
    Rule(
        lambda x: x.on(PARAMS_STEP) and x.v == 1,
        "parameters are gathered during the optimizer's step only if a rank has several chunks: v is 1",
        (PARAMS_STEP, PP, CHUNKS, PER_CHUNK),
        of="cli",
    ),
    Rule(
        lambda x: x.on(PARAMS_STEP) and x.known(FORMAT) and x.text(FORMAT) != "torch",
        "parameters are gathered during the optimizer's step only with --ckpt-format torch",
        (PARAMS_STEP, FORMAT),
        of="cli",
    ),
)
ONE_STAGE = tuple(
    (rule,)
    for rule in (
        _alone(TORCH_FSDP, "FSDP2 of torch does not go with a pipeline", since="0.10"),
        _alone(HYBRID_CP, "hybrid context parallelism does not go with a pipeline", since="0.16"),
        _alone(OFFLOAD, "activations are copied to the host only without a pipeline", source=CONFIG),
        Rule(
            lambda x: x.text(FORMAT) == "torch_dcp" and x.p > 1,
            "checkpoints in the format torch_dcp do not go with a pipeline",
            (FORMAT, PP),
            since="0.12",
            of="cli",
        ),
        Rule(
            lambda x: x.on(TP_OVERLAP) and not x.sequence and x.known(SEQUENCE, TP),
            "messages between tensor ranks overlap only where sequences are cut over several of them",
            (TP_OVERLAP, SEQUENCE, TP),
            of="cli",
        ),
        Rule(
            lambda x: x.on(DETERMINISTIC, TP_OVERLAP),
            "messages between tensor ranks do not overlap in the deterministic mode",
            (TP_OVERLAP, DETERMINISTIC),
            "megatron/training/determinism.py: apply_determinism_to_args",
            since="0.19",
            of="cli",
        ),
        Rule(
            lambda x: x.given(BACKEND) and x.text(BACKEND) not in ("", "nccl", "ucc"),
            lambda x: f"no backend of messages between stages is called {x.text(BACKEND)[:40]}",
            (BACKEND,),
            GROUPS,
            code=InteropCode.CONFIG_VALUE,
            since="0.12",
        ),
    )
)
RECOMPUTED = (
    Rule(
        lambda x: x.recompute == "full" and x.known(METHOD) and not x.text(METHOD),
        "full recomputation needs a recompute_method",
        (RECOMPUTE, METHOD),
        CONFIG,
        help="uniform or block",
    ),
    Rule(
        lambda x: x.recompute == "full" and x.lacks(RECOMPUTED_LAYERS),
        "full recomputation needs a number of layers",
        (RECOMPUTE, RECOMPUTED_LAYERS),
        CONFIG,
        help="give recompute_num_layers",
    ),
    Rule(
        lambda x: x.cli and x.recompute == "selective" and x.given(METHOD),
        "selective recomputation has no recompute_method",
        (RECOMPUTE, ACTIVATIONS, METHOD),
        of="cli",
    ),
    Rule(
        lambda x: x.recompute == "selective" and x.given(RECOMPUTED_LAYERS),
        "selective recomputation has no number of layers",
        (RECOMPUTE, ACTIVATIONS, RECOMPUTED_LAYERS),
        CONFIG,
    ),
    Rule(
        lambda x: x.on(MOE_RECOMPUTE) and x.recompute == "full",
        "MoE layers are recomputed with all others already",
        (MOE_RECOMPUTE, RECOMPUTE),
        CONFIG,
        since="0.12",
    ),
    Rule(
        lambda x: x.on(OFFLOAD) and x.recompute,
        "activations are copied to the host, or they are recomputed: not both",
        (OFFLOAD, RECOMPUTE),
        CONFIG,
    ),
    Rule(
        lambda x: (x.recompute or not x.cli) and x.on(GRAPH_ON) and x.recompute,
        "what a CUDA graph has captured is not recomputed",
        (GRAPH_ON, RECOMPUTE, ACTIVATIONS),
        CONFIG,
        since="0.11",
        until="0.14",
    ),
    Rule(
        lambda x: _graphs(x) and x.recompute == "full" and (not x.case.since("0.16") or not _full_graph(x)),
        "full recomputation goes with a CUDA graph only if that is of the full iteration",
        (RECOMPUTE, GRAPHS, GRAPH_SCOPE),
        CONFIG,
        since="0.15",
    ),
    Rule(
        lambda x: (
            _graphs(x) == "transformer_engine"
            and x.recompute == "selective"
            and "moe" in x.modules
            and "moe_router" in _captured(x)
        ),
        "MoE layers whose router is in a CUDA graph are not recomputed",
        (MODULES, GRAPHS, GRAPH_SCOPE, GRAPH_MODULES),
        CONFIG,
        since="0.16",
    ),
)
_KNOWN_MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts", "gdn_norm_out")


def _no_module(x: Sizes) -> str:
    """First given module that this release cannot recompute, or empty."""
    late = {"shared_experts": "0.14", "gdn_norm_out": "0.19"}
    able = [name for name in _KNOWN_MODULES if x.case.since(late.get(name, RELEASES[0]))]
    return next((name for name in x.modules if name not in able), "")


def _captured(x: Sizes) -> set[str]:
    """Modules of a layer that a CUDA graph captures."""
    return {*x.words(GRAPH_SCOPE), *x.words(GRAPH_MODULES)}


def _selective(
    when: Callable[[Sizes], object], says: Said, *at: str, since: str = "0.12", until: str = RELEASES[-1]
) -> Rule:
    return Rule(
        lambda x: x.recompute == "selective" and x.given(MODULES) and when(x),
        says,
        (MODULES, *at),
        CONFIG,
        since=since,
        until=until,
    )


RECOMPUTED_MODULES = (
    _selective(_no_module, lambda x: f"{_no_module(x)} is no module that is recomputed"),
    _selective(
        lambda x: "moe_act" in x.modules and x.lacks(GROUPED),
        "moe_act is recomputed only with the grouped GEMM",
        GROUPED,
    ),
    _selective(
        lambda x: "mla_up_proj" in x.modules and x.lacks(LATENT),
        "mla_up_proj is recomputed only with multi-latent attention",
        LATENT,
    ),
    _selective(
        lambda x: "shared_experts" in x.modules and x.on(SHARED) and x.given(SHARED_SIZE),
        "shared experts that overlap with the dispatch are not recomputed",
        SHARED,
        since="0.14",
    ),
    _selective(
        lambda x: (
            {"moe_act", "layernorm"} & {*x.modules}
            and x.given(FP8)
            and (not x.case.since("0.14") or (x.known(FP8_RECIPE) and x.text(FP8_RECIPE) in ("", "delayed")))
        ),
        "moe_act and layernorm are not recomputed in fp8 with delayed scaling",
        FP8,
        FP8_RECIPE,
        since="0.13",
    ),
)
DISTRIBUTION = (
    Rule(
        lambda x: x.on(DISTRIBUTED) and x.known(TP) and x.count(TP) == 1,
        "saved activations are distributed over tensor ranks, of which there is one",
        (DISTRIBUTED, TP),
        of="cli",
    ),
    Rule(
        lambda x: x.on(DISTRIBUTED) and x.recompute != "full" and x.known(RECOMPUTE, ACTIVATIONS),
        "saved activations are distributed only with full recomputation",
        (DISTRIBUTED, RECOMPUTE, ACTIVATIONS),
        of="cli",
    ),
    Rule(
        lambda x: x.on(DISTRIBUTED) and x.sequence and x.recompute,
        "saved activations are distributed, or sequences are cut over the tensor ranks: not both",
        (DISTRIBUTED, SEQUENCE),
        CONFIG,
    ),
)
PREDICTION = (
    Rule(
        lambda x: (
            x.predicted
            and x.known(POSITIONS)
            and not x.on(ROTARY)
            and not x.on(FROM_CHECKPOINT)
            and x.text(POSITIONS) not in ("rope", "none")
        ),
        "layers for prediction need rotary position embeddings, or none",
        (MTP, POSITIONS),
        since="0.12",
        of="cli",
    ),
    Rule(
        lambda x: x.predicted and (x.count(CP) or 1) > 1,
        "layers for prediction do not go with context parallelism",
        (MTP, CP),
        since="0.12",
        until="0.13",
        of="cli",
    ),
    Rule(
        lambda x: x.predicted and x.on(LEGACY),
        "layers for prediction do not go with the legacy models",
        (MTP, LEGACY),
        since="0.12",
        until="0.17",
        of="cli",
    ),
)


def _precise(key: str) -> Rule:
    """Make a refusal of more bf16 layers at one end of an fp8 model than a rank has layers."""
    return Rule(
        lambda x: (
            x.on(BF16_ENDS)
            and x.given(FP8)
            and x.layers
            and x.p
            and not 0 <= (x.case.settings.whole(key) or 0) <= x.layers // x.p
        ),
        lambda x: f"{key} is {x[key].value}, and a rank has {(x.layers or 0) // (x.p or 1)} layers",
        (key, LAYERS, PP, BF16_ENDS),
        CONFIG,
        InteropCode.CONFIG_STAGES,
        since="0.12",
    )


PRECISE_ENDS = _precise(BF16_START), _precise(BF16_END)
RULES = (
    BATCH,
    WAYS,
    UNEVEN,
    PATTERNS,
    LAYOUTS,
    DIVIDED,
    GROUPED_MICROBATCHES,
    LOOPS,
    COMBINED_STEPS,
    WEIGHTS,
    DISPATCHES,
    EARLIER,
    SHARED_EXPERTS,
    DEFERRED,
    SHARDED,
    *ONE_STAGE,
    RECOMPUTED,
    RECOMPUTED_MODULES,
    DISTRIBUTION,
    PREDICTION,
    PRECISE_ENDS,
)


def refusals(x: Sizes) -> Iterator[Diagnostic]:
    """Yield the first broken row of every group."""
    for group in RULES:
        broken = next((rule for rule in group if rule.broken(x)), None)
        if broken is not None:
            yield broken.told(x)
