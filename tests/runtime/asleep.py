"""A stage that sleeps: F, I and W take the given number of seconds, but no CPU time."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn


class _Input(torch.autograd.Function):
    """Pass a value on; its backward is I."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *arrived: Tensor) -> tuple[Tensor, None]:
        time.sleep(ctx.seconds)
        return arrived[0], None


class Asleep(nn.Module):
    """Add a weight to the input; the input's gradient takes `for_input` seconds, the weight's `for_weight`."""

    def __init__(self, forward: float, for_input: float, for_weight: float) -> None:
        super().__init__()
        self.seconds = (forward, for_input, for_weight)
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, value: Tensor) -> Tensor:
        forward, for_input, for_weight = self.seconds
        if torch.is_grad_enabled():  # the dry forward need not wait
            time.sleep(forward)
        made: Tensor = _Input.apply(value, for_input) + _Input.apply(self.weight, for_weight)
        return made
