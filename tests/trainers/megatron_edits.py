"""Megatron-LM's own configurations, and random edits of them in which pipeline options are set, changed or dropped.

    tests/functional_tests/test_cases/**/model_config.yaml ──> Run(options, environment, processes)
    Run ──edits(seed)──> Run with one to three options of OPTIONS at other values

Nothing here knows a rule: values come from the small tables, each as likely as the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool

COUNTS = (1, 2, 3, 4)
FEW = (1, 2, 3, 4, 6, 8)
ON = (True,)

OPTIONS: Mapping[str, tuple[Value, ...]] = {
    "--num-layers": (2, 4, 5, 6, 8, 9, 12, 16),
    "--pipeline-model-parallel-size": (1, 2, 3, 4, 8),
    "--tensor-model-parallel-size": (1, 2, 4),
    "--context-parallel-size": (1, 2),
    "--micro-batch-size": FEW,
    "--global-batch-size": (4, 8, 12, 16, 20, 24, 32, 40, 64),
    "--num-layers-per-virtual-pipeline-stage": COUNTS,
    "--num-virtual-stages-per-pipeline-rank": COUNTS,
    "--decoder-first-pipeline-num-layers": FEW,
    "--decoder-last-pipeline-num-layers": FEW,
    "--account-for-embedding-in-pipeline-split": ON,
    "--account-for-loss-in-pipeline-split": ON,
    "--pipeline-model-parallel-layout": ("Et*3|(tt|)*2t*5L", "E|(t|)*12L", "Ett|tt|tt|ttL", "Ettt|tttL", "E(tt|)*3L"),
    "--no-overlap-p2p-communication": ON,
    "--overlap-p2p-communication-warmup-flush": ON,
    "--microbatch-group-size-per-virtual-pipeline-stage": (1, 2, 3, 4, 5, 8, 16),
    "--overlap-moe-expert-parallel-comm": ON,
    "--delay-wgrad-compute": ON,
    "--ep-overlap-early-attn-memory-release": ON,
    "--overlap-dispatch-backward-with-experts-wgrad": ON,
    "--moe-shared-expert-overlap": ON,
    "--recompute-granularity": ("full", "selective"),
    "--recompute-method": ("uniform", "block"),
    "--recompute-num-layers": (1, 2, 4),
    "--recompute-modules": ("core_attn", "layernorm", "mlp moe", "moe_act", "mla_up_proj", "shared_experts", "attn"),
    "--recompute-activations": ON,
    "--distribute-saved-activations": ON,
    "--moe-layer-recompute": ON,
    "--overlap-grad-reduce": ON,
    "--overlap-param-gather": ON,
    "--overlap-param-gather-with-optimizer-step": ON,
    "--use-distributed-optimizer": ON,
    "--tp-comm-overlap": ON,
    "--defer-embedding-wgrad-compute": ON,
    "--mtp-num-layers": (1, 2),
    "--pipeline-model-parallel-comm-backend": ("nccl", "ucc"),
    "--hybrid-context-parallel": ON,
    "--step-batch-size-schedule": ("0:8 400:16",),
    "--hybrid-layer-pattern": ("MM*-|MM*-", "M*|M*|M*|M*", "MM*-MM*-", "M|M|M*"),
    "--hybrid-override-pattern": ("MM*-|MM*-", "M*|M*|M*|M*", "MM*-MM*-"),
    "--use-torch-fsdp2": ON,
    "--ckpt-format": ("torch_dcp",),
}


@dataclass(frozen=True)
class Run:
    """A command: options in order, environment variables, processes. changed: description of the edit."""

    name: str
    options: Mapping[str, Value]
    environment: Mapping[str, str]
    world: int
    changed: str = ""

    @property
    def words(self) -> list[str]:
        """Return the options for the launcher: a flag alone, a bracketed list as its words."""
        return [word for key, value in self.options.items() for word in (key, *_words(value))]

    @property
    def text(self) -> str:
        """Return the YAML file of a functional test."""
        lines = [f"  {key}: {_yaml(value)}\n" for key, value in self.options.items()]
        return f"ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n{''.join(lines)}"


def _words(value: Value) -> list[str]:
    text = str(value).strip()
    if value is True or text == "true":
        return []
    if text.startswith("[") and text.endswith("]"):
        return text[1:-1].split()
    return [text] if text.startswith("(") else text.split()


def _yaml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


def runs(checkout: Path) -> Iterator[Run]:
    """Yield every configuration of the functional tests with options for the launcher."""
    import yaml

    folder = checkout / "tests" / "functional_tests" / "test_cases"
    for file in sorted(folder.glob("**/model_config.yaml")):
        try:
            read = yaml.safe_load(file.read_text("utf-8"))
        except yaml.YAMLError:
            continue
        options = read.get("MODEL_ARGS") if isinstance(read, dict) else None
        if isinstance(options, dict) and all(str(key).startswith("--") for key in options):
            given = {key: value for key, value in options.items() if value is not None}
            environment = {key: str(value) for key, value in (read.get("ENV_VARS") or {}).items()}
            yield Run(str(file.parent.relative_to(folder)), given, environment, 8)


def edits(taken: list[Run], seed: int, known: set[str]) -> Iterator[Run]:
    """Yield the endless edits of runs, with options of the release."""
    random_ = random.Random(seed)
    names = [name for name in OPTIONS if name in known]
    while True:
        run = random_.choice(taken)
        options, said = dict(run.options), []
        kept = {"--num-layers"} if "--use-checkpoint-args" in options else set()
        for _ in range(random_.choice((1, 1, 2, 3))):
            name = random_.choice(names)
            if name in options and name not in kept and random_.random() < 0.3:
                del options[name]
                said.append(f"without {name}")
            else:
                options[name] = random_.choice(OPTIONS[name])
                said.append(f"{name} {options[name]}")
        world = run.world if random_.random() < 0.9 else random_.choice((4, 8, 12, 16, 24))
        yield replace(run, options=options, world=world, changed=", ".join(said) + f", {world} processes")
