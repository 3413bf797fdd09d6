"""Combinations of settings that torchtitan, or torch when torchtitan builds a schedule, refuses or runs wrongly.

A row is a refusal, or a note if its code is None: condition, message, source, settings, first and last release.
Source: torchtitan 0.2.0 to 0.3.0, torch 2.10 to 2.15; each row names its file. The statements about I and W under the
chunked loss and under selective checkpointing were measured: 0.3.0 on torch 2.15, its debug model, gloo.

    compile      0.2 puts each compiled block into the stage (torch.compile, an OptimizedModule), which the constructors
                 of schedules with I and W look for and refuse; 0.3 compiles blocks in place, which they do not see
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipesched.diagnostics import AnyCode
from pipesched.interop.codes import InteropCode
from pipesched.interop.trainers.case import Case, Findings, Note, Plan, wrong
from pipesched.interop.trainers.torch_names import TorchName, torch_name
from pipesched.interop.trainers.torchtitan_keys import (
    CHUNKED,
    COMPILE,
    COMPILED,
    CONFIG,
    DEGREE,
    MODE,
    NO_GRAPHS,
    OVERLAP,
    REGISTERED,
    REPLICAS,
    SCHEDULE,
    SHARDS,
    P,
)

_AC = "activation_checkpoint"
_CONSTRUCTORS = "distributed/pipelining/schedules.py: _check_torch_compile_compatibility"


@dataclass(frozen=True)
class Titan:
    """A case and its schedule, with the properties that rules ask for."""

    case: Case
    found: Plan

    @property
    def row(self) -> TorchName | None:
        """Row of the schedule class that the settings name."""
        return torch_name(self.found.name)

    @property
    def split(self) -> bool:
        """True if the class runs its backward as I and W, and no CSV replaces its order."""
        return self.row is not None and self.row.split and self.found.csv is None

    @property
    def name(self) -> str:
        """Name of the schedule class, or empty."""
        return self.row.name if self.row else ""

    @property
    def loss(self) -> str:
        """Key of the setting that determines the loss: ``loss``, or the configuration."""
        return "loss" if "loss" in self.case.settings else CONFIG

    @property
    def unsharded(self) -> bool:
        """True if no parameters are sharded: one shard, no context parallelism."""
        settings = self.case.settings
        shards, context = settings.whole(SHARDS), settings.count(f"{P}context_parallel_degree")
        if shards == -1 and self.case.processes and self.found.ranks:
            tensor = settings.count(f"{P}tensor_parallel_degree") or 1
            shards = self.case.processes // ((settings.count(REPLICAS) or 1) * tensor * self.found.ranks)
        return shards == 1 and context == 1

    @property
    def chunked(self) -> bool:
        """True if the loss is computed in chunks."""
        registered = REGISTERED.get(str(self.case.settings(CONFIG).value))
        return self.case.settings(self.loss).value == CHUNKED or (registered is not None and registered.chunked)

    @property
    def unknown(self) -> bool:
        """True if loss and checkpointing are not known, since the configuration is not."""
        return self.loss == CONFIG and str(self.case.settings(CONFIG).value) not in REGISTERED

    @property
    def compiled(self) -> bool:
        """True if blocks of the model are compiled, and not the loss alone."""
        parts = self.case.settings(COMPILED).value
        model = parts is None or (isinstance(parts, list | str) and "model" in parts)
        return self.case.settings(COMPILE).value is True and model


@dataclass(frozen=True)
class Combination:
    """A refusal, or a note if it has no code. first, last: the first and the last release to which it applies."""

    when: Callable[[Titan], bool]
    says: Callable[[Titan], str]
    source: Callable[[Titan], str]
    at: tuple[str, ...] = ()
    code: AnyCode | None = InteropCode.CONFIG_COMBINATION
    first: str = "0.2.0"
    last: str | None = None
    help: Callable[[Titan], str] | None = None


def _titan(file: str) -> Callable[[Titan], str]:
    return lambda x: f"torchtitan {x.case.release}, {file}"


def _said(text: str) -> Callable[[Titan], str]:
    return lambda _: text


ROWS = (
    Combination(
        lambda x: (x.case.settings.count(REPLICAS) or 1) > 1 and x.unsharded,
        _said("torchtitan replicates by DDP without sharding only where there is no pipeline"),
        _titan("models/*/infra/parallelize.py: DDP has not supported > 1D parallelism"),
        (REPLICAS, DEGREE),
        last="0.2.2",
        help=lambda x: (
            "shard too: data_parallel_shard_degree from 2"
            + "; with a script of your own DDP misses the gradients of W (pytorch#144530)" * x.split
        ),
    ),
    Combination(
        lambda x: x.split and x.compiled,
        lambda x: f"{x.name} is not built with compiled blocks: torch {x.case.torch} refuses stages that hold one",
        lambda x: (
            f"torch {x.case.torch}, {_CONSTRUCTORS}; torchtitan {x.case.release}, models/*/infra/parallelize.py: "
            "apply_compile"
        ),
        (COMPILE, SCHEDULE),
        last="0.2.2",
        help=_said("enable = false, or a schedule whose backward is whole"),
    ),
    Combination(
        lambda x: x.split and x.compiled,
        lambda x: (
            f"{x.name} with blocks that are compiled in place: torch {x.case.torch} refuses compiled stages for it and "
            "does not see these; whether I and W of them are right was not tried"
        ),
        _titan("distributed/compile.py: apply_compile"),
        code=None,
        first="0.3.0",
    ),
    Combination(
        lambda x: (
            x.name == "DualPipeV"
            and x.case.settings(OVERLAP).value is True
            and (x.case.settings.count(f"{P}expert_parallel_degree") or 1) > 1
            and x.case.settings(MODE).value != "none"
        ),
        _said("DualPipeV overlaps experts with the pipeline only without activation checkpointing"),
        _titan("distributed/dual_pipe_v.py: get_dual_pipe_v_flag"),
        (MODE, SCHEDULE),
        first="0.2.1",
        last="0.2.2",
        help=_said('mode = "none"'),
    ),
    Combination(
        lambda x: x.split and x.case.settings(MODE).value not in ("none", None),
        lambda x: (
            f"{x.name} with activation checkpointing is right and slow: W computes a checkpointed block again for each "
            "of its groups of parameters (measured on torch 2.13; torchtitan#773)"
        ),
        _said(""),
        code=None,
        last="0.2.2",
    ),
    Combination(
        lambda x: not x.case.settings.open(NO_GRAPHS) and x.case.settings(NO_GRAPHS).value is not True,
        _said("CUDA graphs are on, and there are none with a pipeline"),
        _said("torchtitan 0.3.0, trainer.py: _validate_cuda_graphs"),
        (NO_GRAPHS, DEGREE),
        first="0.3.0",
        help=_said("give --training.disable_cuda_graphs"),
    ),
    Combination(
        lambda x: x.split and x.unknown,
        lambda x: (
            f"the configuration {x.case.settings(CONFIG).value} is not known here: its loss and checkpointing are not "
            "judged"
        ),
        _said(""),
        code=None,
        first="0.3.0",
    ),
    Combination(
        lambda x: x.split and not x.unknown and x.chunked,
        lambda x: (
            f"{x.name} under the chunked loss of {x.case.settings(x.loss).value}: the last norm gets no gradient, "
            "silently"
        ),
        _said("measured, torchtitan 0.3.0 on torch 2.15; components/loss.py: ChunkedLossWrapper"),
        (SCHEDULE, "loss", CONFIG),
        InteropCode.CONFIG_SILENT,
        first="0.3.0",
        help=_said("take a --config without ChunkedLossWrapper, or a schedule whose backward is whole"),
    ),
    Combination(
        lambda x: x.split and x.case.settings(_AC).value == "selective",
        lambda x: f"{x.name} under selective checkpointing raises: its backward runs as I and W",
        _said("measured, torchtitan 0.3.0 on torch 2.15; distributed/activation_checkpoint.py: SelectiveAC"),
        (_AC, SCHEDULE),
        first="0.3.0",
        help=_said("add activation_checkpoint:none"),
    ),
)


def combinations(case: Case, found: Plan) -> Findings:
    """Yield a finding for every row that these settings break."""
    x, order = Titan(case, found), case.releases.index
    for row in ROWS:
        low, high = order(row.first), order(row.last) if row.last else len(case.releases)
        if not low <= order(case.release) <= high or not row.when(x):
            continue
        if row.code is None:
            yield Note(row.says(x))
            continue
        keys = [key for key in row.at if key != "loss" or x.loss == "loss"]
        places = [case.settings(key) for key in keys if key != CONFIG or x.loss == CONFIG]
        yield wrong(row.code, row.says(x), row.source(x), *places, help=row.help(x) if row.help else None)
