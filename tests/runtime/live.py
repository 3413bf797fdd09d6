"""Counts live activations from the tensors that autograd saves and frees.

Every tensor that autograd keeps for a backward is put into a box; the box dies when autograd releases it. A stage
and microbatch is live while one of its boxes is: the instruction list says nothing about it here but which microbatch
a forward is for.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from pipesched.stream import Instruction

Key = tuple[int, int, int]  # route, stage, microbatch


class _Box:
    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()  # a saved output would hold its own graph in a cycle


class Live:
    """Live activations of one rank."""

    def __init__(self) -> None:
        self.boxes: Counter[Key] = Counter()
        self.microbatch = -1
        self.peak = 0

    def before(self, instruction: Instruction, index: int) -> None:
        """Hook of the runtime: note the microbatch of a forward."""
        for part in instruction.parts or (instruction,):
            if part.op in ("F", "R"):
                self.microbatch = part.microbatch

    @property
    def count(self) -> int:
        return sum(1 for boxes in self.boxes.values() if boxes)

    def pack(self, key: Key, tensor: Tensor) -> _Box:
        box = _Box(tensor)
        self.boxes[key] += 1
        self.peak = max(self.peak, self.count)
        weakref.finalize(box, self._gone, key)
        return box

    def _gone(self, key: Key) -> None:
        self.boxes[key] -= 1


class Counted(nn.Module):
    """A stage whose saved tensors are counted."""

    def __init__(self, inner: nn.Module, route: int, stage: int, live: Live) -> None:
        super().__init__()
        self.inner, self.route, self.stage, self.live = inner, route, stage, live

    def forward(self, *inputs: Tensor) -> Any:
        key = (self.route, self.stage, self.live.microbatch)
        pack = lambda tensor: self.live.pack(key, tensor)  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
            return self.inner(*inputs)
