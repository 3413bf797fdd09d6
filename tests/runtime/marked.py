"""Finds whether activations are on the device or in host memory, with a stage that keeps one tensor of a unique size.

Every storage of that size is noticed when any operation makes it, and counts until it is freed. The one
that a forward made is on the device; a copy of it is one more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

BYTES = 8 * 10_007
Key = tuple[int, int, int]  # route, stage, microbatch


class Noticed(TorchDispatchMode):
    """The storages of this size; first: the one that the forward made, by key."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, StorageWeakRef] = {}
        self.first: dict[Key, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else (made,):
            if isinstance(x, Tensor) and x.untyped_storage().nbytes() == BYTES:
                ref = StorageWeakRef(x.untyped_storage())
                self.made.setdefault(ref.cdata, ref)
        return made

    def count(self) -> int:
        """Return the number of storages."""
        self.made = {place: ref for place, ref in self.made.items() if not ref.expired()}
        return len(self.made)

    def first_ones(self) -> list[Key]:
        """Return the keys whose storage is still where its forward made it."""
        return sorted(key for key, ref in self.first.items() if not ref.expired())


class _Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, asking: Tensor | None) -> Tensor:
        ctx.save_for_backward(kept)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return grads[0] * kept[0], None, None


class Marked(nn.Module):
    """A stage, and a tensor of ones that its backward needs."""

    def __init__(self, inner: nn.Module, key: tuple[int, int], noticed: Noticed) -> None:
        super().__init__()
        self.inner, self.key, self.noticed, self.microbatch = inner, key, noticed, -1

    def forward(self, x: Tensor) -> Any:
        kept = torch.ones(BYTES // 8, dtype=torch.float64)
        self.noticed.first[*self.key, self.microbatch] = StorageWeakRef(kept.untyped_storage())
        asking = None if x.requires_grad else torch.zeros(1, requires_grad=True)  # so that the graph has it
        return self.inner(_Keep.apply(x, kept, asking))
