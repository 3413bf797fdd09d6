"""Counts the bytes allocated now, and the peak since `restart`.

    cpu     every storage that a torch operation returned, until it is freed; not the operation's temporary memory
    cuda    all memory that torch's allocator has handed out

On a CPU, memory allocated before counting began, such as weights, is not counted. Callers take differences, so such
memory does not matter on any device.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Bytes(Protocol):
    """A counter of allocated bytes, active within its context."""

    def __enter__(self) -> object:
        """Begin to count."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object:
        """Stop counting."""

    @property
    def now(self) -> int:
        """Bytes allocated now."""

    @property
    def peak(self) -> int:
        """Largest number of bytes allocated at the same time since `restart`."""

    def restart(self, *, counts: bool = True) -> None:
        """Set the peak to the bytes allocated now. counts: whether to count from here on.

        On a CPU, False keeps copies to host memory from being counted as device memory.
        """


class OnHost(TorchDispatchMode):
    """A counter for a CPU, whose allocator keeps no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._counts = True
        self._known: dict[int, weakref.ref[UntypedStorage]] = {}

    def restart(self, *, counts: bool = True) -> None:
        self.peak, self._counts = self.now, counts

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Count the storages that an operation returns, even in a backward; its arguments have already been counted."""
        given = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, Tensor) and id(x.untyped_storage()) not in given:
                self._see(x.untyped_storage())
        return made

    def _see(self, storage: UntypedStorage) -> None:
        key = id(storage)
        known = self._known.get(key)
        if known is not None and known() is storage:
            return
        size = storage.nbytes() if self._counts else 0

        def gone(_: object) -> None:
            self._known.pop(key, None)
            self.now -= size

        self._known[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


class OnDevice:
    """A counter for a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __enter__(self) -> object:
        """Do nothing: the allocator counts at all times."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: the allocator continues counting."""

    @property
    def now(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    @property
    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)

    def restart(self, *, counts: bool = True) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)


def counter(device: torch.device) -> Bytes:
    """Return the counter for a device."""
    if device.type == "cuda":
        return OnDevice(device)
    return OnHost()
