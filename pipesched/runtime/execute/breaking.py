"""Injects faults, to demonstrate how they are reported and to test that they are detected.

kill, freeze, stall    this rank is killed, stopped or put to sleep at the instruction
collective             this rank waits in a collective that no other rank joins
leave                  this rank takes no second step (`training`)
raise, raise-backward  the first stage that runs from the instruction on raises an error, in its forward or backward
nan, shape, dtype      the output of that stage is NaN, or has a wrong shape or dtype
weights                this rank begins with other weights
hook                   this rank's weights have a hook that runs after each backward
stream                 this rank runs another stream (`launch.Job.others`)
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipesched.runtime.execute.launch import Break
from pipesched.stream import Instruction

FOREVER = 3600.0


class Broken:
    """The injected faults of one rank."""

    def __init__(self, given: Break, modules: Iterable[nn.Module]) -> None:
        self._given, self._armed = given, False
        for module in modules:
            module.register_forward_hook(self._forward)
            if given.kind == "weights":
                _disturb(module)
            if given.kind == "hook":
                for weight in module.parameters():
                    weight.register_post_accumulate_grad_hook(lambda _: None)

    def before(self, instruction: Instruction, index: int) -> None:
        """Inject the fault when its instruction begins. The runtime calls this before each instruction."""
        if index + 1 < self._given.instruction:
            return
        self._armed = True
        if self._given.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._given.kind == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._given.kind == "stall":
            time.sleep(FOREVER)
        if self._given.kind == "collective":
            dist.all_reduce(torch.zeros(1))

    def _forward(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        if not self._armed:
            return None
        match self._given.kind:
            case "raise":
                raise ValueError("broken on purpose")
            case "raise-backward":
                output.register_hook(_raise)
            case "nan":
                return output * float("nan")
            case "shape":
                return output[:, :-1]
            case "dtype":
                return output.to(torch.float32)
        return None


def _raise(gradient: Tensor) -> None:
    raise ValueError("injected fault, in the backward")


@torch.no_grad()
def _disturb(module: nn.Module) -> None:
    for weight in module.parameters():
        weight.add_(0.01)
