"""Small models in stages, and undivided training as the oracle for their gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, BATCH = 6, 3


class Block(nn.Module):
    """A residual block, so that gradients have two ways through a stage."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, 2 * WIDTH)
        self.back = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.back(torch.tanh(self.wide(self.norm(x))))
        return made


def blocks(stages: int, dtype: torch.dtype = torch.float64) -> list[nn.Module]:
    """Return the same stages on every process."""
    torch.manual_seed(stages)
    return [Block().to(dtype) for _ in range(stages)]


def batch(microbatches: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return the inputs and targets, microbatches one after the other."""
    made = torch.Generator().manual_seed(microbatches)
    shape = (microbatches * BATCH, WIDTH)
    return torch.randn(shape, generator=made, dtype=dtype), torch.randn(shape, generator=made, dtype=dtype)


def squared(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean()


def undivided(
    stages: Sequence[nn.Module], inputs: Sequence[Any], targets: Sequence[Any], loss: Callable[[Any, Any], Tensor]
) -> Tensor:
    """Return the mean loss over the microbatches; gradients accumulate in the stages, one backward per microbatch."""
    total = torch.zeros((), dtype=torch.float64)
    for given, target in zip(inputs, targets, strict=True):
        value = given
        for stage in stages:
            value = stage(*value) if isinstance(value, tuple) else stage(value)
        each = loss(value, target)
        (each / len(inputs)).backward()
        total += each.detach() / len(inputs)
    return total


def copies(stages: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the stages with the same weights, without gradients, in other tensors; shared ones stay shared."""
    made = copy.deepcopy(nn.ModuleList(stages))
    made.zero_grad()
    return list(made)


def error(found: nn.Module, expected: nn.Module) -> float:
    """Return max|g - g0| / max|g0|, the largest over the weights; a missing gradient counts as zeros."""
    worst = 0.0
    for mine, theirs in zip(found.parameters(), expected.parameters(), strict=True):
        reference = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
        made = torch.zeros_like(mine) if mine.grad is None else mine.grad
        scale = float(reference.abs().max()) if float(reference.abs().max()) else 1.0
        worst = max(worst, float((made - reference).abs().max()) / scale)
    return worst
