"""Boundaries between stages: the shape and dtype of every tensor, which both ends know before a message is posted.

    boundary[0] ─> stage 0 ─> boundary[1] ─> stage 1 ─> … ─> boundary[S-1] ─> stage S-1 ─> loss

The output of stage s is boundary[s + 1] for all its readers; a stage that reads several stages takes the tensors of
each in turn.

A receive needs its buffer before the message arrives, and transports do not check sizes: a short message leaves stale
values, a long message kills the process, and a different dtype is reinterpreted. Each microbatch has its own
boundaries, which differ only in shapes (`Runtime.expect`). Only tensors that can have a gradient return one; the others
(token ids, masks) only go forward.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipesched.runtime.execute.errors import BOUNDARY, Fault, Place, RunError
from pipesched.runtime.execute.replicas import passed_by, replicated

Plain: TypeAlias = tuple[Sequence[object], str]
"""A shape and dtype, as JSON."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        return cls(tuple(tensor.shape), tensor.dtype)

    def plain(self) -> Plain:
        """Return the JSON form, which `of_plain` reads."""
        return list(self.shape), str(self.dtype).removeprefix("torch.")

    @classmethod
    def of_plain(cls, data: Plain) -> TensorSpec:
        """Read a spec from JSON data.

        Raises:
            ValueError: if the data are not a shape and dtype.
        """
        shape, name = data
        dtype = getattr(torch, name, None)
        sizes = tuple(x for x in shape if isinstance(x, int) and x >= 0)
        if not isinstance(dtype, torch.dtype) or len(sizes) < len(shape):
            raise ValueError(f"{name!r:.40} {shape!r:.40} is not the dtype and shape of a tensor")
        return cls(sizes, dtype)

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def differentiable(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex

    def empty(self, device: torch.device) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=device)

    def zeros(self, device: torch.device) -> Tensor:
        return torch.zeros(self.shape, dtype=self.dtype, device=device)

    def __str__(self) -> str:
        """Return ``float32[4, 16]``."""
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


Boundary: TypeAlias = tuple[TensorSpec, ...]


def specs(tensors: Sequence[Tensor]) -> Boundary:
    return tuple(map(TensorSpec.of, tensors))


def gradients(boundary: Boundary) -> Boundary:
    """Return the specs of the tensors of a boundary that can have a gradient."""
    return tuple(spec for spec in boundary if spec.differentiable)


def text(boundary: Boundary) -> str:
    return ", ".join(map(str, boundary)) or "nothing"


def tensors_of(value: object, what: str) -> tuple[Tensor, ...]:
    """Return the inputs or outputs of a stage as a tuple of tensors.

    Raises:
        RunError: PS824 if they are neither a tensor nor a tuple of tensors.
    """
    made = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not made or not all(isinstance(x, Tensor) for x in made):
        kinds = ", ".join(type(x).__name__ for x in made) or "nothing"
        help = "pass a tensor or a tuple of tensors between stages"
        raise RunError(Fault(BOUNDARY, f"{what} is not a tensor or a tuple of tensors: {kinds}", None, (), help))
    return made


def check(found: Sequence[Tensor], expected: Boundary, what: str, place: Place | None = None) -> None:
    """Require tensors of the shapes and dtypes for which the other end has buffers.

    Raises:
        RunError: PS824 with the first difference.
    """
    got = specs(found)
    if got != expected:
        message = f"{what} is {text(got)}, but the other end expects {text(expected)}"
        help = "every microbatch has the shapes of `Runtime(example=…)`; `Runtime.expect(inputs)` declares other shapes"
        if [spec.shape for spec in got] == [spec.shape for spec in expected]:
            help = "the dtypes differ: put autocast around `Runtime(…)` as well as around `Runtime.step`"
        raise RunError(Fault(BOUNDARY, message, place, (), help))


def dry_forward(
    module: nn.Module, inputs: Boundary, device: torch.device, what: str, keywords: Mapping[str, object] | None = None
) -> Boundary:
    """Return the output boundary of a stage, found by one forward on zeros that changes neither buffers nor the random
    state.

    keywords: the keyword inputs of a microbatch; the stage gets the keywords that it takes.
    """
    kept = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    devices = [device] if device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices=devices),
        torch.no_grad(),
        passed_by(replicated(module)),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # warnings are repeated for the first microbatch
        output = module(*(spec.zeros(device) for spec in inputs), **taken(module, keywords or {}))
        for name, buffer in module.named_buffers():
            buffer.copy_(kept[name])
    torch.clear_autocast_cache()  # clears the cached casts of weights without a gradient
    return specs(tensors_of(output, what))


def taken(module: nn.Module, keywords: Mapping[str, object]) -> dict[str, object]:
    """Return the keyword inputs that a stage takes, detached."""
    inside = module.module if isinstance(module, DistributedDataParallel) else module
    parameters = signature(inside.forward).parameters
    every = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    mine = {name: value for name, value in keywords.items() if every or name in parameters}
    return {name: value.detach() if isinstance(value, Tensor) else value for name, value in mine.items()}


def boundaries_of(
    stages: Sequence[nn.Module],
    example: Tensor | Sequence[Tensor],
    device: torch.device | str = "cpu",
    keywords: Mapping[str, object] | None = None,
    reads: Mapping[int, Sequence[int]] | None = None,
) -> tuple[Boundary, ...]:
    """Return the boundaries of a whole model held by one process, from one microbatch of input.

    stages: all S stages in order. keywords: the keyword inputs of that microbatch. reads: for each stage that does not
    read just the previous stage, the stages that it reads, as in a stream. Returns S entries: the input, and the output
    of each stage but the last.
    """
    found = [specs(tensors_of(example, "the example"))]
    for number, module in enumerate(stages[:-1]):
        inputs = entering(found, (reads or {}).get(number, (number - 1,)))
        found.append(dry_forward(module, inputs, torch.device(device), f"the output of stage {number}", keywords))
    return tuple(found)


def entering(boundaries: Sequence[Boundary], read: Sequence[int]) -> Boundary:
    """Return the input boundary of a stage, made of the outputs of the stages that it reads."""
    return tuple(spec for source in read for spec in boundaries[source + 1])
