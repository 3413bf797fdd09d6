"""DeepSpeed's pipeline engine: its JSON.

    m            gradient_accumulation_steps
    batch        train_batch_size = train_micro_batch_size_per_gpu x m x replicas; two of the three are enough
    p            PipelineModule(num_stages) in DeepSpeed, not in the JSON
    order        1F1B, one stage of each rank

Source: DeepSpeed 0.19.8, files as named with each rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipesched.diagnostics import Code
from pipesched.trainers.case import Case, Fact, Findings, Note, Plan, samples, wrong
from pipesched.trainers.keys import COUNT, FLAG, FROM_0, Key, judge
from pipesched.trainers.settings import Settings, Unset

NAME = "DeepSpeed"
_BATCH, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
_ZERO = "zero_optimization.stage"
_ENGINE = "deepspeed/runtime/pipe/engine.py"
_CONFIG = "deepspeed/runtime/config.py"

KEYS: Mapping[str, Key] = {
    _BATCH: Key(COUNT),
    _MICRO: Key(COUNT),
    _STEPS: Key(COUNT),
    _ZERO: Key(FROM_0, 0),
    "pipeline.stages": Key(),
    "pipeline.partition": Key(),
    "pipeline.seed_layers": Key(FLAG),
    "pipeline.activation_checkpoint_interval": Key(FROM_0),
    "pipeline.pipe_partitioned": Key(FLAG),
    "pipeline.grad_partitioned": Key(FLAG),
    "pipeline.use_reentrant": Key(FLAG),
}


def part(settings: Settings) -> Settings:
    """A list is what autotuning tries, so its value is open; a batch that is null is not given."""
    lists = {x.key: replace(x, value=Unset("a list for autotuning")) for x in settings if isinstance(x.value, list)}
    absent = {key for key in (_BATCH, _MICRO, _STEPS) if settings(key).value is None}
    given = {x.key: lists.get(x.key, x) for x in settings if x.key not in absent}
    return replace(settings, given=given)


def plan(case: Case) -> Plan:
    """What the settings say of the schedule."""
    p = case.ranks
    if p == 1:
        return Plan(off="--p is 1")
    micro, steps = _completed(case, p)
    return Plan(name="1f1b", ranks=p, chunks=1, microbatches=steps, microbatch_size=micro)


def check(case: Case, found: Plan) -> Findings:
    """Every rule."""
    settings = case.settings
    yield from judge(case, KEYS, f"{case.named}, {_CONFIG}", closed=("pipeline",), refuses="takes no notice of it")
    for setting in settings.repeated:
        message = f"{setting.key} is given again"
        source = f"{case.named}, deepspeed/runtime/config_utils.py: dict_raise_error_on_duplicate_keys"
        yield wrong(Code.CONFIG_KEY, message, source, setting, help="keep one of them")
    if found.off:
        return
    if found.ranks is None:
        yield Note("p is not in the JSON: it is PipelineModule(num_stages), so give --p N")
    stage = settings.whole(_ZERO)
    asked = found.ranks is not None or any(x.key.startswith("pipeline.") for x in settings)
    if stage is not None and stage >= 2 and not asked:
        yield Note(f"ZeRO {stage}, which the pipeline engine refuses: {_ENGINE}")
    elif stage is not None and stage >= 2:
        message = f"ZeRO {stage} splits gradients, which the pipeline engine refuses"
        source = f"DeepSpeed 0.19.8, {_ENGINE}: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"
        yield wrong(Code.CONFIG_COMBINATION, message, source, settings(_ZERO), help="stage 0 or 1")
    yield from _batch(case, found, asked=asked)


def _replicas(case: Case, p: int | None) -> int | None:
    """Copies of the pipeline."""
    world = case.processes
    return world // p if world and p and world % p == 0 else None


def _completed(case: Case, p: int | None) -> tuple[int | None, int | None]:
    """The size of a microbatch, and m: where one of three is missing it follows from the others."""
    settings, replicas = case.settings, _replicas(case, p)
    batch, micro, steps = (settings.count(key) for key in (_BATCH, _MICRO, _STEPS))
    if batch and micro and not steps:
        steps = batch // micro // replicas if replicas else None
    elif batch and steps and not micro:
        micro = batch // replicas // steps if replicas else None
    elif (
        _STEPS not in settings and (batch, micro) != (None, None) and sum(x in settings for x in (_BATCH, _MICRO)) == 1
    ):
        steps, micro = 1, micro or (batch // replicas if batch and replicas else None)
    return micro or None, steps or None


def _batch(case: Case, found: Plan, *, asked: bool) -> Findings:
    """The three numbers of a batch. asked: it is known to be for the pipeline engine."""
    settings, p = case.settings, found.ranks
    given = [settings(key) for key in (_BATCH, _MICRO, _STEPS) if key in settings]
    source = f"{case.named}, {_CONFIG}"
    world = case.processes
    if world and p and world % p:
        yield wrong(Code.CONFIG_BATCH, f"{world} processes are not divided by {p} of a replica", source)
        return
    if _BATCH not in settings and _MICRO not in settings and not asked:
        yield Note(f"neither {_BATCH} nor {_MICRO} is in the file: the program that reads it must give one")
        return
    if _BATCH not in settings and _MICRO not in settings:
        message = f"neither {_BATCH} nor {_MICRO} is given"
        yield wrong(Code.CONFIG_MISSING, message, source, *given, help=f"give {_MICRO} and {_STEPS}")
        return
    batch, micro, steps = (settings.count(key) for key in (_BATCH, _MICRO, _STEPS))
    if any(setting.key in settings and settings.count(setting.key) is None for setting in given):
        return
    replicas = _replicas(case, p)
    known = [number for number in (micro, steps, replicas) if number]
    product = 1
    for number in known:
        product *= number
    equal = batch == product if len(known) == 3 else batch is not None and batch % product == 0
    if batch and not equal:
        sizes = (("samples", micro), ("steps", steps), ("replicas", replicas))
        said = " x ".join(f"{number} {what}" for what, number in sizes if number)
        verb = "is not" if len(known) == 3 else "is no multiple of"
        yield wrong(Code.CONFIG_BATCH, f"a batch of {batch} {verb} {said}", source, *given)
        return
    if found.microbatches is None:
        yield Note("how many replicas there are is not in the file: give --processes N, and m is known")
    else:
        said = (
            settings(_STEPS).shown
            if _STEPS in settings
            else f"{_STEPS} follows from the others"
            if batch
            else f"{_STEPS} is 1, its default"
        )
        yield Fact("microbatches", f"{found.microbatches} of {samples(found.microbatch_size)}: {said}")
        if p and found.microbatches < p:
            count = f"{found.microbatches} microbatch{'es' * (found.microbatches > 1)}"
            yield Note(f"{count} for {p} ranks: some ranks always wait")
