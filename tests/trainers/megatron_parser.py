"""Megatron-LM's own parser on a CPU: a checkout is imported once, and each command line is parsed in a fork of its own.

    options ──parse_args, validate_args──> args ──> TransformerConfig ──> number of microbatches ──> groups of ranks
            ──> layers of every stage ──> the first lines of the schedule that is chosen

    python -m tests.trainers.megatron_parser CHECKOUT    a case a line in, an answer a line out, both JSON

A case is ``{"options": [...], "environment": {...}, "world": 8}``; the answer has p, v, m where it is taken, else
``refused`` with the step and the message. Faked is what a CPU lacks: a device of generation 9, the version of
Transformer Engine, the processes, and modules that are not installed and decide nothing.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
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

FAKED = ("triton", "regex", "causal_conv1d", "einops", "mamba_ssm", "pydantic", "sentencepiece", "tiktoken", "transformers", "wandb")
SECONDS = 40
ENGINE = "2.14.0"


class _Faked(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of FAKED that are not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """A module whose every attribute is a mock."""
        return importlib.machinery.ModuleSpec(name, self) if name.partition(".")[0] in FAKED else None

    def create_module(self, spec: Any) -> ModuleType:
        """An empty package."""
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
    """Ranks that would talk to each other, seen from the first."""

    def __init__(self, ranks: Any) -> None:
        self.ranks = list(ranks)

    def size(self) -> int:
        """Return the number of its ranks."""
        return len(self.ranks)

    def rank(self) -> int:
        """Return the place of global rank 0, -1 where it has none."""
        return self.ranks.index(0) if 0 in self.ranks else -1

    def __getattr__(self, name: str) -> Any:
        return MagicMock(name=name)


class _Begun(Exception):  # noqa: N818
    """The schedule has passed its own checks and begins to run."""


def load(checkout: str) -> None:
    """Import the checkout, with fakes for what a CPU lacks."""
    import torch
    import torch._dynamo  # before triton is faked
    import torch.utils.flop_counter

    torch.compile = lambda model=None, **_: model if model is not None else lambda function: function  # type: ignore
    if not hasattr(typing, "override"):  # of Python 3.12
        typing.override = lambda method: method  # type: ignore[attr-defined]
    sys.meta_path.append(_Faked())
    sys.path.insert(0, checkout)
    torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(  # type: ignore[assignment]
        major=9, minor=0, total_memory=80 << 30, name="faked", multi_processor_count=132
    )
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.current_device = lambda: 0
    import megatron.core.utils as utils
    from packaging.version import Version

    utils._te_version = Version(ENGINE)
    utils.get_te_version = lambda: Version(ENGINE)
    import megatron.core.parallel_state
    import megatron.core.pipeline_parallel.schedules
    import megatron.training.arguments  # noqa: F401

    for module in tuple(sys.modules.values()):  # functions of Transformer Engine that are None without it
        for name, value in tuple(vars(module).items()):
            if value is None and name.startswith("fused_") and module.__name__.startswith("megatron"):
                setattr(module, name, MagicMock(name=name))


class _Found(Exception):  # noqa: N818
    """The parser is complete."""


def known() -> list[str]:
    """Every option of the launcher."""
    found: list[argparse.ArgumentParser] = []
    parse = argparse.ArgumentParser.parse_args

    def grab(parser: argparse.ArgumentParser, *_: object, **__: object) -> Any:
        found.append(parser)
        raise _Found

    argparse.ArgumentParser.parse_args = grab  # type: ignore[method-assign]
    import megatron.training.arguments as arguments

    try:
        arguments.parse_args()
    except _Found:
        pass
    argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign]
    return sorted(option for action in found[0]._actions for option in action.option_strings)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Everything that Megatron-LM decides of a case before it computes."""
    os.environ.update(case.get("environment", {}), WORLD_SIZE=str(case["world"]), RANK="0", LOCAL_RANK="0")
    sys.argv = ["pretrain_gpt.py", *case["options"]]
    sys.stderr = said = io.StringIO()
    step = ["parse_args"]
    try:
        return {"taken": True, **_decide(case, step)}
    except SystemExit as error:
        return {"taken": False, "step": step[0], "kind": "SystemExit", "message": said.getvalue()[-300:] or str(error.code)}
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


def _decide(case: dict[str, Any], step: list[str]) -> dict[str, Any]:
    import megatron.core.num_microbatches_calculator as calculator
    import megatron.training.arguments as arguments

    args = arguments.parse_args(ignore_unknown_args=case.get("unknown", False))
    step[0] = "validate_args"
    arguments.validate_args(args, {"tokenizer_type": "GPT2BPETokenizer"})
    step[0] = "config"
    try:
        from megatron.training.argument_utils import core_transformer_config_from_args
    except ImportError:
        core_transformer_config_from_args = arguments.core_transformer_config_from_args
    config = core_transformer_config_from_args(args)
    step[0] = "microbatches"
    more = () if not hasattr(args, "step_batch_size_schedule") else (args,)
    if more:
        calculator.init_num_microbatches_calculator(
            0,
            args.rampup_batch_size,
            args.global_batch_size,
            args.micro_batch_size,
            args.data_parallel_size,
            args.decrease_batch_size_if_needed,
            **_given(calculator.init_num_microbatches_calculator, args, "step_batch_size_schedule", "seq_length"),
        )
    else:
        calculator.init_num_microbatches_calculator(
            0,
            args.rampup_batch_size,
            args.global_batch_size,
            args.micro_batch_size,
            args.data_parallel_size,
            getattr(args, "decrease_batch_size_if_needed", False),
        )
    m = calculator.get_num_microbatches()
    step[0] = "groups"
    _groups(args)
    step[0] = "layers"
    if getattr(args, "encoder_num_layers", None) in (None, args.num_layers):
        _layers(args, config)
    step[0] = "schedule"
    name = _begin(config, args, m)
    v = args.virtual_pipeline_model_parallel_size or 1
    return {"p": args.pipeline_model_parallel_size, "v": v, "m": m, "schedule": name}


def _given(function: Any, args: Any, *names: str) -> dict[str, Any]:
    import inspect

    wanted = inspect.signature(function).parameters
    return {name: getattr(args, name) for name in names if name in wanted}


def _groups(args: Any) -> None:
    """Make the groups of all ranks, as the launcher does, with processes that are not there."""
    import inspect

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


def _layers(args: Any, config: Any) -> None:
    """Count the layers of every stage of every rank."""
    import inspect

    from megatron.core import parallel_state

    pattern = getattr(args, "hybrid_layer_pattern", None) or getattr(args, "hybrid_override_pattern", None)
    p, v = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size
    if pattern is not None:
        _segments(args, config, pattern, p, v)
        return
    from megatron.core.transformer.transformer_block import get_num_layers_to_build as count

    wanted = inspect.signature(count).parameters
    for rank in range(p):
        for chunk in range(v or 1):
            parallel_state.set_pipeline_model_parallel_rank(rank)
            if v:
                parallel_state.set_virtual_pipeline_model_parallel_rank(chunk)
            given = {"vp_stage": chunk if v else None, "pp_rank": rank}
            count(config, **{key: value for key, value in given.items() if key in wanted})


def _segments(args: Any, config: Any, pattern: str, p: int, v: int | None) -> None:
    try:
        from megatron.core.models.hybrid.hybrid_layer_allocation import select_pipeline_segment
    except ImportError:
        from megatron.core.ssm.mamba_hybrid_layer_allocation import select_pipeline_segment
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
    """Call the schedule that is chosen, up to its first forward."""
    import torch
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import p2p_communication, schedules

    function = schedules.get_forward_backward_func()

    def begun(*_: object, **__: object) -> None:
        raise _Begun

    zeros = torch.zeros
    torch.zeros = lambda *size, **more: zeros(*size, **{**more, "device": "cpu"})  # type: ignore[assignment]
    for name in ("get_tensor_shapes", "forward_step", "get_schedule_table", "combined_1f1b_schedule_for_no_pipelining"):
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
    try:
        function(
            forward_step_func=begun,
            data_iterator=[iter(()) for _ in chunks] if v else iter(()),
            model=chunks if v else chunks[0],
            num_microbatches=m,
            seq_length=args.seq_length,
            micro_batch_size=args.micro_batch_size,
            decoder_seq_length=args.decoder_seq_length,
        )
    except _Begun:
        pass
    combined = getattr(config, "overlap_moe_expert_parallel_comm", False)
    return function.__name__ + (" combined" if combined else "")


def in_fork(case: dict[str, Any]) -> dict[str, Any]:
    """The answer of a child, which ends with its case."""
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
    load(sys.argv[1])
    print(json.dumps({"options": known()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(in_fork(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
