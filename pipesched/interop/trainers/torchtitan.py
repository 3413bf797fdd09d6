"""Rules for torchtitan: a TOML file up to 0.2.2, options of the command line in all releases.

    m            training.local_batch_size / parallelism.pipeline_parallel_microbatch_size
    stages       p x 1 or p x 2 by the name of the schedule; else (layers + 1 + 1) / pipeline_parallel_layers_per_stage
    placement    the V if the name is ZBVZeroBubble or DualPipeV, else the loop, also with a CSV

Source: torchtitan 0.2.0 to 0.3.0; each rule names its file. The statements about I and W under the chunked loss and
under selective checkpointing were measured: 0.3.0 on torch 2.15, its debug model, gloo.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import Case, Fact, Findings, Note, Plan, samples, wrong
from pipesched.interop.trainers.keys import FLAG, judge
from pipesched.interop.trainers.settings import Setting, Settings, Unset, short
from pipesched.interop.trainers.torch_names import judge_chunks, judge_name, judge_sizes, torch_name
from pipesched.interop.trainers.torchtitan_keys import (
    CHUNKED,
    CONFIG,
    CSV,
    DEGREE,
    EACH,
    FIRST_LESS,
    GLOBAL,
    KEYS,
    LAST_LESS,
    LAYERS,
    LOCAL,
    MAIN,
    MICRO,
    MICROBATCHES,
    MODEL_PARTS,
    NO_GRAPHS,
    REGISTERED,
    RELEASES,
    REPLICAS,
    SCHEDULE,
    SHARDS,
    P,
)
from pipesched.interop.trainers.torchtitan_rules import combinations
from pipesched.model.torch_versions import DEFAULT, NEWEST, TorchVersion

NAME = "torchtitan"
_SPLIT = "distributed/pipeline_parallel.py"


def _is_new(release: str) -> bool:
    """True for 0.3.0 and later, which read no TOML and run on torch 2.14 and later."""
    return RELEASES.index(release) >= RELEASES.index("0.3.0")


def torch_of(release: str) -> TorchVersion:
    """Version of torch assumed for a release; 0.3.0 and later need 2.14 or later."""
    return NEWEST if _is_new(release) else DEFAULT


def torch_least(release: str) -> tuple[int, int]:
    """First version of torch that runs a release: 2.14 for 0.3.0 and later."""
    return (2, 14) if _is_new(release) else (0, 0)


def releases_of(settings: Settings) -> tuple[str, ...]:
    """Releases that read such a text: TOML up to 0.2.2; a command line with a configuration's name from 0.3.0 on."""
    old = settings.kind == "toml" or "job.config_file" in settings or "model.flavor" in settings
    before = RELEASES.index("0.3.0")
    if settings.kind == "python":
        return RELEASES[before:]
    return RELEASES[:before] if old and CONFIG not in settings else RELEASES[before:]


def canonical(key: str) -> str:
    """Name of a key in the table; a command line has it as ``--parallelism.pipeline-parallel-degree``."""
    bare = key.removeprefix("--").replace("-", "_")
    return f"--{bare}" if bare in ("module", "config") else bare


def part(settings: Settings) -> Settings:
    """Settings with names of the table. A flag with ``no`` before its name, as on a command line, is set to false.

    Of a configuration in Python, only settings that concern the pipeline; checkpointing and loss by their classes.
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
    "loss": {"ChunkedLossWrapper": CHUNKED, "CrossEntropyLoss": "plain"},
}
_SECTIONS = "parallelism", "training", "compile"


def _of_python(settings: Settings) -> Iterator[Setting]:
    """Yield the settings of `_SECTIONS`, and of `_CLASSES` by the name of the class."""
    for x in settings:
        name = short(x.value).removesuffix(".Config")
        if x.key in _CLASSES and x.value is None:
            yield replace(x, value="none")
        elif x.key in _CLASSES:
            yield replace(x, value=_CLASSES[x.key].get(name, x.value))
        elif x.key.partition(".")[0] in _SECTIONS and "." in x.key:
            yield x


def plan(case: Case) -> Plan:
    """Schedule that the settings ask for."""
    case = _with_registered(case)
    settings = case.settings
    ranks = settings.count(DEGREE)
    name = settings.text(SCHEDULE)
    if ranks == 1:
        return Plan(off=f"{DEGREE} is 1")
    size, batch, row = settings.count(MICRO), settings.count(LOCAL), torch_name(name)
    whole = size is not None and batch is not None and batch % size == 0
    m = batch // size if whole and batch and size else None
    if case.since(MAIN):
        size, m = None, settings.count(MICROBATCHES)
    return Plan(
        name=row.name if row else name,
        ranks=ranks,
        chunks=_chunks(case, ranks),
        microbatches=m,
        microbatch_size=size,
        placement="vee" if row and row.vee else "loop",
        csv=settings(CSV) if settings.text(CSV) else None,
    )


def check(case: Case, found: Plan) -> Findings:
    """Apply every rule."""
    if case.since("0.3.0") and case.settings.kind == "toml":
        message = f"torchtitan {case.release} reads no TOML: its settings are options of the command line"
        source = "torchtitan 0.3.0, config/manager.py (#2386)"
        yield wrong(InteropCode.CONFIG_RELEASE, message, source, next(iter(case.settings)))
        return
    extended = next((x for x in case.settings if x.key == "job.custom_config_module" and x.value), None)
    if extended is not None:
        yield Note(f"{short(extended.value)} may add settings: names that are not known are not judged")
    yield from judge(
        case,
        KEYS,
        f"torchtitan {case.release}, config: the fields of its dataclasses",
        closed=() if extended else ("parallelism", "training"),
        refuses="refuses a name that it does not know",
    )
    case = _with_registered(case)
    if _takes_configuration(case) and str(case.settings(CONFIG).value) not in REGISTERED:
        yield Note(f"{_configuration(case)} is not known here: what it sets is open")
    if found.off:
        return
    settings = case.settings
    yield from judge_name(case, settings(SCHEDULE), found.csv)
    yield from _batch(case, found)
    yield from judge_sizes(case, found, settings(SCHEDULE), (settings(LOCAL), settings(MICRO)))
    yield from _stages(case, found)
    yield from _processes(case, found)
    yield from combinations(case, found)


def _takes_configuration(case: Case) -> bool:
    """True if the settings name a configuration, or are a command line of 0.3.0 or later, which must name one."""
    return CONFIG in case.settings or (case.settings.kind in ("shell", "cli") and case.since("0.3.0"))


def _configuration(case: Case) -> str:
    """Text for the named configuration, as in ``the configuration 'llama3_8b'``."""
    named = f" {short(case.settings(CONFIG).value)}" if CONFIG in case.settings else ""
    return f"the configuration{named}" if named else "the configuration, which the command does not name,"


def _with_registered(case: Case) -> Case:
    """Case with the defaults of the configuration that a command names; if it is not known, they are open."""
    row = REGISTERED.get(str(case.settings(CONFIG).value))
    if row is None and _takes_configuration(case):
        open = Unset(f"set by {_configuration(case)}")
        unknown = {key: open for key in KEYS if key.partition(".")[0] in _SECTIONS}
        return replace(case, settings=replace(case.settings, defaults={**case.settings.defaults, **unknown}))
    if row is None:
        return case
    own = {
        SCHEDULE: row.schedule,
        LOCAL: row.batch,
        "activation_checkpoint": row.checkpointing,
        NO_GRAPHS: row.no_graphs,
    }
    return replace(case, settings=replace(case.settings, defaults={**case.settings.defaults, **own}))


def _layers(case: Case) -> int | None:
    """Number of layers of the model, None if its name is in no table here."""
    row = REGISTERED.get(str(case.settings(CONFIG).value))
    if case.since("0.3.0"):
        return row.layers if row else None
    flavor = str(case.settings("model.flavor").value)
    flavors = LAYERS.get(str(case.settings("model.name").value), {})
    return flavors.get(flavor, flavors.get(flavor.partition("_")[0]))


def _weights(case: Case) -> tuple[int, int]:
    return case.settings.whole(FIRST_LESS) or 0, case.settings.whole(LAST_LESS) or 0


def _chunks(case: Case, ranks: int | None) -> int | None:
    """Stages per rank: from the list of model parts, the layers per stage, or the schedule's name."""
    row, each, parts = (
        torch_name(case.settings.text(SCHEDULE)),
        case.settings.count(EACH),
        case.settings(MODEL_PARTS).value,
    )
    if isinstance(parts, list) and ranks:
        return len(parts) // ranks if parts and len(parts) % ranks == 0 else None
    if each is None:
        return None if row is None or case.settings.open(EACH) else 1 if row.single else 2
    layers = _layers(case)
    if layers is None or not ranks:
        return None
    stages = math.ceil((layers + sum(_weights(case))) / each)
    return stages // ranks if stages % ranks == 0 else None


def _batch(case: Case, found: Plan) -> Findings:
    """Report m, the local batch divided by the microbatch size."""
    batch, size = case.settings.count(LOCAL), case.settings.count(MICRO)
    if case.since(MAIN):
        if found.microbatches:
            yield Fact("microbatches", f"{found.microbatches}: {case.settings(MICROBATCHES).shown}")
        return
    if batch is None or size is None:
        return
    if batch % size:
        message = f"a batch of {batch} is not divided by microbatches of {size}"
        source = f"torchtitan {case.release}, {_SPLIT}: build_pipeline_schedule"
        yield wrong(InteropCode.CONFIG_BATCH, message, source, case.settings(LOCAL), case.settings(MICRO))
        return
    default = "" if LOCAL in case.settings else ", its default"
    yield Fact("microbatches", f"{batch // size} of {samples(size)}: local_batch_size is {batch}{default}")
    if found.stages and found.csv is None and batch // size < found.stages:
        yield Note(
            f"{batch // size} microbatch{'es' * (batch > size)} for {found.stages} stages: some stages always wait"
        )


def _stages(case: Case, found: Plan) -> Findings:
    """Report stages, which follow from p, the schedule's name and the model's layers."""
    settings, ranks, row = case.settings, found.ranks, torch_name(found.name)
    if ranks is None or row is None:
        return
    source, layers = f"torchtitan {case.release}, {_SPLIT}: pipeline_llm", _layers(case)
    parts, each, (first, last) = settings(MODEL_PARTS).value, settings.count(EACH), _weights(case)
    stages = found.stages
    if isinstance(parts, list):
        places, said = (settings(MODEL_PARTS), settings(DEGREE)), f"{len(parts)} parts of the model"
        stages = len(parts)
    elif each is not None:
        if layers is None:
            yield Note("the layers of the model are not in the file: its stages are not judged")
            return
        stages = math.ceil((layers + first + last) / each)
        places = (settings(EACH), settings(DEGREE))
        said = f"{layers} layers, and {first} + {last} for the ends, by {each}: {stages} stages"
    else:
        places, said = (settings(DEGREE), settings(SCHEDULE)), f"{stages} stages"
    if stages is None:
        return
    if found_wrong := [*judge_chunks(row, stages, ranks, said, source, *places, name=(settings(SCHEDULE),))]:
        yield from found_wrong
        return
    if layers is not None and not isinstance(parts, list):
        least = (layers + first + last) // stages
        split = f"torchtitan {case.release}, {_SPLIT}: generate_llm_fqn_per_model_part"
        if stages > layers + first + last:
            message = f"{layers} layers, and {first} + {last} for the ends, do not fill {stages} stages"
            yield wrong(InteropCode.CONFIG_STAGES, message, split, *places)
            return
        if max(first, last) > least:
            key = FIRST_LESS if first > least else LAST_LESS
            message = f"{settings(key).shown}, but a stage has {least} of {layers} + {first} + {last} layers"
            yield wrong(InteropCode.CONFIG_STAGES, message, split, settings(key), *places)
            return
    yield Fact("stages", f"{stages} on {ranks} ranks, {stages // ranks} of each, on a {'V' if row.vee else 'loop'}")
    if layers is None:
        yield Note("the layers of the model are not known here: whether they fill its stages is not judged")


def _processes(case: Case, found: Plan) -> Findings:
    """Check parallel degrees and global batch against the number of processes, if that is known."""
    settings, world = case.settings, case.processes
    degrees = (REPLICAS, f"{P}context_parallel_degree", f"{P}tensor_parallel_degree", DEGREE)
    counts = [settings.count(key) for key in degrees]
    if world is None or None in counts:
        return
    each = math.prod(count for count in counts if count)
    shards = settings.whole(SHARDS)
    source = f"torchtitan {case.release}, distributed/parallel_dims.py: _validate"
    used = each * (shards if shards and shards > 0 else max(1, world // each))
    if used != world:
        message = f"the degrees make {used} processes; there are {world}"
        yield wrong(
            InteropCode.CONFIG_BATCH, message, source, *(settings(key) for key in (*degrees, SHARDS) if key in settings)
        )
        return
    batch, whole = settings.count(LOCAL), settings.count(GLOBAL)
    replicas = (counts[0] or 1) * (world // each)
    if batch and whole and whole % (batch * replicas):
        message = f"a global batch of {whole} is not divided by {batch} on {replicas} replicas"
        where = "trainer.py" if case.since("0.3.0") else "train.py"
        yield wrong(
            InteropCode.CONFIG_BATCH, message, f"torchtitan {case.release}, {where}", settings(GLOBAL), settings(LOCAL)
        )
