"""Rules for the JSON of DeepSpeed's pipeline engine.

    m            gradient_accumulation_steps
    batch        train_batch_size = train_micro_batch_size_per_gpu x m x replicas; two of the three are enough
    p            PipelineModule(num_stages) in DeepSpeed, not in the JSON
    order        1F1B, one stage on each rank

Source: DeepSpeed 0.19.8; each rule names its file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pipesched.diagnostics import AnyCode
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import Case, Fact, Findings, Note, Plan, samples, wrong
from pipesched.interop.trainers.keys import COUNT, FLAG, FROM_0, Key, judge
from pipesched.interop.trainers.settings import Setting, Settings, Unset

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
    """Settings with each list made open, since autotuning tries its values, and without batch sizes that are null."""
    lists = {x.key: replace(x, value=Unset("a list for autotuning")) for x in settings if isinstance(x.value, list)}
    absent = {key for key in (_BATCH, _MICRO, _STEPS) if settings(key).value is None}
    given = {x.key: lists.get(x.key, x) for x in settings if x.key not in absent}
    return replace(settings, given=given)


def plan(case: Case) -> Plan:
    """Schedule that the settings ask for."""
    p = case.ranks
    if p == 1:
        return Plan(off="--p is 1")
    micro, steps = _completed(case, p)
    return Plan(name="1f1b", ranks=p, chunks=1, microbatches=steps, microbatch_size=micro)


def check(case: Case, found: Plan) -> Findings:
    """Apply every rule."""
    settings = case.settings
    yield from judge(case, KEYS, f"{case.named}, {_CONFIG}", closed=("pipeline",), refuses="takes no notice of it")
    for setting in settings.repeated:
        message = f"{setting.key} is given again"
        source = f"{case.named}, deepspeed/runtime/config_utils.py: dict_raise_error_on_duplicate_keys"
        yield wrong(InteropCode.CONFIG_KEY, message, source, setting, help="keep one of them")
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
        yield wrong(InteropCode.CONFIG_COMBINATION, message, source, settings(_ZERO), help="stage 0 or 1")
    yield from _batch(case, found, asked=asked)


def _replicas(case: Case, p: int | None) -> int | None:
    """Number of copies of the pipeline."""
    world = case.processes
    return world // p if world and p and world % p == 0 else None


def _over(count: int | None, by: int | None) -> int | None:
    """`count` divided by `by`; None if either is not known, or the result is 0."""
    return count // by or None if count and by else None


def _completed(case: Case, p: int | None) -> tuple[int | None, int | None]:
    """Size of a microbatch, and m; if one of the three numbers is missing, it follows from the others."""
    settings = case.settings
    batch, micro, steps = (settings.count(key) for key in (_BATCH, _MICRO, _STEPS))
    each = _over(batch, _replicas(case, p))
    if batch and micro:
        return micro, steps or _over(each, micro)
    if batch and steps:
        return _over(each, steps), steps
    alone = [key for key in (_BATCH, _MICRO, _STEPS) if key in settings] in ([_BATCH], [_MICRO])
    return (micro or each, 1) if alone and (batch or micro) else (micro, steps)


@dataclass(frozen=True)
class Batch:
    """Numbers of a batch. asked: the configuration is known to be for the pipeline engine."""

    case: Case
    found: Plan
    asked: bool

    @property
    def given(self) -> list[Setting]:
        """Settings of the three batch numbers that are given."""
        return [self.case.settings(key) for key in (_BATCH, _MICRO, _STEPS) if key in self.case.settings]

    @property
    def none(self) -> bool:
        """True if neither the batch nor the microbatch size is given, one of which is required."""
        return not any(key in self.case.settings for key in (_BATCH, _MICRO))

    @property
    def open(self) -> bool:
        """True if a given number is not known."""
        return any(self.case.settings.count(setting.key) is None for setting in self.given)

    @property
    def factors(self) -> dict[str, int]:
        """Known factors of the batch, by name."""
        counts = (
            self.case.settings.count(_MICRO),
            self.case.settings.count(_STEPS),
            _replicas(self.case, self.found.ranks),
        )
        return {name: count for name, count in zip(("samples", "steps", "replicas"), counts, strict=True) if count}

    @property
    def unequal(self) -> bool:
        """True if the batch differs from the product of its factors, or is no multiple of the known ones."""
        batch, product = self.case.settings.count(_BATCH), math.prod(self.factors.values())
        whole = len(self.factors) == 3
        return batch is not None and (batch != product if whole else batch % product != 0)


_ROWS: tuple[tuple[Callable[[Batch], object], Callable[[Batch], str], AnyCode | None, str | None], ...] = (
    (
        lambda x: x.case.processes and x.found.ranks and x.case.processes % x.found.ranks,
        lambda x: f"{x.case.processes} processes are not divided by {x.found.ranks} of a replica",
        InteropCode.CONFIG_BATCH,
        None,
    ),
    (
        lambda x: x.none and not x.asked,
        lambda _: f"neither {_BATCH} nor {_MICRO} is in the file: the program that reads it must give one",
        None,
        None,
    ),
    (
        lambda x: x.none,
        lambda _: f"neither {_BATCH} nor {_MICRO} is given",
        InteropCode.CONFIG_MISSING,
        f"give {_MICRO} and {_STEPS}",
    ),
    (
        lambda x: not x.open and x.unequal,
        lambda x: (
            f"a batch of {x.case.settings.count(_BATCH)} {'is not' if len(x.factors) == 3 else 'is no multiple of'} "
            + " x ".join(f"{count} {name}" for name, count in x.factors.items())
        ),
        InteropCode.CONFIG_BATCH,
        None,
    ),
)
"""Condition, message, code (None for a note) and help; the first row whose condition holds is reported."""


def _batch(case: Case, found: Plan, *, asked: bool) -> Findings:
    """Report the first fault of a batch, else m."""
    x = Batch(case, found, asked)
    for when, says, code, help in _ROWS:
        if when(x):
            yield (
                Note(says(x)) if code is None else wrong(code, says(x), f"{case.named}, {_CONFIG}", *x.given, help=help)
            )
            return
    if not x.open:
        yield from _microbatches(x)


def _microbatches(x: Batch) -> Findings:
    """Report m and the setting that it comes from."""
    settings, m, p = x.case.settings, x.found.microbatches, x.found.ranks
    if m is None:
        yield Note("how many replicas there are is not in the file: give --processes N, and m is known")
        return
    follows = f"{_STEPS} follows from the others" if settings.count(_BATCH) else f"{_STEPS} is 1, its default"
    said = settings(_STEPS).shown if _STEPS in settings else follows
    yield Fact("microbatches", f"{m} of {samples(x.found.microbatch_size)}: {said}")
    if p and m < p:
        yield Note(f"{m} microbatch{'es' * (m > 1)} for {p} ranks: some ranks always wait")
