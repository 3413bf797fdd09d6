"""How many activations are alive, counted from the tensors that autograd really keeps.

Each forward of a stage gets a token, and everything that autograd saves during it holds the token. When the last of it
is freed the token goes, and the activation is no longer alive. Nothing here reads the instruction list.
"""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class _Token:
    """One forward of one stage."""


class Alive:
    """The forwards of some modules whose saved tensors are alive; `peak` is the most at once."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self._open: list[saved_tensors_hooks] = []

    def watch(self, module: nn.Module) -> None:
        """Counts the forwards of a module from now on."""
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._end, always_call=True)

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        token = _Token()
        self.now += 1
        weakref.finalize(token, self._free).atexit = False
        hooks = saved_tensors_hooks(lambda tensor: (tensor.detach(), token), _unpack)  # an output holds its own graph
        hooks.__enter__()
        self._open.append(hooks)

    def _end(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._open.pop().__exit__()
        self.peak = max(self.peak, self.now)

    def _free(self) -> None:
        self.now -= 1


def _unpack(packed: tuple[Tensor, _Token]) -> Tensor:
    return packed[0]
