"""Rules for Megatron-LM and Megatron-core: options of the launcher, or fields of the core's configuration.

    order        interleaved, in groups of microbatch_group_size_per_vp_stage (p unless given); a combined 1F1B if
                 experts overlap with the pipeline
    modules      `megatron.toml`: keys, rules, facts; `megatron_sizes`: p, v, m, layers; this module: the schedule

Statements about orders of messages follow from the order in which the code posts them, and were confirmed with real
processes; NCCL itself was not measured. Source: Megatron-core 0.9.0 to 0.19.0; each rule names its file.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pipesched.interop.trainers.case import Case, Findings, Plan
from pipesched.interop.trainers.keys import Key, judge
from pipesched.interop.trainers.megatron_sizes import PP, TABLES, Sizes, is_cli
from pipesched.interop.trainers.settings import Settings

NAME = "Megatron-core"
_GROUP = "microbatch_group_size_per_vp_stage"
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")
_OPTIONS = TABLES.made["options"]
_CLI, _CORE = TABLES.keys("both", "launcher"), TABLES.keys("both", "core")


def canonical(key: str) -> str:
    """Return the name of the field that a key sets, without the enclosing sections."""
    name = key.rpartition("--")[2] if "--" in key else key.rpartition(".")[2]
    return str(_OPTIONS.get(name, name.replace("-", "_")))


def keys_of(settings: Settings) -> dict[str, Key]:
    """Return the table of keys for settings of this kind: launcher or core."""
    return _CLI if is_cli(settings) else _CORE


def plan(case: Case) -> Plan:
    """Return the schedule that the settings request."""
    x = Sizes(case)
    if not x.pipelined:
        return Plan(off=f"{PP} is 1")
    return Plan(
        name=None if x.v is None else _name(x),
        ranks=x.p + x.encoder if x.p else None,
        chunks=x.v,
        microbatches=x.m,
        microbatch_size=x.count("micro_batch_size"),
        options=_options(x),
    )


def _name(x: Sizes) -> str | None:
    if x.on("overlap_moe_expert_parallel_comm") and x.looped:
        return "interleaved_overlap" if x.group == x.p else None
    return "interleaved" if x.looped else "1f1b"


def _options(x: Sizes) -> tuple[str, ...]:
    """Return the ``-D`` options for Megatron's own code if its order or messages differ from those of the library."""
    group = x.count(_GROUP)
    if x.v is None or x.v == 1 or x.on("overlap_moe_expert_parallel_comm"):
        return ()
    usual = group in (None, x.p) and (x.m or 0) % (x.p or 1) == 0 and not x.flush and (x.overlaps or x.p > 2)
    named = {"overlap_p2p_comm": x.overlaps, "batch_p2p_comm": x.batched} | (
        {"overlap_p2p_comm_warmup_flush": True} if x.flush else {}
    )
    own = [f"{key}={str(value).lower()}" for key, value in named.items()]
    return () if usual else (*own, *([f"{_GROUP}={group}"] if group else []))


def check(case: Case, found: Plan) -> Findings:
    """Apply every rule."""
    x = Sizes(case)
    where = (
        "training/arguments.py" if x.cli else "core/model_parallel_config.py, core/transformer/transformer_config.py"
    )
    yield from judge(case, keys_of(case.settings), f"Megatron-LM core_v{case.release}.0, megatron/{where}")
    yield from TABLES.findings(x)


def part(settings: Settings) -> Settings:
    """Return the settings of one pipeline.

    Launcher: quoted numbers in a YAML file become numbers. Core: of several sections that set a pipeline, only the
    first is kept; its settings take precedence over settings of the same name elsewhere.
    """
    if is_cli(settings):
        spellings = {name: f"--{name.replace('_', '-')}" for name in _CLI}
        spellings |= {name: f"--{option}" for option, name in _OPTIONS.items()}
        given = {
            x.key: replace(x, value=int(x.value)) if isinstance(x.value, str) and _NUMBER.fullmatch(x.value) else x
            for x in settings
        }
        return replace(settings, kind="cli", given=given, spellings=spellings)
    homes = list(dict.fromkeys(x.key.rpartition(".")[0] for x in settings if canonical(x.key) == PP))
    kept = [x for x in settings if x.key.rpartition(".")[0] not in homes[1:]]
    kept.sort(key=lambda x: x.key.rpartition(".")[0] in homes)  # if several have the same name, the last one counts
    return replace(settings, given={x.key: x for x in kept})
