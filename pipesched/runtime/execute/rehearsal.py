"""Runs one rank's list on one device with imitated neighbours: measures its memory and compute times.

    one microbatch     the bytes it keeps, and the bytes that each compute operation needs (`StageBytes`)
    the whole list     peak bytes of a step; seconds of each kind by stage, the median over microbatches and steps

Bytes count activations, gradients in transit, messages and a stage's temporaries; not weights and their gradients,
which exist before the step begins, and not the model's own input.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn

from pipesched.runtime.execute.allocated import Bytes, counter
from pipesched.runtime.execute.backward import NotSplit
from pipesched.runtime.execute.executor import Runtime
from pipesched.runtime.execute.imitated import drawn
from pipesched.runtime.execute.replicas import trained
from pipesched.runtime.execute.shapes import Boundary, dry_forward, gradients, specs
from pipesched.runtime.execute.stage_bytes import LOST, StageBytes, predicted
from pipesched.runtime.execute.stages import Stage
from pipesched.stream import COMPUTES, Instruction, Stream

TIMED = (*COMPUTES, "OVERLAP")


@dataclass(frozen=True)
class Part:
    """A stage to rehearse: its module, one microbatch of its inputs, and the loss function of the last stage."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    loss: Callable[..., Tensor]


@dataclass(frozen=True)
class Rehearsed:
    """The result of a rehearsal. weights: bytes of the weights. peak: the peak bytes of a step. at: the index of the
    instruction that reaches the peak. predicted: the peak bytes computed from `stages`. stages: for each stage, the
    bytes of one microbatch. seconds: for each kind (FB for a pair) and stage, the duration of every execution.
    """

    weights: int
    peak: int
    at: int
    predicted: int
    stages: Mapping[int, StageBytes]
    seconds: Mapping[tuple[str, int], Sequence[float]]

    def median(self, kind: str, stage: int) -> float | None:
        """Return the median seconds of a kind of compute operation on a stage, or None if the list has none."""
        found = self.seconds.get((kind, stage))
        return median(found) if found else None


def rehearse(stream: Stream, rank: int, parts: Mapping[int, Part], *, device: str = "cpu", steps: int = 2) -> Rehearsed:
    """Run the list of a rank steps + 1 times: the first run counts bytes and is a warm-up.

    parts: the rank's stages, by number. Two copies of a stage on this rank share one module.

    Raises:
        RunError: PS824 or PS831 if a stage does not fit its neighbour, or is not supported.
    """
    place = torch.device(device)
    runtime = _runtime(stream, rank, parts, place)
    inputs = [parts[0].inputs] * stream.microbatches if 0 in parts else None
    targets = [torch.zeros(())] * stream.microbatches if stream.stages - 1 in parts else None
    every = {id(w): w for part in parts.values() for w in part.module.parameters()}.values()
    trained, count = [w for w in every if w.requires_grad], counter(place)
    with count:
        stages = {number: _one(stage, parts[number], count) for (_, number), stage in runtime._stages.items()}
        watch = _Watch(count, trained)
        runtime.before, runtime.after = watch.before, watch.after
        runtime.step(inputs, targets)
    clock = _Clock(place)
    runtime.before, runtime.after = clock.before, clock.after
    for _ in range(steps):
        _forget(trained)
        runtime.step(inputs, targets)
    _forget(trained)
    weights = sum(w.nbytes for w in every)
    return Rehearsed(weights, watch.peak, watch.at, predicted(stream, rank, stages), stages, clock.seconds)


def _runtime(stream: Stream, rank: int, parts: Mapping[int, Part], device: torch.device) -> Runtime:
    boundaries: list[Boundary] = [()] * stream.stages
    for stage, part in sorted(parts.items()):
        boundaries[stage] = specs(part.inputs)
        if stage + 1 < stream.stages and stage + 1 not in parts:
            boundaries[stage + 1] = dry_forward(part.module, boundaries[stage], device, f"the output of stage {stage}")
    modules = {(route, stage): parts[stage].module for route, stage in stream.held_by(rank)}
    last = parts.get(stream.stages - 1)
    loss = None if last is None else lambda output, _: last.loss(output)
    return Runtime(stream, modules, loss, rank=rank, example=boundaries, device=device, imitated=True)


def _forget(weights: Sequence[Tensor]) -> None:
    for weight in weights:
        weight.grad = None


def _remember(weights: Sequence[Tensor]) -> None:
    """Allocate the gradients before a compute operation, so that they do not count as its memory."""
    for weight in weights:
        weight.grad = torch.zeros_like(weight)


class _Watch:
    """Measures the peak bytes of a step, above the bytes allocated when its first instruction began."""

    def __init__(self, count: Bytes, weights: Sequence[Tensor]) -> None:
        self._count, self._weights = count, weights
        self.peak, self.at, self._base = 0, 0, 0

    def before(self, instruction: Instruction, index: int) -> None:
        if index == 0:
            _remember(self._weights)
            self._base = self._count.now
        self._count.restart(counts=instruction.op != "O")

    def after(self, instruction: Instruction, index: int) -> None:
        if (most := self._count.peak - self._base) > self.peak:
            self.peak, self.at = most, index


class _Clock:
    """A clock that records the seconds of each compute operation."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._began = device, 0.0
        self.seconds: dict[tuple[str, int], list[float]] = {}

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def before(self, instruction: Instruction, index: int) -> None:
        self._began = self._now()

    def after(self, instruction: Instruction, index: int) -> None:
        if instruction.op in TIMED:
            stage = (instruction.parts or (instruction,))[0].stage
            key = ("".join(part.op for part in instruction.parts) or instruction.op, stage)
            self.seconds.setdefault(key, []).append(self._now() - self._began)


def _one(stage: Stage, part: Part, count: Bytes) -> StageBytes:
    """Return the bytes of one microbatch in a stage: with a full backward, recomputed, and with a split backward."""
    made, split, whole = _Measured(stage, part, count), stage.split, "I" if stage.frozen else "B"
    ways: list[tuple[str, ...]] = [("F", whole), (LOST, "R", whole), ("F", "I", "W")] if stage.train else [("F",)]
    for way in ways[: 2 if stage.frozen else 3]:
        stage.split = "W" in way
        made.run(way)
    stage.split = split
    sizes = [sum(spec.bytes for spec in boundary) for boundary in (made.entering, made.leaving)]
    kept = {key: size for key, size in made.kept.items() if key not in (whole, "W")}
    return StageBytes(sizes[0], sizes[1], kept, made.most)


class _Measured:
    """Measures the bytes of single microbatches; received messages are filled with random numbers."""

    def __init__(self, stage: Stage, part: Part, count: Bytes) -> None:
        self._stage, self._part, self._count = stage, part, count
        self._weights = trained(stage.module)
        self.entering = () if stage.number == 0 else stage.entering[0]
        self.leaving = () if stage.leaving is None else gradients(stage.leaving[0])
        self.kept: dict[str, int] = {}
        self.most: dict[str, int] = {}

    def run(self, way: Sequence[str]) -> None:
        _remember(self._weights)
        base = self._count.now
        for op in way:
            self._count.restart()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotSplit)  # the run of the list gives this warning if it is relevant
                self._compute(op)
            self.most[op], self.kept[op] = self._count.peak - base, self._count.now - base
        _forget(self._weights)

    def _compute(self, op: str) -> None:
        stage = self._stage
        match op:
            case "F":
                self._forward(self._drawn(self.entering) or self._part.inputs)
            case "R":
                stage.recompute(0, {}, self._part.loss)
            case "W":
                stage.backward_weights(0)
            case "I" | "B":
                stage.backward(op, 0, None if stage.leaving is None else self._drawn(self.leaving))
            case _:
                inputs = self._drawn(self.entering) or self._part.inputs
                with stage.letting_go(0, inputs):
                    self._forward(inputs)

    def _forward(self, inputs: tuple[Tensor, ...]) -> None:
        if self._stage.leaving is None:
            self._stage.forward_last(0, inputs, {}, self._part.loss)
        else:
            self._stage.forward(0, inputs, {})

    def _drawn(self, boundary: Boundary) -> tuple[Tensor, ...]:
        return tuple(drawn(spec.empty(self._stage.device)) for spec in boundary)
