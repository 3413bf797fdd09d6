"""Models whose stages read stages other than the previous one, and a step of such a stage on a rank; the oracle is
the same model, undivided.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pipesched.runtime import Runtime, boundaries_of
from pipesched.runtime.execute import transport
from pipesched.stream import Instruction, Stream
from tests.runtime.cases import COMPUTES
from tests.runtime.live import Counted, Live
from tests.runtime.models import batch, copies, error, squared

Reads = Sequence[Sequence[int]]
"""The stages that each stage reads, in the order of its arguments; -1 is the input."""

INPUT = 6


def width(stage: int) -> int:
    """Return the width of a stage's output: neighbouring stages differ, so that no tensor passes for another's."""
    return INPUT if stage < 0 else 5 + stage % 3


class Joint(nn.Module):
    """A different layer for each tensor that is read, and one after them; some stages return two tensors."""

    def __init__(self, widths: Sequence[int], out: int, *, pair: bool) -> None:
        super().__init__()
        self.ways = nn.ModuleList(nn.Linear(x, 8) for x in widths)
        self.norm, self.back, self.pair = nn.LayerNorm(8), nn.Linear(8, out), pair

    def forward(self, *given: Tensor) -> Any:
        assert len(given) == len(self.ways)
        mixed = torch.zeros((), dtype=given[0].dtype)
        for number, (way, x) in enumerate(zip(self.ways, given, strict=True)):
            mixed = mixed + torch.tanh((number + 1) * way(x)) * (number + 1)
        made = self.back(self.norm(mixed))
        return (made, made.square()) if self.pair else made


def model(reads: Reads) -> list[nn.Module]:
    """Return the same stages on every process; every third one but the last returns two tensors."""
    torch.manual_seed(len(reads))
    last = len(reads) - 1
    pairs = [stage % 3 == 1 and stage < last for stage in range(len(reads))]
    return [
        Joint(
            [width(x) for x in read for _ in range(2 if x >= 0 and pairs[x] else 1)],
            INPUT if stage == last else width(stage),
            pair=pairs[stage],
        ).double()
        for stage, read in enumerate(reads)
    ]


def outputs(stages: Sequence[nn.Module], reads: Reads, given: Tensor) -> Tensor:
    """Return the outputs of the undivided model."""
    made: dict[int, tuple[Tensor, ...]] = {-1: (given,)}
    for number, stage in enumerate(stages):
        found = stage(*(tensor for x in reads[number] for tensor in made[x]))
        made[number] = found if isinstance(found, tuple) else (found,)
    (last,) = made[len(stages) - 1]
    return last


def step(
    rank: int, stream: Stream, reads: Reads, frozen: Sequence[int], agreed: bool, asking: bool = False
) -> dict[str, Any]:
    """Run one step and one evaluation; return the errors against the undivided model, and the live activations after
    each compute.

    agreed: whether boundaries are given, not found by ranks, and messages match by order, not by tags. asking: whether
    the input has a gradient; the sum of all ranks' is that of the undivided model.
    """
    torch.set_num_threads(1)
    whole = model(reads)
    for stage in frozen:
        whole[stage].requires_grad_(requires_grad=False)
    m = stream.microbatches
    inputs, targets = batch(m)
    mine, live = {}, Live()
    for route, stage in stream.held_by(rank):
        mine[route, stage] = Counted(copies(whole)[stage], route, stage, live)
    theirs = inputs.clone().requires_grad_(asking)
    results = [outputs(whole, reads, x) for x in theirs.chunk(m)]
    expected = torch.stack([squared(x, y) for x, y in zip(results, targets.chunk(m), strict=True)]).mean()
    expected.backward()
    expected, results = expected.detach(), [x.detach() for x in results]
    example: Any = inputs.chunk(m)[0]
    if agreed:
        example = boundaries_of(whole, example, reads=dict(enumerate(reads)))
    gloo = transport.TRANSPORTS["gloo"]
    transport.TRANSPORTS["gloo"] = replace(gloo, tagged=not agreed)
    runtime = Runtime(stream, mine, squared, rank=rank, example=example, before=live.before)
    transport.TRANSPORTS["gloo"] = gloo
    counts: list[int] = []

    def after(instruction: Instruction, index: int) -> None:
        if instruction.op in COMPUTES:
            counts.append(live.count)

    runtime.after = after
    own = inputs.clone().requires_grad_(asking)
    gc.disable()
    try:
        loss = runtime.step(own, targets)
    finally:
        gc.enable()
    runtime.after = None
    found = runtime.evaluate(inputs, targets)
    made: Mapping[int, Tensor] = found.outputs
    return {
        "error": max((error(module, whole[stage]) for (_, stage), module in mine.items()), default=0.0),
        "loss": abs(float(loss - expected)) / float(expected),
        "outputs": max((float((x - results[i]).abs().max()) for i, x in made.items()), default=0.0),
        "input": [None if x.grad is None else x.grad.tolist() for x in (own, theirs)],
        "counts": counts,
        "left": live.count + sum(len(stage.live) for stage in runtime._stages.values()),
        "handed": len(runtime._inbox) + len(runtime._outbox),
    }
