"""The model in one piece: the microbatches one after the other through all stages, gradients of their mean loss.

error of a tensor = max |g - g0| / max |g0|, with g0 from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipesched.runtime.nets import Net

RATE = 0.05
"""Of plain gradient descent, which both ways of training use."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a step is from the undivided one: the largest error, and the tensor that has it."""

    error: float
    tensor: str


class Undivided:
    """The whole model, trained step by step."""

    def __init__(self, net: Net, microbatches: int, device: torch.device | str = "cpu") -> None:
        self._net, self._microbatches, self._device = net, microbatches, device
        self.stages = [net.stage(index).to(device) for index in range(net.stages)]

    def step(self, number: int) -> float:
        """One step; leaves the gradients, and returns the mean loss."""
        total = 0.0
        inputs, targets = (x.to(self._device) for x in self._net.batch(number, self._microbatches))
        for x, target in zip(inputs.chunk(self._microbatches), targets.chunk(self._microbatches), strict=True):
            for stage in self.stages:
                x = stage(x)
            loss = self._net.loss(x, target) / self._microbatches
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return total

    def descend(self) -> None:
        """The optimizer's step."""
        descend(self.stages)


@torch.no_grad()
def descend(modules: Sequence[nn.Module]) -> None:
    """Gradient descent, after which no tensor has a gradient."""
    for module in modules:
        for weight in module.parameters():
            if weight.grad is not None:
                weight.sub_(RATE * weight.grad)
                weight.grad = None


def gradients(stage: int, module: nn.Module) -> dict[str, Tensor]:
    """Copies of the gradients of a stage, by ``STAGE.NAME``; zeros where there is none."""
    named = module.named_parameters()
    return {f"{stage}.{name}": torch.zeros_like(w) if w.grad is None else w.grad.clone() for name, w in named}


def difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Difference:
    """The largest error of all tensors; infinite where one is not a number, 0 without tensors."""
    errors = [Difference(_error(gradient, expected[name]), name) for name, gradient in found.items()]
    return max(errors, key=lambda x: x.error, default=Difference(0.0, ""))


def _error(found: Tensor, expected: Tensor) -> float:
    scale, distance = float(expected.abs().max()), float((found - expected).abs().max())
    if distance != distance:
        return math.inf
    return distance / scale if scale else (math.inf if distance else 0.0)
