"""Megatron-LM and Megatron-core: options of the launcher, or fields of the core's configuration.

    m            global_batch_size / (micro_batch_size x replicas), replicas = processes / (p x tensor x context)
    v            by layers of a chunk, by chunks of a rank, or by the layout; none of them is 1F1B, without chunks
    order        interleaved, in groups of microbatch_group_size_per_vp_stage, p unless given
    messages     the launcher overlaps them if there are chunks; the core by itself posts them in batches

What is said of orders of messages follows from the order in which the code posts them, and was confirmed on real
processes; of NCCL itself nothing was measured. Source: Megatron-core 0.9.0 to 0.19.0, files as named with each rule.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pipesched.diagnostics import Code
from pipesched.trainers.case import Case, Fact, Findings, Note, Plan, samples, wrong
from pipesched.trainers.keys import Key, judge
from pipesched.trainers.megatron_keys import (
    BATCHED,
    CHUNKS,
    CLI,
    CORE,
    CP,
    EMBEDDING,
    FLUSH,
    GLOBAL,
    GROUP,
    IN_FIRST,
    IN_LAST,
    LAYERS,
    LAYOUT,
    LOSS,
    MICRO,
    MTP,
    NO_OVERLAP,
    OPTIONS,
    OVERLAP,
    PER_CHUNK,
    PP,
    STEPS,
    TP,
    VPP,
)
from pipesched.trainers.settings import Setting, Settings
from pipesched.transformer.megatron_layout import faults, stages_of

NAME = "Megatron-core"
_ARGUMENTS = "megatron/training/arguments.py"
_CONFIG = "megatron/core/transformer/transformer_config.py"
_PARALLEL = "megatron/core/model_parallel_config.py"
_SCHEDULES = "megatron/core/pipeline_parallel/schedules.py"
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")
_OLD_ENDS = "first_pipeline_num_layers", "last_pipeline_num_layers"


def is_cli(settings: Settings) -> bool:
    """Whether they are options of the launcher."""
    return settings.kind == "cli" or any("--" in setting.key for setting in settings)


def canonical(key: str) -> str:
    """The name of what a setting sets, without the sections around it."""
    name = key.rpartition("--")[2] if "--" in key else key.rpartition(".")[2]
    return OPTIONS.get(name, name.replace("-", "_"))


def keys_of(settings: Settings) -> dict[str, Key]:
    """The table of the kind of text."""
    return dict(CLI if is_cli(settings) else CORE)


def plan(case: Case) -> Plan:
    """What the settings say of the schedule."""
    settings, p = case.settings, case.settings.count(PP)
    if p == 1:
        return Plan(off=f"{PP} is 1")
    v, replicas = _chunks(case, p), _replicas(case, p)
    batch, size = settings.count(GLOBAL), settings.count(MICRO)
    m = None
    if batch and size and replicas and batch % (size * replicas) == 0:
        m = batch // (size * replicas)
    return Plan(
        name=None if v is None else "interleaved" if v > 1 else "1f1b",
        ranks=p,
        chunks=v,
        microbatches=m,
        microbatch_size=size,
        options=_options(case, v, m),
    )


def _posts(case: Case, v: int) -> tuple[bool, bool, bool]:
    """Whether messages overlap, go in batches, and overlap in warm-up and flush too."""
    settings = case.settings
    if is_cli(settings):
        overlap = not settings(NO_OVERLAP).value and v > 1
        return overlap, not overlap, settings(FLUSH).value is True
    overlap, batched, flush = (settings(key).value is True for key in (OVERLAP, BATCHED, FLUSH))
    return overlap, batched, flush


def _options(case: Case, v: int | None, m: int | None) -> tuple[str, ...]:
    """Fields for Megatron's own code, where the library's order, in groups of p, does not say all."""
    p, group = case.settings.count(PP) or 1, case.settings.count(GROUP)
    if v is None or v == 1:
        return ()
    overlap, batched, flush = _posts(case, v)
    usual = group in (None, p) and (m or 0) % p == 0 and not flush and (overlap or p > 2)
    named = {OVERLAP: overlap, BATCHED: batched} | ({FLUSH: True} if flush else {})
    own = [f"{key}={str(value).lower()}" for key, value in named.items()]
    return () if usual else (*own, *([f"{GROUP}={group}"] if group else []))


def check(case: Case, found: Plan) -> Findings:
    """Every rule."""
    cli = is_cli(case.settings)
    where = _ARGUMENTS if cli else f"{_PARALLEL}, {_CONFIG}"
    yield from judge(case, keys_of(case.settings), f"Megatron-LM core_v{case.release}.0, {where}")
    if found.off:
        return
    yield from _batch(case, found)
    yield from _sources_of_chunks(case)
    yield from _layers(case, found)
    yield from _groups(case, found)
    yield from _messages(case, found, cli=cli)


def _source(case: Case, file: str) -> str:
    return f"Megatron-LM core_v{case.release}.0, {file}"


def _counted(case: Case) -> int | None:
    """Layers, the embedding and the loss among them where they count as such."""
    layers = case.settings.count(LAYERS)
    more = sum(case.settings(key).value is True for key in (EMBEDDING, LOSS))
    return None if layers is None else layers + more


def _stages(case: Case) -> list[str] | str | None:
    """The stages of a layout, or what is wrong with it; None where there is none."""
    value = case.settings(LAYOUT).value
    if isinstance(value, list):
        letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
        return [
            "".join(letters.get(str(x).lower(), "?") for x in row) if isinstance(row, list) else "?" for row in value
        ]
    return stages_of(value) if isinstance(value, str) else None


def _chunks(case: Case, p: int | None) -> int | None:
    """v, None where it is not known."""
    settings, stages, layers = case.settings, _stages(case), _counted(case)
    if p is None or any(settings.open(key) for key in (PER_CHUNK, CHUNKS, LAYOUT, VPP)):
        return None
    if stages is not None:
        return len(stages) // p if isinstance(stages, list) and len(stages) % p == 0 else None
    if each := settings.count(PER_CHUNK):
        return layers // p // each if layers and layers % p == 0 and layers // p % each == 0 else None
    return settings.count(CHUNKS) or settings.count(VPP) or 1


def _replicas(case: Case, p: int | None) -> int | None:
    """Copies of the pipeline that share a batch."""
    tensor, context = case.settings.count(TP), case.settings.count(CP)
    if case.processes is None or not (p and tensor and context):
        return None
    return case.processes // (p * tensor * context) if case.processes % (p * tensor * context) == 0 else None


def _batch(case: Case, found: Plan) -> Findings:
    """m, by the batches and the processes."""
    settings, world, p = case.settings, case.processes, found.ranks
    tensor, context = settings.count(TP), settings.count(CP)
    each = p * tensor * context if p and tensor and context else None
    if STEPS in settings and GLOBAL in settings:
        message = "the batch is given twice: by steps, and as one number"
        help = "leave out --global-batch-size"
        yield wrong(
            Code.CONFIG_COMBINATION, message, _source(case, _ARGUMENTS), settings(STEPS), settings(GLOBAL), help=help
        )
    if world and each and world % each:
        message = f"{world} processes are not divided by {each} = {p} x {tensor} x {context} of a replica"
        places = [settings(key) for key in (PP, TP, CP) if key in settings]
        yield wrong(Code.CONFIG_BATCH, message, _source(case, _ARGUMENTS), *places)
        return
    if STEPS in settings and GLOBAL in settings:
        return
    batch, size = settings.count(GLOBAL), settings.count(MICRO)
    if batch is None or size is None:
        absent = [key for key in (MICRO, GLOBAL) if key not in settings]
        if absent:
            yield Note(f"{' and '.join(absent)} not in the file: m is not known")
        return
    replicas = _replicas(case, p)
    count = "" if replicas is None else f" on {replicas} replica{'s' * (replicas != 1)}"
    if batch % (size * (replicas or 1)):
        message = f"a batch of {batch} is not divided by microbatches of {size}{count}"
        source = _source(case, "megatron/core/num_microbatches_calculator.py")
        yield wrong(Code.CONFIG_BATCH, message, source, settings(GLOBAL), settings(MICRO))
    elif replicas is None:
        yield Note(f"{batch // size} of {samples(size)} for all replicas: give --processes N, and m is known")
    else:
        yield Fact("microbatches", f"{found.microbatches} of {samples(size)}: global_batch_size is {batch}{count}")


def _sources_of_chunks(case: Case) -> Findings:
    """One way of saying v at a time; none with a layout."""
    settings = case.settings
    ways = [settings(key) for key in (PER_CHUNK, CHUNKS, LAYOUT) if settings(key).value is not None]
    if len(ways) > 1:
        message = f"the chunks of a rank are given {len(ways)} times"
        yield wrong(Code.CONFIG_COMBINATION, message, _source(case, _ARGUMENTS), *ways, help="keep one of them")
    uneven = [settings(key) for key in (IN_FIRST, IN_LAST) if settings.count(key)]
    counted = [settings(key) for key in (EMBEDDING, LOSS) if settings(key).value is True]
    layout = [settings(LAYOUT)] if settings(LAYOUT).value is not None else []
    if layout and (uneven or counted):
        message = "a layout says where all layers are: nothing else may"
        yield wrong(Code.CONFIG_COMBINATION, message, _source(case, _CONFIG), *layout, *uneven, *counted)
    elif uneven and counted:
        message = "layers of the first or last stage are given, and the embedding or the loss is to count as one"
        yield wrong(
            Code.CONFIG_COMBINATION, message, _source(case, _CONFIG), *uneven, *counted, help="keep one of them"
        )
    elif uneven and settings.count(PER_CHUNK):
        message = "with an uneven first or last stage v is given by the chunks of a rank"
        help = "write --num-virtual-stages-per-pipeline-rank"
        yield wrong(
            Code.CONFIG_COMBINATION, message, _source(case, _ARGUMENTS), settings(PER_CHUNK), *uneven, help=help
        )


def _layers(case: Case, found: Plan) -> Findings:
    """Whether the layers go onto the stages."""
    settings, p, v, stages = case.settings, found.ranks, found.chunks, _stages(case)
    if p is None:
        return
    if stages is not None:
        source = _source(case, "megatron/core/transformer/pipeline_parallel_layer_layout.py")
        said = [stages] if isinstance(stages, str) else faults(stages, p, settings.count(LAYERS), settings.whole(MTP))
        placed = [settings(key) for key in (LAYOUT, PP, LAYERS) if key in settings]
        found_wrong = [wrong(Code.CONFIG_STAGES, f"the layout {fault}", source, *placed) for fault in said]
        yield from found_wrong
        if not found_wrong:
            yield Fact("stages", f"{len(stages)} on {p} ranks, {v} of each, by the layout")
        return
    layers = _counted(case)
    if layers is None:
        if LAYERS not in settings:
            yield Note("num_layers is not in the file: whether the layers go onto the stages is not judged")
        return
    ends = [settings(key) for key in (IN_FIRST, IN_LAST, *_OLD_ENDS) if settings.count(key)]
    more = [settings(key) for key in (EMBEDDING, LOSS) if settings(key).value is True]
    middle, ranks = layers - sum(settings.count(x.key) or 0 for x in ends), p - len(ends)
    left, between = (f"{middle} of {layers}", " between the ends") if ends else (str(layers), "")
    counted = ", the embedding and the loss among them," if len(more) == 2 else f", {more[0].key}," if more else ""
    source = _source(case, _ARGUMENTS if is_cli(settings) and not ends else _split_file(case, ends, more))
    places = (settings(LAYERS), settings(PP), *ends, *more)
    if middle < 0 or (middle > 0) > (ranks > 0) or (ranks > 0 == middle and case.since("0.16")):
        message = f"{left} layers are left for {ranks} ranks{between}"
        yield wrong(Code.CONFIG_STAGES, message, source, *places)
    elif ends and not ranks and not case.since("0.13"):
        message = "no rank is between the ends, and the layers are divided by their number"
        yield wrong(Code.CONFIG_STAGES, message, source, *places)
    elif ranks and middle % ranks:
        message = f"{left} layers{counted} do not go onto {ranks} ranks{between} in equal numbers"
        yield wrong(Code.CONFIG_STAGES, message, source, *places)
    elif ends and (v or 1) > 1 and not case.since("0.11"):
        message = "an uneven first or last stage and chunks do not go together"
        yield wrong(Code.CONFIG_COMBINATION, message, source, *ends, settings(PER_CHUNK))
    elif (each := settings.count(PER_CHUNK)) and ranks and middle // ranks % each:
        message = f"{middle // ranks} layers of a rank are not divided by {each} of a chunk"
        yield wrong(Code.CONFIG_STAGES, message, _source(case, _ARGUMENTS), settings(PER_CHUNK), *places)
    elif v is not None and v > 1 and (bad := [x for x in _by_rank(case, middle, ranks, ends) if x % v]):
        message = f"{bad[0]} layers of a rank are not divided by {v} chunks"
        ways = [settings(key) for key in (CHUNKS, VPP) if settings(key).value is not None]
        source = _source(case, _split_file(case, ends, more))
        yield wrong(Code.CONFIG_STAGES, message, source, *ways, *places)
    elif v is not None:
        yield Fact("stages", f"{p * v} on {p} ranks, {v} of each, of {layers} layers{counted}".rstrip(","))


def _split_file(case: Case, ends: list[Setting], more: list[Setting]) -> str:
    """Where the core divides the layers."""
    return _CONFIG if (ends or more) and case.since("0.11") else "megatron/core/transformer/transformer_block.py"


def _by_rank(case: Case, middle: int, ranks: int, ends: list[Setting]) -> list[int]:
    """Layers of each kind of rank."""
    return [*(case.settings.count(x.key) or 0 for x in ends), *([middle // ranks] if ranks else [])]


def _groups(case: Case, found: Plan) -> Findings:
    """What interleaving asks of m."""
    settings, p, v, m = case.settings, found.ranks, found.chunks, found.microbatches
    group = settings.count(GROUP) or p
    if p is None or v is None or group is None:
        return
    if v == 1:
        if settings.count(GROUP):
            yield Note(f"{GROUP} means nothing without chunks: v is 1")
        return
    source = _source(case, f"{_SCHEDULES}: forward_backward_pipelining_with_interleaving")
    places = [settings(key) for key in (GROUP, PP, GLOBAL) if key in settings]
    if group < p or (m is not None and group > m):
        limits = f"{p} ranks" if group < p else f"{m} microbatches"
        message = f"groups of {group} microbatches: there {'may be no fewer than' if group < p else 'are'} {limits}"
        yield wrong(Code.CONFIG_BATCH, message, source, *places)
    elif m is not None and m % group and (m % group < p or not case.since("0.10")):
        message = f"{m} microbatches in groups of {group} leave {m % group}, fewer than {p} ranks"
        yield wrong(Code.CONFIG_BATCH, message, source, *places, help=f"a multiple of {group} microbatches")


def _messages(case: Case, found: Plan, *, cli: bool) -> Findings:
    """How messages are posted: what is refused, what is silently wrong, and what hangs in one queue."""
    settings, p, v, m = case.settings, found.ranks, found.chunks, found.microbatches
    if p is None or v is None:
        return
    overlap, batched, flush = _posts(case, v)
    given = [settings(key) for key in ((NO_OVERLAP,) if cli else (OVERLAP, BATCHED))]
    if not cli and overlap and batched and v > 1:
        message = "messages cannot both overlap and be posted in batches"
        help = f"{BATCHED}: false"
        yield wrong(Code.CONFIG_COMBINATION, message, _source(case, _SCHEDULES), *given, help=help)
    elif not cli and overlap and v == 1:
        message = "messages overlap only if a rank has several chunks: v is 1"
        source = _source(case, f"{_SCHEDULES}: forward_backward_pipelining_without_interleaving")
        yield wrong(Code.CONFIG_COMBINATION, message, source, settings(OVERLAP), settings(VPP))
    elif flush and (not overlap or batched):
        message = "messages overlap in warm-up and flush only where they overlap at all" + (": v is 1" * (v == 1))
        yield wrong(Code.CONFIG_COMBINATION, message, _source(case, _PARALLEL), settings(FLUSH), *given)
    elif p == 2 and v > 1 and not overlap and cli:
        message = "2 ranks with chunks need overlapping messages: in a batch both go between the same two ranks"
        help = "leave out --no-overlap-p2p-communication"
        yield wrong(Code.CONFIG_COMBINATION, message, _source(case, _ARGUMENTS), settings(PP), *given, help=help)
    elif p == 2 and v > 1 and batched and (m is None or m > p):
        message = "2 ranks with chunks post messages in batches: a gradient is taken for an activation, silently"
        source = "Megatron-LM#1450 (PRs #1485, #5271), p2p_communication.py; confirmed on two processes"
        help = f"{OVERLAP}: true and {BATCHED}: false"
        yield wrong(Code.CONFIG_SILENT, message, source, settings(PP), *given, help=help)
    elif flush and p > 2 and p % 2 == 0:
        yield Note(
            "overlap in warm-up and flush with an even number of ranks is a cycle if all messages of a rank share one "
            "queue, as with device_id in init_process_group, which Megatron's launcher does not pass (seen on "
            "processes with one queue a rank, not on NCCL)"
        )
    if v > 1:
        how = (
            "overlap" + (", also in warm-up and flush" if flush else "")
            if overlap
            else "in batches"
            if batched
            else "one by one"
        )
        yield Fact("messages", how)


def part(settings: Settings) -> Settings:
    """Options of the launcher as such, a number of a YAML also where it is quoted; of several sections that set a
    pipeline, the first, whose settings count where others have the same names.
    """
    if is_cli(settings):
        spellings = {name: f"--{name.replace('_', '-')}" for name in CLI}
        spellings |= {name: f"--{option}" for option, name in OPTIONS.items()}
        given = {
            x.key: replace(x, value=int(x.value)) if isinstance(x.value, str) and _NUMBER.fullmatch(x.value) else x
            for x in settings
        }
        return replace(settings, kind="cli", given=given, spellings=spellings)
    homes = list(dict.fromkeys(x.key.rpartition(".")[0] for x in settings if canonical(x.key) == PP))
    kept = [x for x in settings if x.key.rpartition(".")[0] not in homes[1:]]
    kept.sort(key=lambda x: x.key.rpartition(".")[0] in homes)  # the last of a name counts
    return replace(settings, given={x.key: x for x in kept})
