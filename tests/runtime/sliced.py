"""A stage in which slices attend to earlier slices of the same sequence, like a transformer with a key cache.

A slice leaves to later ones a value without its graph. The gradients that later slices have for it come first,
for backwards run against the sequence, and are added where it was made:

    forward    k(j) = a(x(j))         y(j) = x(j) + tanh(w(x(j)) + c(k(0) + ... + k(j)))
    backward   of k(j): its own part, and what the slices behind it left for it
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pipesched.runtime import Runtime
from pipesched.stream import Instruction, Stream
from tests.runtime.models import WIDTH, batch, error, squared


class Kept:
    """The value that a slice keeps for later ones, and their gradients for it."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.asked: dict[int, Tensor] = {}


class Leave(torch.autograd.Function):
    """A value that later slices read: its gradient includes theirs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, kept: Kept) -> Tensor:
        ctx.kept = kept
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return sum(ctx.kept.asked.values(), gradients[0]), None


class Read(torch.autograd.Function):
    """Read a value and those of earlier slices."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, earlier: list[Kept], slice_: int) -> Tensor:
        ctx.earlier, ctx.slice = earlier, slice_
        made: Tensor = sum((kept.value for kept in earlier), value)
        return made.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        for kept in ctx.earlier:
            kept.asked[ctx.slice] = gradients[0]
        return gradients[0], None, None


class Attending(nn.Module):
    """microbatch: that of the next forward; -1 if only shapes are requested."""

    def __init__(self, slices: int) -> None:
        super().__init__()
        self.a, self.w, self.c = (nn.Linear(WIDTH, WIDTH).to(torch.float64) for _ in range(3))
        self.slices, self.microbatch = slices, -1
        self.kept: dict[int, list[Kept]] = {}

    def forward(self, x: Tensor) -> Tensor:
        earlier = self.kept.setdefault(self.microbatch // self.slices, []) if self.microbatch >= 0 else []
        value = self.a(x)
        kept = Kept(value.detach())
        total = Read.apply(Leave.apply(value, kept), list(earlier), len(earlier))
        earlier.append(kept)
        made: Tensor = x + torch.tanh(self.w(x) + self.c(total))
        return made

    def whole(self, sequence: list[Tensor]) -> list[Tensor]:
        """Return the slices of a sequence at once, by the formula: autograd sees all of it."""
        made, total = [], torch.zeros((), dtype=torch.float64)
        for x in sequence:
            total = total + self.a(x)
            made.append(x + torch.tanh(self.w(x) + self.c(total)))
        return made


def stages_of(count: int, slices: int) -> list[Attending]:
    """Return the same stages on every process."""
    torch.manual_seed(count)
    return [Attending(slices) for _ in range(count)]


def sequences(rank: int, stream: Stream, slices: int) -> dict[str, float]:
    """Run one step; return the errors of loss and gradients against whole sequences, and the share of a gradient that
    comes from other slices."""
    inputs, targets = batch(stream.microbatches)
    given, wanted = inputs.chunk(stream.microbatches), targets.chunk(stream.microbatches)
    expected = stages_of(stream.stages, slices)
    total = torch.zeros((), dtype=torch.float64)
    for low in range(0, stream.microbatches, slices):
        values = list(given[low : low + slices])
        for stage in expected:
            values = stage.whole(values)
        parts = (squared(value, target) for value, target in zip(values, wanted[low : low + slices], strict=True))
        total = total + sum(parts) / stream.microbatches
    total.backward()
    made = stages_of(stream.stages, slices)
    mine = {held: made[held[1]] for held in stream.held_by(rank)}

    def before(instruction: Instruction, index: int) -> None:
        for part in instruction.parts or (instruction,):
            if part.op == "F":
                for module in mine.values():
                    module.microbatch = part.microbatch

    example = inputs[: len(inputs) // stream.microbatches]
    runtime = Runtime(stream, dict(mine), squared, rank=rank, example=example, before=before)
    loss = runtime.step(inputs, targets)
    return {
        "error": max(error(module, expected[stage]) for (_, stage), module in mine.items()),
        "loss": abs(float(loss - total.detach())),
    }
