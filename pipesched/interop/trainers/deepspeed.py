"""Rules for the JSON configuration of DeepSpeed's pipeline engine.

    m            gradient_accumulation_steps
    batch        train_batch_size = train_micro_batch_size_per_gpu x m x replicas; two of the three are enough
    p            PipelineModule(num_stages) in DeepSpeed, not in the JSON
    order        1F1B, one stage on each rank

Source: DeepSpeed 0.19.8; each rule names its file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers import tables
from pipesched.interop.trainers.case import Case, Findings, Plan, wrong
from pipesched.interop.trainers.keys import judge
from pipesched.interop.trainers.settings import Setting, Settings, Unset

NAME = "DeepSpeed"
TABLES = tables.read("deepspeed")
KEYS = TABLES.keys()
_NUMBERS = _BATCH, _MICRO, _STEPS = TABLES.places["numbers"]


def part(settings: Settings) -> Settings:
    """Return the settings without null batch sizes; lists, whose values autotuning tries, become unknown."""
    lists = {x.key: replace(x, value=Unset("a list for autotuning")) for x in settings if isinstance(x.value, list)}
    absent = {key for key in _NUMBERS if settings(key).value is None}
    given = {x.key: lists.get(x.key, x) for x in settings if x.key not in absent}
    return replace(settings, given=given)


@dataclass(frozen=True)
class Batch(tables.Facts):
    """The three batch sizes; a missing one follows from the other two."""

    @property
    def p(self) -> int | None:
        """The number of ranks of the pipeline, given by the user."""
        return self.case.ranks

    @property
    def replicas(self) -> int | None:
        """The number of copies of the pipeline."""
        return self.processes // self.p if self.processes and self.p and self.processes % self.p == 0 else None

    @property
    def completed(self) -> tuple[int | None, int | None]:
        """The size of a microbatch in samples, and m; each None if unknown."""
        batch, micro, steps = map(self.count, _NUMBERS)
        each = _over(batch, self.replicas)
        if batch and micro:
            return micro, steps or _over(each, micro)
        if batch and steps:
            return _over(each, steps), steps
        alone = [key for key in _NUMBERS if self.has(key)] in ([_BATCH], [_MICRO])
        return (micro or each, 1) if alone and (batch or micro) else (micro, steps)

    def places(self, keys: tuple[str, ...]) -> list[Setting]:
        """Return the settings of these keys, except batch sizes that are not given."""
        return [self[key] for key in keys if self.has(key) or key not in _NUMBERS]


def plan(case: Case) -> Plan:
    """Return the schedule that the settings request, as far as they determine it."""
    x = Batch(case)
    if x.p == 1:
        return Plan(off="--p is 1")
    micro, steps = x.completed
    return Plan(name="1f1b", ranks=x.p, chunks=1, microbatches=steps, microbatch_size=micro)


def check(case: Case, found: Plan) -> Findings:
    """Apply every rule."""
    source = f"{case.named}, deepspeed/runtime/config"
    yield from judge(case, KEYS, f"{source}.py", closed=("pipeline",), refuses="ignores it")
    for setting in case.settings.repeated:
        where = f"{source}_utils.py: dict_raise_error_on_duplicate_keys"
        yield wrong(InteropCode.CONFIG_KEY, f"{setting.key} is given again", where, setting, help="keep one of them")
    if not found.off:
        yield from TABLES.findings(Batch(case))


def _over(count: int | None, by: int | None) -> int | None:
    """Return `count` divided by `by`; None if either is unknown, or the result is 0."""
    return count // by or None if count and by else None
