"""Executes Megatron-core's own pipeline code on stand-ins for tensors; records each rank's compute, posts and waits.

    megatron:1f1b          forward_backward_pipelining_without_interleaving
    megatron:interleaved   forward_backward_pipelining_with_interleaving

The files of `REAL` run as installed; torch and all other modules are Fakes. Two functions that compute, `forward_step`
and `backward_step`, are replaced by ours, which only record their arguments. torch.distributed is replaced by
`megatron_rank`.

Ranks run one after the other, since no branch of this code depends on data. Options are the fields of the release's own
ModelParallelConfig, and `forward_only`, an argument of the functions.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, dataclass, fields, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

from pipesched.common.functions import Unknown
from pipesched.interop.frameworks.fakes import Fake, Finder
from pipesched.interop.frameworks.megatron_combined import FILES, LAYERS, OPTION, combined, modules, plans
from pipesched.interop.frameworks.megatron_rank import (
    PIPELINE,
    WORLD,
    Group,
    Rank,
    Size,
    Token,
    empty,
    messages,
    place_of,
    tensor,
    waits_later,
    words,
)
from pipesched.interop.frameworks.recording import FOLDERS, Nonsense, Options, Recorded, needed, version_of
from pipesched.interop.frameworks.streams import Event, calls

FUNCTIONS = {
    "1f1b": "forward_backward_pipelining_without_interleaving",
    "interleaved": "forward_backward_pipelining_with_interleaving",
}
REAL = (
    "parallel_state",
    "enums",
    "utils",
    "model_parallel_config",
    "process_groups_config",
    "pipeline_parallel.schedules",
    "pipeline_parallel.p2p_communication",
    "pipeline_parallel.utils",
    *FILES,
)
PEERS = 2
"""The number of pipelines that run if parts are recorded; ranks at the same position are expert peers."""
SILENT = ("torch.distributed", "megatron.core.pipeline_parallel")
"""The packages that send or compute: calling one of their Fakes is an error."""
TORCH = "2.13.0"


class Module:
    """A chunk of the model, whole or as a plan of its parts."""

    input: object = None

    def __init__(self, chunk: int, config: object, kind: object) -> None:
        self.chunk, self.config, self.model_type = chunk, config, kind

    def parameters(self) -> list[object]:
        return []

    def set_input_tensor(self, tensor: list[object]) -> None:
        """Set the input of the next plan."""
        self.input = tensor[0]

    def build_schedule_plan(self) -> None:
        """Mark the module as having plans, which our `forward_step_func` makes."""


class _Version(tuple[int, ...]):
    """A stand-in for packaging.version.Version."""

    def __new__(cls, text: object) -> _Version:
        parts = str(text).split("+")[0].split(".")
        return super().__new__(cls, [int("".join(c for c in part if c.isdigit()) or 0) for part in parts[:3]])


@dataclass(eq=False)
class Core:
    """The modules of one release, loaded once."""

    folder: Path
    version: str
    schedules: ModuleType
    state: ModuleType
    configuration: type
    torch: Fake
    pairs: bool  # its `forward_step` returns a pair of output and number of tokens
    finder: Finder
    plans: ModuleType | None
    modules: Mapping[str, ModuleType]

    def options(self) -> dict[str, object]:
        """Return the options with their defaults; the sizes are left out, since they are given as p, v and m."""
        own = {x.name: None if x.default is MISSING else x.default for x in fields(self.configuration)}
        return {"forward_only": False, "layers": LAYERS, **{name: x for name, x in own.items() if name not in SIZES}}


SIZES = ("pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "pipeline_dtype")


def record(name: str, options: Options) -> Recorded:
    """Record a schedule of the installed release on every rank."""
    given = {key: value for key, value in options.items() if key not in ("p", "v", "m", "max-ops")}
    if name not in FUNCTIONS:
        raise Unknown(f"megatron has no schedule {name}", f"it has {' and '.join(FUNCTIONS)}")
    core = installed()
    ranks, microbatches = needed(options, "p", "m")
    chunks = int(options.get("v", 1))
    if (name == "1f1b") != (chunks == 1):
        said = "1f1b has one stage per rank; interleaved has several"
        raise Unknown(f"{said}; v is {chunks}", "give --v 2 or more only with interleaved")
    if 2 * ranks * chunks * microbatches > int(options.get("max-ops", 10**9)):
        raise Nonsense("the order has more operations than the limit", "--max-ops raises it")
    settings = {key: _setting(core, key, value) for key, value in given.items()}
    sizes, asked = (ranks, chunks, microbatches), set[str]()
    pipelines = PEERS if settings.get(OPTION) else 1
    ran = [Rank(str(core.folder), ranks, here) for _ in range(pipelines) for here in range(ranks)]
    for rank in ran:
        asked |= run(core, name, sizes, settings, rank)
    made = Recorded.of(map(words, ran[:ranks]), core.version, later=any(map(waits_later, ran[:ranks])))
    lined = calls([(rank.streams, messages(rank)) for rank in ran], PEERS) if pipelines > 1 else []
    called = [[place_of(at) for at in row] for _, row in lined]
    notes = _notes(asked, ran, settings.get("layers", LAYERS))
    return replace(made, notes=notes, calls=[line for line, _ in lined], called=called)


def _notes(asked: set[str], ran: Sequence[Rank], layers: object) -> list[str]:
    """Return notes on the assumptions, and on the parts of the first pair of a forward and a backward."""
    off = f"; options that ModelParallelConfig lacks, assumed to be off: {', '.join(sorted(asked))}" if asked else ""
    notes = [f"assumed: torch {TORCH} over nccl; groups other than the pipeline's have one rank{off}"]
    if parts := next((rank.issued for rank in ran if rank.issued), []):
        notes.append(f"a pair as issued, assuming {layers} layers per chunk: {' '.join(parts)}")
    return notes


@cache
def installed() -> Core:
    """Find and load the first release on the path, once."""
    places = (Path(entry or ".").absolute() / "megatron" / "core" for entry in (*FOLDERS, *sys.path))
    folder = next((place for place in places if (place / "pipeline_parallel" / "schedules.py").is_file()), None)
    if folder is None:
        raise ImportError("megatron.core is missing, or has no pipeline_parallel/schedules.py")
    if not hasattr(sys, "stdlib_module_names"):
        raise Unknown("megatron-core needs Python 3.10 or later")
    return load(folder)


def _setting(core: Core, name: str, value: object) -> object:
    """Convert the value of an option to the type of its default."""
    known = core.options()
    if name not in known:
        near = get_close_matches(name, known, 1)
        said = f"did you mean {near[0]}?" if near else "options are the fields of its ModelParallelConfig"
        raise Unknown(f"megatron-core {core.version} has no option {name}", said)
    if isinstance(known[name], bool) and value not in (0, 1):
        raise Unknown(f"{name} must be true or false, not {value}")
    return bool(value) if isinstance(known[name], bool) else value


def _layers(said: object, stages: int) -> Callable[[int], int]:
    """Return the number of layers as a function of the stage. said: one number, or a layout such as ``Ett+t++L``."""
    each = [said] if isinstance(said, int) else [x.count("t") for x in str(said).split("+")]
    if len(each) not in (1, stages) or not (isinstance(said, int) or {*str(said)} <= {*"EtmL+"}) or min(each) < 0:
        raise Unknown(f"layers is {said}", f"give one number, or {stages} stages such as Ett+t+L, with one t per layer")
    return lambda stage: each[stage % len(each)]


def load(folder: Path) -> Core:
    """Load the pipeline code of a release, with Fakes for all other modules."""
    torch, distributed, packaging = Fake("torch"), Fake("torch.distributed", inert=False), Fake("packaging.version")
    network = Fake("torch.nn")
    vars(torch).update(__version__=TORCH, distributed=distributed, nn=network, empty=empty, tensor=tensor)
    vars(torch).update(Size=Size, Tensor=Token, int=int)
    vars(network)["Module"], vars(packaging)["Version"] = Module, _Version
    vars(distributed).update(
        ProcessGroup=Group,
        get_backend=lambda group=None: "nccl",
        get_global_rank=lambda group, rank: rank,
        is_initialized=lambda: True,
        is_available=lambda: True,
        get_process_group_ranks=lambda group: [*range(group.size())],
    )
    made = {"torch": torch, "torch.distributed": distributed, "torch.nn": network, "packaging.version": packaging}
    files = {f"megatron.core.{name}": folder / f"{name.replace('.', '/')}.py" for name in REAL}
    with Finder({name: path for name, path in files.items() if path.is_file()}, made, SILENT) as finder:
        schedules, state, configuration = (
            import_module(f"megatron.core.{name}")
            for name in ("pipeline_parallel.schedules", "parallel_state", "model_parallel_config")
        )
        found, loaded = plans(finder, Module), modules()
    forward = ast.parse(inspect.getsource(schedules.forward_step))
    return Core(
        folder,
        _release(folder),
        schedules,
        state,
        configuration.ModelParallelConfig,
        torch=torch,
        pairs=any(isinstance(x, ast.Return) and isinstance(x.value, ast.Tuple) for x in ast.walk(forward)),
        finder=finder,
        plans=found,
        modules=loaded,
    )


def _release(folder: Path) -> str:
    """Return the release number in `package_info.py`; the file is only parsed, since executing it would call git."""
    try:
        tree = ast.parse((folder / "package_info.py").read_text(encoding="utf-8"))
    except OSError:
        return version_of("megatron-core")
    said = {
        name.id: str(x.value.value)
        for x in tree.body
        if isinstance(x, ast.Assign) and isinstance(x.value, ast.Constant)
        for name in x.targets
        if isinstance(name, ast.Name)
    }
    return ".".join(said.get(name, "0") for name in ("MAJOR", "MINOR", "PATCH")) + said.get("PRE_RELEASE", "")


def run(core: Core, name: str, sizes: tuple[int, int, int], options: Mapping[str, object], rank: Rank) -> set[str]:
    """Run the real function for one rank; return the options that it reads but its configuration lacks."""
    ranks, chunks, microbatches = sizes
    _enter(core, rank, chunks if name == "interleaved" else None)
    asked: set[str] = set()

    def off(config: object, name: str) -> bool:
        if name.startswith("__"):
            raise AttributeError(name)
        asked.add(name)
        return False

    kind = type("Configuration", (core.configuration,), {"__getattr__": off})
    given = {
        "pipeline_model_parallel_size": ranks,
        "virtual_pipeline_model_parallel_size": chunks if name == "interleaved" else None,
        "pipeline_dtype": 1,
        **{key: value for key, value in options.items() if key not in ("forward_only", "layers")},
    }
    config = kind(**given)
    config.hidden_size = 1
    config.finalize_model_grads_func = rank.finalize
    model_type = getattr(getattr(core.schedules, "ModelType", None), "encoder_or_decoder", None)
    models = [Module(chunk, config, model_type) for chunk in range(chunks)]
    function = getattr(core.schedules, FUNCTIONS[name])
    steps = {"forward_step": _forward(core, rank), "backward_step": _backward(core, rank)}
    kept = {step: vars(core.schedules)[step] for step in steps}
    vars(core.schedules).update(steps)
    by_parts = bool(options.get(OPTION)) and core.plans is not None
    layers = _layers(options.get("layers", LAYERS), ranks * chunks)
    try:
        with combined(core, rank, config, layers) if by_parts else nullcontext() as step:
            function(
                forward_step_func=step,
                data_iterator=[None] * chunks if name == "interleaved" else None,
                model=models if name == "interleaved" else models[0],
                num_microbatches=microbatches,
                seq_length=1,
                micro_batch_size=1,
                forward_only=bool(options.get("forward_only", False)),
            )
    finally:
        vars(core.schedules).update(kept)
    return asked


def _enter(core: Core, rank: Rank, chunks: int | None) -> None:
    """Set torch.distributed and parallel_state to this rank; groups other than the pipeline's have one rank."""
    distributed, state = core.torch.distributed, core.state
    world, pipeline = Group(WORLD, rank.ranks, rank.here), Group(PIPELINE, rank.ranks, rank.here)
    vars(distributed).update(
        group=SimpleNamespace(WORLD=world),
        isend=rank.isend,
        irecv=rank.irecv,
        P2POp=rank.p2p_op,
        batch_isend_irecv=rank.batch_isend_irecv,
        get_world_size=lambda group=None: (group or world).size(),
        get_rank=lambda group=None: (group or world).rank(),
    )
    streams = rank.streams
    vars(core.torch.cuda).update(
        synchronize=rank.synchronize,
        current_stream=lambda device=None: streams.current,
        Stream=streams.made,
        stream=streams.entered,
        Event=lambda *given, **named: Event(streams),
    )
    for name, value in vars(state).items():
        if "_GROUP" in name and name.isupper() and (value is None or isinstance(value, Group)):
            setattr(state, name, Group(name))
    for name, value in {
        "_PIPELINE_MODEL_PARALLEL_GROUP": pipeline,
        "_PIPELINE_GLOBAL_RANKS": [*range(rank.ranks)],
        "_MODEL_PARALLEL_GROUP": Group("model", rank.ranks, rank.here),
        "_PIPELINE_MODEL_PARALLEL_DECODER_START": None,
        "_PIPELINE_MODEL_PARALLEL_SPLIT_RANK": None,
        "_VIRTUAL_PIPELINE_MODEL_PARALLEL_WORLD_SIZE": chunks,
        "_VIRTUAL_PIPELINE_MODEL_PARALLEL_RANK": None if chunks is None else 0,
    }.items():
        setattr(state, name, value)


def _forward(core: Core, rank: Rank) -> Callable[..., object]:
    names, latest = [*inspect.signature(core.schedules.forward_step).parameters], dict[int, int]()

    def forward_step(*given: object, **named: object) -> object:
        bound = {**dict(zip(names, given, strict=False)), **named}
        model, number = bound["model"], bound.get("current_microbatch")
        assert isinstance(model, Module)
        chunk = model.chunk
        latest[chunk] = microbatch = number if isinstance(number, int) else latest.get(chunk, -1) + 1
        stage = chunk * rank.ranks + rank.here
        rank.take(_one(bound["input_tensor"]), ("F", stage - 1, microbatch))
        rank.compute(("F", stage, microbatch))
        made = Token(("F", stage, microbatch))
        rank.made(made)
        output = [made] if isinstance(bound["input_tensor"], list) else made
        return (output, Fake("num_tokens")) if core.pairs else output

    return forward_step


def _backward(core: Core, rank: Rank) -> Callable[..., object]:
    names = [*inspect.signature(core.schedules.backward_step).parameters]

    def backward_step(*given: object, **named: object) -> object:
        bound = {**dict(zip(names, given, strict=False)), **named}
        output = _one(bound["output_tensor"])
        assert isinstance(output, Token) and output.label is not None
        _, stage, microbatch = output.label
        rank.take(_one(bound["output_tensor_grad"]), ("B", stage + 1, microbatch))
        rank.compute(("B", stage, microbatch))
        made = None  # the first stage sends no gradient
        if _one(bound["input_tensor"]) is not None:
            made = Token(("B", stage, microbatch))
            rank.made(made)
        return [made] if isinstance(bound["input_tensor"], list) else made

    return backward_step


def _one(tensor: object) -> object:
    return tensor[0] if isinstance(tensor, list | tuple) else tensor
