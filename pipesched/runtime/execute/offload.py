"""Offloads the tensors that autograd keeps for a backward to host memory, and copies them back.

    F   every tensor that autograd keeps is put into a box, which the graph holds
    O   the storages of the boxes, inputs and outputs of the stage are copied to host memory and freed
    L   they are copied back
    B   the graph takes its tensors out of the boxes

Each storage is copied once, so tensors that are views of it remain views. Tensors that existed before the forward are
not moved: weights, buffers, the model's own inputs. Nor are tensors that a module keeps with its own hooks, as
checkpointing does. The rank waits for each copy, which runs on the same stream as its compute.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeAlias, TypeGuard
from weakref import WeakSet

import torch
from torch import Tensor, UntypedStorage

_Shape: TypeAlias = tuple[torch.SymInt | int, torch.Size, tuple[int, ...]]  # offset, size and stride


class _Box:
    __slots__ = ("__weakref__", "data")

    def __init__(self, tensor: Tensor) -> None:
        self.data = tensor.detach()  # an output kept here would hold its own graph in a cycle


class _Away(NamedTuple):
    """A storage in host memory, and its holders: boxes or tensors, each with dtype, offset, size and stride."""

    host: Tensor
    holders: list[tuple[_Box | Tensor, torch.dtype, _Shape]]


class Boxes:
    """The tensors that autograd keeps for one stage and microbatch, which can be moved to the host.

    own: tensors that are never copied.
    """

    def __init__(self, own: Iterable[object]) -> None:
        self._own = {_place(tensor) for tensor in own if _plain(tensor)}
        self._boxes: WeakSet[_Box] = WeakSet()
        self._away: list[_Away] = []

    @property
    def here(self) -> bool:
        """True if the graph keeps any tensor on the device."""
        return any(_place(box.data) for box in self._boxes)

    def packing(self) -> AbstractContextManager[object]:
        """Return the context in which every tensor that autograd keeps goes into a box."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, lambda x: x.data if isinstance(x, _Box) else x)

    def _pack(self, tensor: Tensor) -> object:
        if not _plain(tensor) or _place(tensor) in self._own:
            return tensor
        box = _Box(tensor)
        self._boxes.add(box)
        return box

    def out(self, tensors: Iterable[Tensor]) -> None:
        """Copy the kept tensors and `tensors` to host memory, and empty them until `back` is called."""
        shared: dict[int, list[_Box | Tensor]] = {}
        holders: list[_Box | Tensor] = [*self._boxes, *(x for x in tensors if _plain(x))]
        for holder in holders:
            shared.setdefault(_place(holder.data), []).append(holder)
        for place, holders in shared.items():
            if not place or place in self._own:
                continue
            data = [holder.data for holder in holders]
            host = _over(data[0].untyped_storage(), data[0].device).to("cpu", copy=True)
            shapes = [(x.storage_offset(), x.size(), x.stride()) for x in data]
            self._away.append(
                _Away(host, [(h, x.dtype, shape) for h, x, shape in zip(holders, data, shapes, strict=True)])
            )
            for holder, x in zip(holders, data, strict=True):
                holder.data = x.new_empty(0)

    def back(self, device: torch.device) -> None:
        """Copy everything back from host memory."""
        for host, holders in self._away:
            storage = host.to(device, copy=True).untyped_storage()
            for holder, dtype, shape in holders:
                holder.data = torch.empty(0, dtype=dtype, device=device).set_(storage, *shape)
        self._away.clear()


def _plain(x: object) -> TypeGuard[Tensor]:
    """Return True if the value is a tensor whose storage can be copied as bytes."""
    return isinstance(x, Tensor) and type(x) in (Tensor, torch.nn.Parameter) and x.layout == torch.strided


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _over(storage: UntypedStorage, device: torch.device) -> Tensor:
    """Return a view of a whole storage as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
