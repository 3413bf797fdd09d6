"""Runs Megatron-LM's own parser on a CPU: a checkout is imported once, and each command line is parsed in its own
fork.

    options ──parse_args, validate_args──> args ──> TransformerConfig ──> number of microbatches ──> groups of ranks
            ──> layers of every stage ──> the first lines of the schedule that is chosen

    python -m tests.trainers.megatron_parser [CHECKOUT]    a case a line in, an answer a line out, both JSON

A case is ``{"options": [...], "environment": {...}, "world": 8}``, or without a launcher, of the Megatron-core that is
installed, ``{"fields": {...}, "m": 8, "world": 8}``. The answer has p, v and m where it is taken, else the step and the
message. It fakes what a CPU lacks: a device of generation 9, the version of Transformer Engine, the processes, and
modules that are not installed and do not matter.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import json
import os
import signal
import sys
import traceback
import typing
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

FAKED = (
    "triton",
    "regex",
    "einops",
    "pydantic",
    "causal_conv1d",
    "mamba_ssm",
    "sentencepiece",
    "tiktoken",
    "transformers",
)
SECONDS = 40
ENGINE = "2.14.0"


class _Faked(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The finder of modules of FAKED that are not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Return a module whose every attribute is a mock."""
        return importlib.machinery.ModuleSpec(name, self) if name.partition(".")[0] in FAKED else None

    def create_module(self, spec: Any) -> ModuleType:
        """Return an empty package."""
        module = _Mocks(spec.name)
        module.__path__ = []
        module.__version__ = "99"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to execute."""


class _Mocks(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class _Group:
    """The ranks of a group, as seen from the first."""

    def __init__(self, ranks: Any) -> None:
        self.ranks = list(ranks)

    def size(self) -> int:
        """Return the number of its ranks."""
        return len(self.ranks)

    def rank(self) -> int:
        """Return the place of global rank 0, -1 if it has none."""
        return self.ranks.index(0) if 0 in self.ranks else -1

    def __getattr__(self, name: str) -> Any:
        return MagicMock(name=name)


class _Begun(Exception):
    """The schedule has passed its own checks and begins to run."""


def load(checkout: str | None) -> None:
    """Import a checkout, or the installed Megatron-core, with fakes for missing hardware."""
    import torch
    import torch._dynamo  # before triton is faked
    import torch.utils.flop_counter

    torch.compile = lambda model=None, **_: model if model is not None else lambda function: function  # type: ignore
    inspect.getsource = functools.cache(inspect.getsource)  # the launcher reads its own docstrings in every parser
    if not hasattr(typing, "override"):  # of Python 3.12
        typing.override = lambda method: method  # type: ignore[attr-defined]
    sys.meta_path.append(_Faked())
    if checkout is not None:
        sys.path.insert(0, checkout)
    torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(  # type: ignore[assignment]
        major=9, minor=0, total_memory=80 << 30, name="faked", multi_processor_count=132
    )
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.current_device = lambda: 0
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign,assignment]
    import megatron.core.utils as utils
    from packaging.version import Version

    utils._te_version = Version(ENGINE)
    utils.get_te_version = lambda: Version(ENGINE)
    import megatron.core.parallel_state
    import megatron.core.pipeline_parallel.schedules

    if checkout is not None:
        import megatron.training.arguments  # noqa: F401

    for module in tuple(sys.modules.values()):  # functions of Transformer Engine that are None without it
        for name, value in tuple(vars(module).items()):
            if value is None and name.startswith("fused_") and module.__name__.startswith("megatron"):
                setattr(module, name, MagicMock(name=name))


class _Found(Exception):
    """The parser is complete."""


def known() -> list[str]:
    """Return every option of the launcher."""
    found: list[argparse.ArgumentParser] = []
    parse = argparse.ArgumentParser.parse_args

    def grab(parser: argparse.ArgumentParser, *_: object, **__: object) -> Any:
        found.append(parser)
        raise _Found

    argparse.ArgumentParser.parse_args = grab  # type: ignore[method-assign]
    import megatron.training.arguments as arguments

    with contextlib.suppress(_Found):
        arguments.parse_args()
    argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign]
    return sorted(option for action in found[0]._actions for option in action.option_strings)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return everything that Megatron-LM decides about a case before it computes."""
    os.environ.update(case.get("environment", {}), WORLD_SIZE=str(case["world"]), RANK="0", LOCAL_RANK="0")
    sys.argv = ["pretrain_gpt.py", *case.get("options", ())]
    sys.stderr = said = io.StringIO()
    step = ["parse_args"]
    try:
        return {"taken": True, **(_decide_fields(case, step) if "fields" in case else _decide(step))}
    except SystemExit as error:
        return {
            "taken": False,
            "step": step[0],
            "kind": "SystemExit",
            "message": said.getvalue()[-300:] or str(error.code),
        }
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/megatron/" in frame.filename]
        last = frames[-1] if frames else None
        where = "" if last is None else f"{last.filename.partition('/megatron/')[2]}: {last.name}, line {last.lineno}"
        line = "" if last is None else (last.line or "")
        return {
            "taken": False,
            "step": step[0],
            "kind": type(error).__name__,
            "message": (str(error) or line)[:500],
            "where": where,
        }


def _decide_fields(case: dict[str, Any], step: list[str]) -> dict[str, Any]:
    import torch
    from megatron.core.transformer.transformer_config import TransformerConfig

    step[0] = "config"
    fields = {
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_layers": 8,
        "num_moe_experts": 8,
        "add_bias_linear": False,
    }
    config = TransformerConfig(pipeline_dtype=torch.float32, **{**fields, **case["fields"]})
    sizes = {"world_size": case["world"], "seq_length": 64, "micro_batch_size": 1, "decoder_seq_length": 64}
    return _run(SimpleNamespace(**{**vars(config), **sizes}), config, case["m"], step)


def _decide(step: list[str]) -> dict[str, Any]:
    import megatron.core.num_microbatches_calculator as calculator
    import megatron.training.arguments as arguments

    args = arguments.parse_args()
    step[0] = "validate_args"
    arguments.validate_args(args, {"tokenizer_type": "GPT2BPETokenizer"})
    step[0] = "config"
    try:
        from megatron.training.argument_utils import core_transformer_config_from_args
    except ImportError:
        core_transformer_config_from_args = arguments.core_transformer_config_from_args
    config = core_transformer_config_from_args(args)
    step[0] = "microbatches"
    begin = calculator.init_num_microbatches_calculator
    names = inspect.signature(begin).parameters
    given = {name: getattr(args, name) for name in names if hasattr(args, name)}
    begin(**{**given, "rank": 0})
    if args.rampup_batch_size:
        calculator.update_num_microbatches(0, consistency_check=True)
        m = args.global_batch_size // (args.micro_batch_size * args.data_parallel_size)
    else:
        m = calculator.get_num_microbatches()
    return _run(args, config, m, step)


def _run(args: Any, config: Any, m: int, step: list[str]) -> dict[str, Any]:
    step[0] = "groups"
    _groups(args)
    step[0] = "layers"
    built = _layers(args, config) if getattr(args, "encoder_num_layers", None) in (None, args.num_layers) else None
    step[0] = "schedule"
    name = _begin(config, args, m)
    v = args.virtual_pipeline_model_parallel_size or 1
    p = args.pipeline_model_parallel_size + getattr(args, "encoder_pipeline_model_parallel_size", 0)
    answer = {"p": p, "v": v, "m": m, "schedule": name}
    return {**answer, "layers": args.num_layers, "built": built}


def _groups(args: Any) -> None:
    """Make the groups of all ranks, as the launcher does, with imagined processes."""
    import torch.distributed as processes
    from megatron.core import parallel_state

    processes.is_initialized = lambda: True
    processes.get_world_size = lambda group=None: args.world_size if group is None else group.size()
    processes.get_rank = lambda group=None: 0 if group is None else group.rank()
    processes.get_process_group_ranks = lambda group: group.ranks
    processes.get_global_rank = lambda group, rank: group.ranks[rank]
    processes.get_group_rank = lambda group, rank: group.ranks.index(rank)
    processes.barrier = lambda *_, **__: None
    processes.new_group = lambda ranks=None, **_: _Group(range(args.world_size) if ranks is None else ranks)
    wanted = inspect.signature(parallel_state.initialize_model_parallel).parameters
    given = {
        "tensor_model_parallel_size": args.tensor_model_parallel_size,
        "pipeline_model_parallel_size": args.pipeline_model_parallel_size,
        "virtual_pipeline_model_parallel_size": args.virtual_pipeline_model_parallel_size,
        "context_parallel_size": args.context_parallel_size,
        "expert_model_parallel_size": args.expert_model_parallel_size,
        "expert_tensor_parallel_size": getattr(args, "expert_tensor_parallel_size", None),
        "pipeline_model_parallel_comm_backend": getattr(args, "pipeline_model_parallel_comm_backend", None),
        "order": "tp-cp-ep-pp-dp" if getattr(args, "use_tp_pp_dp_mapping", False) else "tp-cp-ep-dp-pp",
    }
    parallel_state.initialize_model_parallel(**{key: value for key, value in given.items() if key in wanted})


def _layers(args: Any, config: Any) -> int | None:
    """Count the layers of every stage of every rank; None where they are those of a hybrid pattern."""
    from megatron.core import parallel_state

    pattern = getattr(args, "hybrid_layer_pattern", None) or getattr(args, "hybrid_override_pattern", None)
    p, v = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size
    if pattern is not None:
        _segments(config, pattern, p, v)
        return None
    from megatron.core.transformer.transformer_block import get_num_layers_to_build as count

    wanted, built = inspect.signature(count).parameters, 0
    for rank in range(p):
        for chunk in range(v or 1):
            parallel_state.set_pipeline_model_parallel_rank(rank)
            if v:
                parallel_state.set_virtual_pipeline_model_parallel_rank(chunk)
            given = {"vp_stage": chunk if v else None, "pp_rank": rank}
            built += max(0, count(config, **{key: value for key, value in given.items() if key in wanted}))
    return built


def _segments(config: Any, pattern: str, p: int, v: int | None) -> None:
    """Select the layers of every stage of a hybrid pattern, which earlier releases do not divide by stages."""
    select_pipeline_segment = None
    for name in (
        "megatron.core.models.hybrid.hybrid_layer_allocation",
        "megatron.core.ssm.mamba_hybrid_layer_allocation",
    ):
        with contextlib.suppress(ModuleNotFoundError):
            found = getattr(importlib.import_module(name), "select_pipeline_segment", None)
            select_pipeline_segment = select_pipeline_segment or found
    if select_pipeline_segment is None:
        return
    main = pattern.split("/")[0]
    for rank in range(p):
        for chunk in range(v or 1):
            group = SimpleNamespace(rank=lambda rank=rank: rank, size=lambda: p)
            select_pipeline_segment(
                main,
                group,
                chunk if v else None,
                config.num_layers_in_first_pipeline_stage,
                config.num_layers_in_last_pipeline_stage,
            )


def _begin(config: Any, args: Any, m: int) -> str:
    """Call the chosen schedule, up to its first forward."""
    import torch
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import p2p_communication, schedules

    function = schedules.get_forward_backward_func()

    def begun(*_: object, **__: object) -> None:
        raise _Begun

    zeros = torch.zeros
    torch.zeros = lambda *size, **more: zeros(*size, **{**more, "device": "cpu"})  # type: ignore[assignment]
    for name in (
        "get_tensor_shapes",
        "forward_step",
        "get_schedule_table",
        "combined_1f1b_schedule_for_no_pipelining",
        "hybrid_context_parallel_forward_backward",
    ):
        if hasattr(schedules, name):
            setattr(schedules, name, begun)
    communicator = getattr(p2p_communication, "P2PCommunicator", None)
    if communicator is not None:
        for name in ("recv_forward", "_communicate", "_communicate_shapes"):
            if hasattr(communicator, name):
                setattr(communicator, name, begun)
    else:
        for name in ("recv_forward", "_communicate"):
            setattr(p2p_communication, name, begun)
    v = args.virtual_pipeline_model_parallel_size
    chunks = [torch.nn.Identity() for _ in range(v or 1)]
    for chunk in chunks:
        chunk.config = config
        chunk.model_type = ModelType.encoder_or_decoder
    config.timers = None
    config.finalize_model_grads_func = None
    with contextlib.suppress(_Begun):
        function(
            forward_step_func=begun,
            data_iterator=[iter(()) for _ in chunks] if v else iter(()),
            model=chunks if v else chunks[0],
            num_microbatches=m,
            seq_length=args.seq_length,
            micro_batch_size=args.micro_batch_size,
            decoder_seq_length=args.decoder_seq_length,
        )
    combined = getattr(config, "overlap_moe_expert_parallel_comm", False)
    return function.__name__ + (" combined" if combined else "")


def in_fork(case: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a child, which ends with its case."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            signal.alarm(SECONDS)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            os.write(write, json.dumps(answer(case)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else {"taken": False, "step": "died", "message": f"no answer in {SECONDS} s"}


def main() -> None:
    """Answer every line."""
    checkout = sys.argv[1] if len(sys.argv) > 1 else None
    load(checkout)
    print(json.dumps({"options": known() if checkout else []}), flush=True)
    for line in sys.stdin:
        print(json.dumps(in_fork(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
