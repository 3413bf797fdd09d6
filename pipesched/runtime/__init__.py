"""Executes an instruction stream on torch.distributed. It needs the extra ``runtime`` and depends only on the stream,
not on the compiler.

    runtime = Runtime(stream, modules, loss, rank=rank, example=example)
    mean = runtime.step(inputs, targets)        # .grad is the same as in undivided training

The names below are loaded when they are first used, so that this package can be imported without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesched.runtime.execute.errors import Fault, RunError
    from pipesched.runtime.execute.executor import Evaluation, Runtime
    from pipesched.runtime.execute.guard import Guard, finite
    from pipesched.runtime.execute.messages import Message
    from pipesched.runtime.execute.recorder import Recorder
    from pipesched.runtime.execute.shapes import Boundary, TensorSpec, boundaries_of
    from pipesched.runtime.execute.torch_engine import torch_runtime

_WHERE = {
    "Boundary": "shapes",
    "Evaluation": "executor",
    "Fault": "errors",
    "Guard": "guard",
    "Message": "messages",
    "Recorder": "recorder",
    "RunError": "errors",
    "Runtime": "executor",
    "TensorSpec": "shapes",
    "boundaries_of": "shapes",
    "finite": "guard",
    "torch_runtime": "torch_engine",
}

__all__ = [
    "Boundary",
    "Evaluation",
    "Fault",
    "Guard",
    "Message",
    "Recorder",
    "RunError",
    "Runtime",
    "TensorSpec",
    "boundaries_of",
    "finite",
    "torch_runtime",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'pipesched.runtime' has no attribute {name!r}")
    return getattr(import_module(f"pipesched.runtime.execute.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
