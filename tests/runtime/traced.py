"""A rank that trains sleeping stages, and what it measured."""

from __future__ import annotations

import torch
import torch.distributed as dist

from pipesched.runtime import Runtime
from pipesched.runtime.clock import Clock
from pipesched.stream import Stream
from tests.runtime.asleep import Asleep


def traced(
    rank: int, stream: Stream, costs: list[tuple[float, float, float]], steps: int
) -> tuple[list[list[list[float]]], list[list[float]]]:
    """The times of every instruction, by step, and of every step, on a clock that all ranks share.

    costs: seconds of F, I and W by stage.
    """
    mine = {held: Asleep(*costs[held[1]]) for held in stream.held_by(rank)}
    inputs = [torch.zeros(1, requires_grad=True) for _ in range(stream.microbatches)]
    clock = Clock({})
    runtime = Runtime(
        stream,
        mine,
        lambda output, _: output.square().mean(),
        rank=rank,
        example=inputs[0],
        before=clock.before,
        after=clock.after,
    )
    clock.watch(runtime)
    for _ in range(steps):
        dist.barrier()
        clock.step()
        runtime.step(inputs, inputs)
    return clock.steps, clock.spans
