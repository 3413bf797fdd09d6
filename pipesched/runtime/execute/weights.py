"""Keeps the versions of one stage's weights, in a step with STEPs inside the order.

    F          runs on leaves: tensors with the storage of one version, and a version counter of their own
    B, W       leave gradients at these leaves, from where they are added to ``.grad`` of the weights
    STEP       moves the weights to new storage if a later operation reads the old version, otherwise works in place

With `latest` the optimizer always works in place: a backward then reads the newest weights, and the activations that
its forward has kept. Leaves are made by `.data`: leaves made by `.detach()` would share the version counter of the
weights, and torch would refuse the backward of an older version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from pipesched.stream import Instruction

Leaves = dict[str, Tensor]


class Weights:
    """The weights of a stage in a stream with `versions`.

    batch: for each microbatch, the index of the STEP that uses its gradient. most: the largest number of versions
    stored at a time so far.
    """

    def __init__(self, module: nn.Module, rule: str, batch: Mapping[int, int]) -> None:
        self.module, self.batch = module, batch
        self.rule, _, delay = rule.partition(" ")
        self._delay, self.most = int(delay or 0), 1
        self.sizes = [list(batch.values()).count(t) for t in range(max(batch.values(), default=-1) + 1)]
        self.begin()

    def begin(self) -> None:
        """Begin a step: version 0 is the current weights of the module."""
        self.made = 0
        self._leaves = {0: self._new()}
        self._reads: dict[int, int] = {}
        self._coming = set(self.batch)

    def read(self, microbatch: int) -> Leaves:
        """Return the leaves for an F or an R; a microbatch keeps its version until its backward is done."""
        if microbatch not in self._reads:
            delayed = max(0, self.batch.get(microbatch, 0) - self._delay)
            self._reads[microbatch] = delayed if self.rule == "delay" else 0 if self.rule == "latest" else self.made
            self._coming.discard(microbatch)
        return self._leaves[self._reads[microbatch]]

    @torch.no_grad()
    def add(self, microbatch: int) -> None:
        """Add the gradients of a finished backward to the gradients of the weights, and free its version."""
        leaves = self._leaves[self._reads.pop(microbatch)]
        for name, weight in self.module.named_parameters():
            made, leaves[name].grad = leaves[name].grad, None
            if made is not None:
                weight.grad = made if weight.grad is None else weight.grad + made
        self._free()

    @torch.no_grad()
    def reduce(self) -> None:
        """Run REDUCE_GRAD: divide the gradients by the number of microbatches of the batch; its loss is their mean."""
        for weight in self.module.parameters():
            if weight.grad is not None:
                weight.grad = weight.grad / self.sizes[self.made]

    def step(self, optimize: Callable[[], object]) -> None:
        """Run STEP, and clear the gradients."""
        if self.rule != "latest" and self.made in self._wanted():
            for weight in self.module.parameters():
                weight.data = weight.data.clone()
        optimize()
        for weight in self.module.parameters():
            weight.grad = None
        self.made += 1
        if self.rule != "latest":
            self._leaves[self.made] = self._new()
        self._free()

    def _new(self) -> Leaves:
        return {
            name: weight.data.requires_grad_(weight.requires_grad) for name, weight in self.module.named_parameters()
        }

    def _wanted(self) -> set[int]:
        """Return the existing versions that later operations read."""
        later = {max(0, self.batch[i] - self._delay) for i in self._coming} if self.rule == "delay" else set()
        return {*self._reads.values(), *later}

    def _free(self) -> None:
        if self.rule != "latest":
            wanted = {*self._wanted(), self.made}
            self._leaves = {version: leaves for version, leaves in self._leaves.items() if version in wanted}
        first = [next(iter(leaves.values())) for leaves in self._leaves.values() if leaves]
        self.most = max(self.most, len({leaf.untyped_storage().data_ptr() for leaf in first}))


def batches(instructions: Sequence[Instruction], stage: int) -> dict[int, int]:
    """Return, for each microbatch of a stage, the index of the STEP that uses its gradient, from its rank's list."""
    found: dict[int, int] = {}
    made = 0
    for x in (part for whole in instructions for part in whole.parts or (whole,)):
        if x.stage == stage:
            made += x.op == "STEP"
            if x.op in ("B", "W"):
                found[x.microbatch] = made
    return found
