"""Rules for torchtitan: a TOML file up to 0.2.2, command-line options in all releases.

    m            training.local_batch_size / parallelism.pipeline_parallel_microbatch_size
    stages       p x 1 or p x 2 by the name of the schedule; else (layers + 1 + 1) / pipeline_parallel_layers_per_stage
    placement    the V if the name is ZBVZeroBubble or DualPipeV, else the loop, even with a CSV

Source: torchtitan 0.2.0 to 0.3.0; each rule names its file. The statements about I and W with the chunked loss and with
selective checkpointing were measured with the debug model of 0.3.0, on torch 2.15 and gloo.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers import tables
from pipesched.interop.trainers.case import Case, Findings, Note, Plan, wrong
from pipesched.interop.trainers.keys import FLAG, judge
from pipesched.interop.trainers.settings import Setting, Settings, Unset, short
from pipesched.interop.trainers.torch_names import TorchName, meant, torch_name

NAME = "torchtitan"
TABLES = tables.read("torchtitan")
KEYS, RELEASES = TABLES.keys(), TABLES.releases
_LAYERS, _REGISTERED = TABLES.made["layers"], TABLES.made["registered"]
_P = "parallelism."
_DEGREE, _SCHEDULE = f"{_P}pipeline_parallel_degree", f"{_P}pipeline_parallel_schedule"
_MICRO, _LOCAL = f"{_P}pipeline_parallel_microbatch_size", "training.local_batch_size"
_MODEL_PARTS, _EACH = f"{_P}module_fqns_per_model_part", f"{_P}pipeline_parallel_layers_per_stage"
_FIRST_LESS, _LAST_LESS = (f"{_P}pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
_REPLICAS, _SHARDS = f"{_P}data_parallel_replicate_degree", f"{_P}data_parallel_shard_degree"
_CONTEXT, _TENSOR = f"{_P}context_parallel_degree", f"{_P}tensor_parallel_degree"
_CONFIG, _CHUNKED = "--config", "ChunkedLossWrapper"


def torch_least(release: str) -> tuple[int, int]:
    """Return the first version of torch that can run a release: 2.14 from 0.3.0 on, any version before."""
    return (2, 14) if RELEASES.index(release) >= RELEASES.index("0.3.0") else (0, 0)


def releases_of(settings: Settings) -> tuple[str, ...]:
    """Return the releases that read such settings: TOML up to 0.2.2, the name of a configuration from 0.3.0 on."""
    old = settings.kind == "toml" or "job.config_file" in settings or "model.flavor" in settings
    before = RELEASES.index("0.3.0")
    if settings.kind == "python":
        return RELEASES[before:]
    return RELEASES[:before] if old and _CONFIG not in settings else RELEASES[before:]


def canonical(key: str) -> str:
    """Return a key as the table spells it: ``parallelism.x_y`` for the option ``--parallelism.x-y``."""
    bare = key.removeprefix("--").replace("-", "_")
    return f"--{bare}" if bare in ("module", "config") else bare


def part(settings: Settings) -> Settings:
    """Return the settings under the table's names. A flag with ``no`` before its name, as on a command line, is set to
    false.

    For a Python configuration, only settings that concern the pipeline are returned; the values of checkpointing and
    loss are words for their classes.
    """
    given = {}
    for x in _of_python(settings) if settings.kind == "python" else settings:
        section, _, name = canonical(x.key).rpartition(".")
        flag = f"{section}.{name.removeprefix('no_')}"
        off = name.startswith("no_") and flag in KEYS and KEYS[flag].kind is FLAG and x.value is True
        found = replace(x, key=flag, value=False) if off else x
        given[found.key] = found
    return replace(settings, given=given)


_CLASSES = {
    "activation_checkpoint": {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory-budget"},
    "loss": {"ChunkedLossWrapper": _CHUNKED, "CrossEntropyLoss": "plain"},
}
_SECTIONS = "parallelism", "training", "compile"


def _of_python(settings: Settings) -> Iterator[Setting]:
    """Yield the settings in `_SECTIONS`, and those in `_CLASSES` with a word for the class as their value."""
    for x in settings:
        name = short(x.value).removesuffix(".Config")
        if x.key in _CLASSES and x.value is None:
            yield replace(x, value="none")
        elif x.key in _CLASSES:
            yield replace(x, value=_CLASSES[x.key].get(name, x.value))
        elif x.key.partition(".")[0] in _SECTIONS and "." in x.key:
            yield x


@dataclass(frozen=True)
class Titan(tables.Facts):
    """The numbers of a torchtitan case."""

    meant = staticmethod(meant)

    @property
    def named(self) -> str:
        """The name of the schedule as written in the settings, or empty."""
        return self.text(_SCHEDULE)

    @cached_property
    def row(self) -> TorchName | None:
        """The row of the schedule class that the settings name."""
        return torch_name(self.named)

    @property
    def name(self) -> str:
        """The name of the schedule class, or empty."""
        return self.row.name if self.row else ""

    @property
    def csv(self) -> Setting | None:
        """The setting of the CSV whose order replaces the order of the class."""
        key = f"{_SCHEDULE}_csv"
        return self[key] if self.text(key) else None

    @property
    def p(self) -> int | None:
        """The number of ranks of the pipeline."""
        return self.count(_DEGREE)

    @property
    def size(self) -> int | None:
        """The number of samples per microbatch."""
        return None if self.since("main") else self.count(_MICRO)

    @property
    def batch(self) -> int | None:
        """The number of samples per step in one copy of the pipeline."""
        return self.count(_LOCAL)

    @property
    def m(self) -> int | None:
        """The number of microbatches."""
        if self.since("main"):
            return self.count(f"{_P}num_pp_microbatches")
        return self.batch // self.size if self.size and self.batch and self.batch % self.size == 0 else None

    @cached_property
    def layers(self) -> int | None:
        """The number of layers in the model, None if no table contains its name."""
        if self.since("0.3.0"):
            known = self.registered.get("layers")
            return known if isinstance(known, int) else None
        flavor = str(self.value("model.flavor"))
        flavors: dict[str, int] = _LAYERS.get(str(self.value("model.name")), {})
        return flavors.get(flavor, flavors.get(flavor.partition("_")[0]))

    @property
    def weight(self) -> int | None:
        """The number of layers to divide: the model's, plus those by which the first and last stage are shorter."""
        ends = (self.whole(key) or 0 for key in (_FIRST_LESS, _LAST_LESS))
        return None if self.layers is None else self.layers + sum(ends)

    @property
    def parts(self) -> list[object] | None:
        """The parts of the model, one for each stage, if they are listed."""
        given = self.value(_MODEL_PARTS)
        return given if isinstance(given, list) else None

    @property
    def each(self) -> int | None:
        """The number of layers per stage."""
        return self.count(_EACH)

    @cached_property
    def cut(self) -> int | None:
        """The number of stages, from parts, layers, or the schedule's name; it may not be divisible by the ranks."""
        if self.parts is not None:
            return len(self.parts)
        if self.each is not None:
            return None if self.weight is None else math.ceil(self.weight / self.each)
        return self.p * self.v if self.p and self.v else None

    @cached_property
    def v(self) -> int | None:
        """The number of stages per rank; None if unknown, or if it differs between ranks."""
        if self.each is None and (self.parts is None or self.p is None):
            return None if self.row is None or self.open(_EACH) else 1 if self.row.single else 2
        return self.cut // self.p if self.cut and self.p and self.cut % self.p == 0 else None

    @property
    def registered(self) -> dict[str, object]:
        """The values of the named configuration, empty if it is unknown."""
        return {**_REGISTERED.get(str(self.value(_CONFIG)), {})}

    @property
    def loss_key(self) -> str:
        """The key of the setting that determines the loss: ``loss``, or the configuration."""
        return "loss" if "loss" in self.case.settings else _CONFIG

    def places(self, keys: tuple[str, ...]) -> list[Setting]:
        """Return the settings of keys, including defaults. The key `cut` stands for the settings that determine the
        stages, `degrees` for the given parallel degrees.
        """
        by = _MODEL_PARTS if self.parts is not None else _EACH
        cut = (_DEGREE, _SCHEDULE) if self.parts is None and self.each is None else (by, _DEGREE)
        degrees = (_REPLICAS, _CONTEXT, _TENSOR, _DEGREE, _SHARDS)
        more = {
            "cut": cut,
            "degrees": tuple(key for key in degrees if key in self.case.settings),
            "loss" if self.loss_key == _CONFIG else _CONFIG: (),
        }
        return [self[one] for key in keys for one in more.get(key, (key,))]


def plan(case: Case) -> Plan:
    """Return the schedule that the settings request."""
    x = Titan(_with_registered(case))
    if x.p == 1:
        return Plan(off=f"{_DEGREE} is 1")
    return Plan(
        name=x.name or x.named or None,
        ranks=x.p,
        chunks=x.v,
        microbatches=x.m,
        microbatch_size=x.size,
        placement="vee" if x.row and x.row.vee else "loop",
        csv=x.csv,
    )


def check(case: Case, found: Plan) -> Findings:
    """Apply every rule."""
    if case.since("0.3.0") and case.settings.kind == "toml":
        message = f"torchtitan {case.release} does not read TOML: its settings are command-line options"
        source = "torchtitan 0.3.0, config/manager.py (#2386)"
        yield wrong(InteropCode.CONFIG_RELEASE, message, source, next(iter(case.settings)))
        return
    extended = next((x for x in case.settings if x.key == "job.custom_config_module" and x.value), None)
    if extended is not None:
        yield Note(f"{short(extended.value)} may add settings: unknown names are not judged")
    yield from judge(
        case,
        KEYS,
        f"torchtitan {case.release}, config: the fields of its dataclasses",
        closed=() if extended else ("parallelism", "training"),
        refuses="refuses unknown names",
    )
    case = _with_registered(case)
    if _takes_configuration(case) and str(case.settings(_CONFIG).value) not in _REGISTERED:
        yield Note(f"{_configuration(case)} and its settings are unknown")
    if not found.off:
        yield from TABLES.findings(Titan(case))


def _takes_configuration(case: Case) -> bool:
    """Return True if the settings name a configuration, or are a command line of 0.3.0 or later, which needs one."""
    return _CONFIG in case.settings or (case.settings.kind in ("shell", "cli") and case.since("0.3.0"))


def _configuration(case: Case) -> str:
    """Describe the named configuration, as in ``the configuration 'llama3_8b'``."""
    named = f" {short(case.settings(_CONFIG).value)}" if _CONFIG in case.settings else ""
    return f"the configuration{named}" if named else "the configuration, which the command does not name,"


def _with_registered(case: Case) -> Case:
    """Return the case with the defaults of its named configuration; those of an unknown configuration are unknown."""
    row = _REGISTERED.get(str(case.settings(_CONFIG).value))
    if row is None and _takes_configuration(case):
        open = Unset(f"set by {_configuration(case)}")
        own = {key: open for key in KEYS if key.partition(".")[0] in _SECTIONS}
    elif row is not None:
        own = {
            _SCHEDULE: row.get("schedule", "1F1B"),
            _LOCAL: row["batch"],
            "activation_checkpoint": row["checkpointing"],
            "training.disable_cuda_graphs": row.get("no_graphs", False),
        }
    else:
        return case
    return replace(case, settings=replace(case.settings, defaults={**case.settings.defaults, **own}))
