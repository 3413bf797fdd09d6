"""Runs an emitted module in DeepSpeed's pipeline engine on tokens, with its buffers and blocking sends.

Tensors are the numbers of microbatches, and lie where the engine keeps them: inputs, labels and outputs in numbered
buffers, one loss, one received gradient that the next one overwrites. A send waits for its receive.
It runs the module against a package `deepspeed` of its own and knows nothing of pipesched. Source: `_exec_*` of
DeepSpeed 0.19.8, `runtime/pipe/engine.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

Ran = list[tuple[str, int]]
"""The operations that a stage ran: F and B with the microbatch; the end of the step with -1."""


class Stop(Exception):
    """The engine raises, trains a wrong gradient, or waits forever."""


class PipeSchedule:
    def __init__(self, micro_batches: int, stages: int, stage_id: int) -> None:
        self.stage_id = stage_id


class Instruction:
    def __init__(self, **kwargs: int) -> None:
        self.kwargs = kwargs


class BufferOpInstruction(Instruction):
    def __init__(self, buffer_id: int) -> None:
        super().__init__(buffer_id=buffer_id)
        self.buffer_id = buffer_id


@dataclass
class Input:
    """A leaf of autograd: a batch, or a received activation."""

    microbatch: int
    gradient: bool = False


@dataclass
class Output:
    """The output of a forward."""

    leaf: Input
    used: bool = False

    def backward(self) -> int:
        if self.used:
            raise Stop(f"a second backward through the graph of microbatch {self.leaf.microbatch}")
        self.used = self.leaf.gradient = True
        return self.leaf.microbatch


@dataclass
class Gradient:
    microbatch: int

    def clone(self) -> Gradient:
        return Gradient(self.microbatch)


class Engine:
    """The engine of one stage."""

    def __init__(self, stage: int, stages: int, micro_batches: int) -> None:
        self.stage_id, self.num_stages, self.micro_batches = stage, stages, micro_batches
        self.loss: Any = None
        self.grad_layer: Any = None
        self.loaded = 0
        self.ran: Ran = []

    def is_last_stage(self) -> bool:
        return self.stage_id == self.num_stages - 1

    def train(self) -> Iterator[tuple[str, int, int]]:
        """Yield the messages of a training step, as ("send", stage, microbatch) or ("recv", stage, -1)."""
        schedule = self._train_schedule()  # type: ignore[attr-defined]
        self.inputs, self.labels, self.outputs = ([None] * schedule.num_pipe_buffers() for _ in range(3))
        for step in schedule.steps():
            for instruction in step:
                yield from self._INSTRUCTION_MAP[type(instruction)](self, **instruction.kwargs) or ()

    def load(self, buffer_id: int) -> None:
        if self.stage_id == 0:
            self.inputs[buffer_id] = Input(self.loaded)
        if self.is_last_stage():
            self.labels[buffer_id] = self.loaded
        self.loaded += 1

    def forward(self, buffer_id: int) -> None:
        leaf = there(self.inputs[buffer_id], "input")
        self.outputs[buffer_id] = Output(leaf)
        self.ran.append(("F", leaf.microbatch))
        if self.is_last_stage():
            if self.labels[buffer_id] != leaf.microbatch:
                raise Stop(f"microbatch {leaf.microbatch} has the labels of {self.labels[buffer_id]}")
            self.loss = self.outputs[buffer_id]

    def backward(self, buffer_id: int) -> None:
        if self.is_last_stage():
            self.ran.append(("B", self.loss.backward()))
            return
        output = there(self.outputs[buffer_id], "output")
        if self.grad_layer.microbatch != output.leaf.microbatch:
            raise Stop(f"{output.leaf.microbatch} takes the gradient of {self.grad_layer.microbatch}")
        self.ran.append(("B", output.backward()))
        self.outputs[buffer_id] = None

    def send_activation(self, buffer_id: int) -> Iterator[tuple[str, int, int]]:
        yield "send", self.stage_id + 1, there(self.outputs[buffer_id], "output").leaf.microbatch

    def receive_activation(self, buffer_id: int) -> Iterator[tuple[str, int, int]]:
        self.inputs[buffer_id] = Input((yield "recv", self.stage_id - 1, -1))

    def send_gradient(self, buffer_id: int) -> Iterator[tuple[str, int, int]]:
        leaf = there(self.inputs[buffer_id], "input")
        if not leaf.gradient:
            raise Stop(f"there is no gradient of microbatch {leaf.microbatch} yet")
        yield "send", self.stage_id - 1, leaf.microbatch
        self.inputs[buffer_id] = None

    def receive_gradient(self, buffer_id: int) -> Iterator[tuple[str, int, int]]:
        there(self.outputs[buffer_id], "output")
        self.grad_layer = self.grad_layer or Gradient(-1)  # once there, the next one is written into it
        self.grad_layer.microbatch = yield "recv", self.stage_id + 1, -1

    def ends(self, name: str) -> None:
        self.ran.append((name, -1))


def there(tensor: Any, what: str) -> Any:
    if tensor is None:
        raise Stop(f"there is no {what} in this buffer")
    return tensor


HANDLERS: dict[str, Callable[..., Any]] = {
    "LoadMicroBatch": Engine.load,
    "ForwardPass": Engine.forward,
    "BackwardPass": Engine.backward,
    "SendActivation": Engine.send_activation,
    "RecvActivation": Engine.receive_activation,
    "SendGrad": Engine.send_gradient,
    "RecvGrad": Engine.receive_gradient,
}
ENDS = ("ReduceTiedGrads", "ReduceGrads", "OptimizerStep")
CLASSES = {
    **{name: type(name, (BufferOpInstruction,), {}) for name in HANDLERS},
    **{name: type(name, (Instruction,), {}) for name in ENDS},
}
Engine._INSTRUCTION_MAP = {  # type: ignore[attr-defined]
    **{CLASSES[name]: handler for name, handler in HANDLERS.items()},
    **{CLASSES[name]: lambda engine, name=name: engine.ends(name) for name in ENDS},
}


def loaded(text: str) -> dict[str, Any]:
    """Return the names of an emitted module."""
    schedule = ModuleType("schedule")
    vars(schedule).update(CLASSES, PipeSchedule=PipeSchedule, BufferOpInstruction=BufferOpInstruction)
    folders = ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.pipe")
    fakes = {**{name: ModuleType(name) for name in folders}, "deepspeed.runtime.pipe.schedule": schedule}
    names: dict[str, Any] = {}
    with mock.patch.dict(sys.modules, fakes):
        exec(text, names)
    return names


def trained(names: dict[str, Any], stages: int, micro_batches: int) -> list[Ran]:
    """Return the instructions that every stage of a loaded module runs in a training step.

    Raises:
        Stop: it does not finish, or is wrong.
    """
    engines = [Engine(stage, stages, micro_batches) for stage in range(stages)]
    for engine in engines:
        names["use"](engine)
    steps = [engine.train() for engine in engines]
    waiting = dict(enumerate(next(step, None) for step in steps))
    while any(waiting.values()):
        ready = [
            (source, asked[1], asked[2])
            for source, asked in waiting.items()
            if asked and asked[0] == "send" and (waiting[asked[1]] or ())[:2] == ("recv", source)
        ]
        if not ready:
            raise Stop(f"all wait: {waiting}")
        for source, target, microbatch in ready:
            waiting[source] = next(steps[source], None)
            waiting[target] = answered(steps[target], microbatch)
    return [engine.ran for engine in engines]


def answered(step: Iterator[Any], microbatch: int) -> Any:
    """Return the next message of a stage that has received one."""
    try:
        return step.send(microbatch)  # type: ignore[attr-defined]
    except StopIteration:
        return None
