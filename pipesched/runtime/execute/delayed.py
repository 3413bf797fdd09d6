"""Trains with delayed gradients, without a pipeline, for comparison with a run.

Batch after batch, every microbatch runs through all stages, each stage with the weight version that the stream's rule
names, and the gradients are those of the resulting loss. With `latest` they are not the gradients of any loss: each
stage keeps the activations of the version that its forward read, and its backward reads the weights of a later version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pipesched.runtime.execute.nets import Net
from pipesched.runtime.execute.weights import batches
from pipesched.stream import Stream

Graph: TypeAlias = tuple[list[Tensor], list[Tensor], Tensor]


def snapshot(module: nn.Module) -> list[Tensor]:
    """Return a copy of a module's weights."""
    return [weight.detach().clone() for weight in module.parameters()]


class Delayed:
    """The undivided model, in which each F and B reads the same weight version as in the stream."""

    def __init__(
        self, net: Net, stream: Stream, device: torch.device | str, descend: Callable[[nn.Module], None]
    ) -> None:
        self._net, self._stream, self._device, self._descend = net, stream, device, descend
        self.stages = [net.stage(index).to(device) for index in range(net.stages)]
        for stage in stream.frozen:
            self.stages[stage].requires_grad_(requires_grad=False)
        lists = [stream.ranks[rank] for rank in stream.placement[0].ranks]
        self._batch = [batches(own, stage) for stage, own in enumerate(lists)]
        self._at = [_seen(stream, stage) for stage in range(net.stages)]

    def step(self, number: int) -> tuple[float, list[list[list[Tensor]]]]:
        """Train on the batches of one step; return the mean loss, and every version of the weights by stage."""
        m = self._stream.microbatches
        inputs, targets = (self._net.cut(x.to(self._device)) for x in self._net.batch(number, m))
        history = [[snapshot(stage)] for stage in self.stages]
        trained = next(batch for batch in self._batch if batch)
        total = 0.0
        for t in range(max(trained.values()) + 1):
            taken = [i for i in range(m) if trained[i] == t]
            for i in taken:
                total += self._microbatch(i, inputs[i], targets[i], history)
            for stage, module in enumerate(self.stages):
                if self._batch[stage]:
                    for weight in module.parameters():
                        weight.grad = None if weight.grad is None else weight.grad / len(taken)
                    self._descend(module)
                    history[stage].append(snapshot(module))
        return total / m, history

    def _microbatch(self, i: int, x: Tensor, target: Tensor, history: list[list[list[Tensor]]]) -> float:
        """Add the gradients of one microbatch to the gradients of the weights; return its loss."""
        made, graphs = {-1: x}, []
        for stage in range(len(self.stages)):
            graphs.append(self._forward(stage, history[stage][self._versions(stage, i)[0]], made))
            made[stage] = graphs[-1][2]
        last = made[len(self.stages) - 1].detach().requires_grad_()
        loss = self._net.loss(last, target)
        arriving: dict[int, Tensor] = {len(self.stages) - 1: torch.autograd.grad(loss, last)[0]}
        for stage in reversed(range(len(self.stages))):
            found = self._backward(stage, history[stage][self._versions(stage, i)[1]], graphs[stage], arriving[stage])
            for source, gradient in zip(self._net.read(stage), found, strict=True):
                if source >= 0 and gradient is not None:
                    arriving[source] = arriving[source] + gradient if source in arriving else gradient
        return float(loss.detach())

    def _forward(self, stage: int, weights: list[Tensor], made: dict[int, Tensor]) -> Graph:
        """Run a stage on a copy of a weight version; return its inputs, the copy, and its output."""
        module, trained = self.stages[stage], stage not in self._stream.frozen
        leaves = [value.clone().requires_grad_(trained) for value in weights]
        names = [name for name, _ in module.named_parameters()]
        read = [made[source].detach().requires_grad_(source >= 0) for source in self._net.read(stage)]
        return read, leaves, functional_call(module, dict(zip(names, leaves, strict=True)), tuple(read))

    def _backward(self, stage: int, weights: list[Tensor], graph: Graph, arriving: Tensor) -> tuple[Tensor | None, ...]:
        """Run a stage's backward at a version; add its weights' gradients, and return its inputs' gradients."""
        read, leaves, output = graph
        for leaf, value in zip(leaves, weights, strict=True):
            leaf.data.copy_(value)
        given = [*read, *leaves]
        found = iter(torch.autograd.grad(output, [x for x in given if x.requires_grad], arriving, allow_unused=True))
        gradients = [next(found) if x.requires_grad else None for x in given]
        for weight, gradient in zip(self.stages[stage].parameters(), gradients[len(read) :], strict=True):
            if gradient is not None:
                weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return tuple(gradients[: len(read)])

    def _versions(self, stage: int, i: int) -> tuple[int, int]:
        """Return the versions that F and B of a microbatch read."""
        if not self._batch[stage]:
            return 0, 0
        rule, _, delay = self._stream.versions.partition(" ")
        if rule == "delay":
            return (max(0, self._batch[stage][i] - int(delay)),) * 2
        forward, backward = self._at[stage][i]
        return forward, backward if rule == "latest" else forward


def _seen(stream: Stream, stage: int) -> dict[int, list[int]]:
    """Return, for each microbatch, the number of STEPs of a stage before its F, and before its B or I."""
    made, found = 0, dict[int, list[int]]()
    for whole in stream.ranks[stream.placement[0].ranks[stage]]:
        for x in whole.parts or (whole,):
            if x.stage == stage:
                made += x.op == "STEP"
                if x.op in ("F", "B", "I"):
                    found.setdefault(x.microbatch, []).append(made)
    return found
