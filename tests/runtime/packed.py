"""Sequences of different lengths, one per microbatch, and steps with them on a rank, with the undivided model as the
oracle.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipesched.runtime import Runtime, TensorSpec, boundaries_of
from pipesched.runtime.execute.errors import RunError
from pipesched.stream import Instruction, Stream
from tests.runtime.cases import COMPUTES
from tests.runtime.live import Counted, Live
from tests.runtime.models import WIDTH, copies, error, squared, undivided

Lengths = Sequence[int]


class Mixing(nn.Module):
    """Mixes each token with the mean of its sequence. ran: number of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.mean = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.ran = 0

    def forward(self, x: Tensor) -> Tensor:
        self.ran += 1
        made: Tensor = x + torch.tanh(self.own(x) + self.mean(x.mean(0)))
        return made


def stages_of(count: int) -> list[nn.Module]:
    torch.manual_seed(count)
    return [Mixing().double() for _ in range(count)]


def sequences(lengths: Lengths) -> tuple[list[Tensor], list[Tensor]]:
    made = torch.Generator().manual_seed(sum(lengths))
    both = [torch.randn((2, length, WIDTH), generator=made, dtype=torch.float64) for length in lengths]
    return [x[0] for x in both], [x[1] for x in both]


def steps(rank: int, stream: Stream, batches: Sequence[Lengths], given: bool, weighted: bool) -> dict[str, Any]:
    """Return one step with each of some batches. given: whether boundaries are given, not found by ranks. weighted:
    whether all tokens of a batch have equal weight, rather than all microbatches.

    live: tokens alive after each compute of the last step. dry: forwards of the last `expect`.
    """
    whole = stages_of(stream.stages)
    for stage in stream.frozen:
        whole[stage].requires_grad_(requires_grad=False)
    mine, live = {}, Live()
    for route, stage in stream.held_by(rank):
        mine[route, stage] = Counted(copies(whole)[stage], route, stage, live)
    loss, counts, worst, lost, dry = squared, [], 0.0, 0.0, 0
    example = sequences(batches[0])[0][0]
    runtime = Runtime(stream, mine, lambda x, y: loss(x, y), rank=rank, example=example, before=live.before)

    def after(instruction: Instruction, index: int) -> None:
        if instruction.op in COMPUTES:
            counts.append(sum(lengths[key[2]] for key, boxes in live.boxes.items() if boxes))

    runtime.after = after
    for lengths in batches:
        inputs, targets = sequences(lengths)
        if weighted:
            share = len(lengths) / sum(lengths)
            loss = lambda x, y: ((x - y) ** 2).mean(1).sum() * share  # noqa: B023, E731
        expected = undivided(whole, inputs, targets, loss)
        if weighted:
            every = [((x - y) ** 2).mean(1) for x, y in zip(_outputs(whole, inputs), targets, strict=True)]
            assert abs(float(torch.cat(every).mean() - expected)) < 1e-12
        counts.clear()
        before = [module.inner.ran for module in mine.values()]
        if given:
            runtime.expect([boundaries_of(whole, x) for x in inputs])
        else:
            runtime.expect(inputs if (0, 0) in mine else None)
        dry = sum(module.inner.ran for module in mine.values()) - sum(before)
        gc.disable()
        try:
            found = runtime.step(inputs, targets)
        finally:
            gc.enable()
        lost = max(lost, abs(float(found - expected)) / float(expected))
        worst = max([worst, *(error(module, whole[stage]) for (_, stage), module in mine.items())])
    runtime.after = None
    outputs = runtime.evaluate(inputs).outputs
    return {
        "error": worst,
        "loss": lost,
        "live": counts,
        "dry": dry,
        "left": live.count + len(runtime._inbox) + len(runtime._outbox),
        "shapes": {number: list(made.shape) for number, made in outputs.items()},
    }


def _outputs(stages: Sequence[nn.Module], inputs: Sequence[Tensor]) -> list[Tensor]:
    made = []
    for x in inputs:
        for stage in stages:
            x = stage(x)
        made.append(x.detach())
    return made


def refused(rank: int, stream: Stream, kind: str) -> tuple[str, str]:
    """Return the errors of ranks for wrong examples."""
    mine = {held: stages_of(stream.stages)[held[1]] for held in stream.held_by(rank)}
    inputs, targets = sequences([3] * stream.microbatches)
    runtime = Runtime(stream, mine, squared, rank=rank, example=inputs[0])
    longer = [torch.cat([x, x]) for x in inputs]
    try:
        match kind:
            case "dtype":
                single = (TensorSpec((3, WIDTH), torch.float32),)
                runtime.expect([runtime.boundaries[0], (single, single), *runtime.boundaries[2:]])
            case "missing":
                runtime.expect()
            case "width":
                runtime.expect([x[:, 1:] for x in inputs])
            case "count":
                runtime.expect(inputs[1:])
            case "stale":
                runtime.expect(longer)
                runtime.step(inputs, targets)
    except Exception as found:  # the other rank of a step that one has left
        code = found.fault.code if isinstance(found, RunError) else type(found).__name__
        return code, str(found).splitlines()[0]
    return "", "nothing"
