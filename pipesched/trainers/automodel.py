"""NeMo AutoModel: a recipe in YAML.

    m            step_scheduler.local_batch_size / distributed.pipeline.pp_microbatch_size, at least p
    stages       p x 1 or p x 2 by the name of the schedule; else by layers_per_stage, of a model not in the file
    placement    the V where the name is ZBVZeroBubble, else the loop, also for DualPipeV

Source: NeMo AutoModel 0.7.0, files as named with each rule; recipes of v0.1.0 to v0.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipesched.diagnostics import Code
from pipesched.trainers.case import Case, Fact, Findings, Note, Plan, samples, wrong
from pipesched.trainers.keys import ANY, COUNT, FLAG, FROM_0, PARTS, TEXT, Key, judge, nowhere, one_of
from pipesched.trainers.torch_names import judge_chunks, judge_name, judge_sizes, torch_name

NAME = "NeMo AutoModel"
_D, _PIPELINE, _OLD = "distributed.", "distributed.pipeline.", "autopipeline."
_SIZE, _STRATEGY = "distributed.pp_size", "distributed.strategy"
_LOCAL, _GLOBAL = "step_scheduler.local_batch_size", "step_scheduler.global_batch_size"
_FUNCTIONAL = "components/distributed/pipelining/functional.py"
_RECIPE = "recipes/llm/train_ft.py"

_FIELDS: Mapping[str, Key] = {
    "pp_schedule": Key(TEXT, "1f1b", optional=True),
    "pp_schedule_csv": Key(TEXT, None, optional=True),
    "pp_microbatch_size": Key(COUNT, 1),
    "pp_batch_size": Key(COUNT, 1),
    "layers_per_stage": Key(COUNT, None, optional=True),
    "round_virtual_stages_to_pp_multiple": Key(one_of("up", "down"), None, optional=True),
    "module_fqns_per_model_part": Key(PARTS, None, optional=True),
    "patch_inner_model": Key(FLAG),
    "patch_causal_lm_model": Key(FLAG),
    "patch_stage_backward_maybe_with_nosync": Key(FLAG),
    "dtype": Key(),
    "scale_grads_in_schedule": Key(FLAG),
    "loss_fn": Key(),
    "pp_seq_len": Key(COUNT, None, optional=True),
    "pp_recv_buffer_pool": Key(FLAG),
    "pp_recv_buffer_pool_slack": Key(FROM_0),
}
KEYS: Mapping[str, Key] = {
    **{f"{_PIPELINE}{name}": key for name, key in _FIELDS.items()},
    **{f"{_OLD}{name}": nowhere(f"0.2.0 had the section; since 0.3.0 it is {_PIPELINE}{name}") for name in _FIELDS},
    f"{_OLD}_target_": nowhere("0.2.0 had the section; since 0.3.0 there is distributed.pipeline"),
    _SIZE: Key(COUNT, 1, optional=True),
    _STRATEGY: Key(TEXT),
    "distributed.tp_size": Key(COUNT, 1, optional=True),
    "distributed.cp_size": Key(COUNT, 1, optional=True),
    "distributed.ep_size": Key(ANY, 1, optional=True),
    "distributed.dp_size": Key(ANY, None, optional=True),
    "distributed.dp_replicate_size": Key(ANY, None, optional=True),
    _LOCAL: Key(COUNT, 1),
    _GLOBAL: Key(COUNT),
}


def plan(case: Case) -> Plan:
    """What the settings say of the schedule."""
    settings = case.settings
    p = settings.count(_SIZE)
    if p == 1 or (p is None and settings(_SIZE).value is None):
        return Plan(off=f"{_SIZE} is 1")
    name = settings.text(f"{_PIPELINE}pp_schedule")
    row, csv = torch_name(name), settings(f"{_PIPELINE}pp_schedule_csv")
    size, batch = settings.count(f"{_PIPELINE}pp_microbatch_size"), settings.count(_batch_key(case))
    parts = settings(f"{_PIPELINE}module_fqns_per_model_part").value
    v = None if row is None else 1 if row.single else 2
    if isinstance(parts, list) and p:
        v = len(parts) // p if len(parts) % p == 0 else None
    elif settings(f"{_PIPELINE}layers_per_stage").value is not None:
        v = 1 if row is not None and row.single else 2 if row is not None and row.vee else None
    return Plan(
        name=row.name if row else name,
        ranks=p,
        chunks=v,
        microbatches=batch // size if batch and size and batch % size == 0 else None,
        microbatch_size=size,
        placement="vee" if row is not None and row.name == "ZBVZeroBubble" else "loop",
        csv=csv if settings.text(csv.key) else None,
    )


def check(case: Case, found: Plan) -> Findings:
    """Every rule."""
    settings = case.settings
    section = _PIPELINE.rstrip(".")
    yield from judge(
        case,
        KEYS,
        f"NeMo AutoModel {case.release}, components/distributed/pipelining/config.py: PipelineConfig",
        closed=(section,),
        refuses="refuses a name that it does not know",
    )
    if found.off:
        if any(x.key.startswith(f"{section}.") for x in settings):
            yield Note(f"{found.off}: the section {section} means nothing")
        return
    source = f"NeMo AutoModel {case.release}, recipes/_dist_utils.py"
    if not any(x.key == section or x.key.startswith(f"{section}.") for x in settings):
        message = f"{settings(_SIZE).shown}, and there is no section {section}"
        help = f"add {section}: with pp_schedule and pp_microbatch_size"
        yield wrong(Code.CONFIG_MISSING, message, source, settings(_SIZE), help=help)
        return
    schedule = settings(f"{_PIPELINE}pp_schedule")
    yield from judge_name(case, schedule, found.csv)
    yield from _batch(case, found)
    if not (found.microbatches and found.ranks and found.microbatches < found.ranks):
        sizes = settings(_batch_key(case)), settings(f"{_PIPELINE}pp_microbatch_size")
        yield from judge_sizes(case, found, schedule, sizes)
    yield from _stages(case, found)
    if str(settings(_STRATEGY).value).lower() == "ddp":
        message = "DDP has no pipeline here"
        source = f"NeMo AutoModel {case.release}, components/distributed/mesh_utils.py: _require_size_one"
        yield wrong(Code.CONFIG_COMBINATION, message, source, settings(_STRATEGY), settings(_SIZE), help="fsdp2")
    if found.name == "DualPipeV" and found.csv is None:
        message = "DualPipeV wants its stages on a V, and they are built on a loop"
        source = f"NeMo AutoModel {case.release}, {_FUNCTIONAL}: the V is for ZBVZeroBubble alone"
        yield wrong(Code.CONFIG_COMBINATION, message, source, schedule)


def _batch_key(case: Case) -> str:
    """What is cut into microbatches: the recipe's batch replaces that of the section."""
    own = f"{_PIPELINE}pp_batch_size"
    return own if own in case.settings and _LOCAL not in case.settings else _LOCAL


def _batch(case: Case, found: Plan) -> Findings:
    """m, and that it is at least p."""
    settings, size_key = case.settings, f"{_PIPELINE}pp_microbatch_size"
    batch, size, p = settings.count(_batch_key(case)), settings.count(size_key), found.ranks
    if batch is None or size is None:
        return
    places = settings(_batch_key(case)), settings(size_key)
    if batch % size:
        message = f"a batch of {batch} is not divided by microbatches of {size}"
        yield wrong(Code.CONFIG_BATCH, message, f"NeMo AutoModel {case.release}, {_FUNCTIONAL}", *places)
    elif p and batch // size < p:
        message = (
            f"{batch // size} microbatch{'es' * (batch // size > 1)} for {p} ranks: the recipe wants as many as ranks"
        )
        yield wrong(Code.CONFIG_BATCH, message, f"NeMo AutoModel {case.release}, {_RECIPE}", *places, settings(_SIZE))
    else:
        yield Fact("microbatches", f"{batch // size} of {samples(size)}: {places[0].shown}")
    whole = settings.count(_GLOBAL)
    tensor, context = settings.count(f"{_D}tp_size") or 1, settings.count(f"{_D}cp_size") or 1
    replicas = case.processes // (p * tensor * context) if case.processes and p else 1
    if whole and replicas and whole % (batch * replicas):
        message = f"a global batch of {whole} is not divided by {batch}" + (f" on {replicas} replicas" * (replicas > 1))
        source = f"NeMo AutoModel {case.release}, components/training/step_scheduler.py"
        yield wrong(Code.CONFIG_BATCH, message, source, settings(_GLOBAL), settings(_LOCAL))


def _stages(case: Case, found: Plan) -> Findings:
    """Stages by the parts of the model, or by the name."""
    settings, p, row = case.settings, found.ranks, torch_name(found.name)
    parts = settings(f"{_PIPELINE}module_fqns_per_model_part")
    each = settings(f"{_PIPELINE}layers_per_stage")
    source = f"NeMo AutoModel {case.release}, {_FUNCTIONAL}"
    if p is None or row is None:
        return
    if isinstance(parts.value, list):
        said = f"{len(parts.value)} parts of the model"
        if found_wrong := [*judge_chunks(row, len(parts.value), p, said, source, parts, settings(_SIZE))]:
            yield from found_wrong
            return
    elif each.value is not None:
        yield Note("the layers of the model are not in the file: how many stages layers_per_stage makes is not judged")
        return
    if (v := found.chunks) is not None:
        yield Fact("stages", f"{p * v} on {p} ranks, {v} of each, on a {'V' if found.placement == 'vee' else 'loop'}")
