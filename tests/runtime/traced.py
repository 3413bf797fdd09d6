"""A rank that trains with sleeping stages and measures them."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from pipesched.runtime import Recorder, Runtime
from pipesched.stream import Stream
from tests.runtime.asleep import Asleep


def traced(
    rank: int, stream: Stream, costs: list[tuple[float, float, float]], steps: int
) -> tuple[str, list[tuple[float, float]]]:
    """Return the trace of all steps, and begin and end of each by a clock that all ranks share.

    costs: seconds of F, I and W by stage.
    """
    mine = {held: Asleep(*costs[held[1]]) for held in stream.held_by(rank)}
    inputs = [torch.zeros(1, requires_grad=True) for _ in range(stream.microbatches)]
    runtime = Runtime(stream, mine, lambda output, _: output.square().mean(), rank=rank, example=inputs[0])
    ends = [0.0]
    runtime.after = lambda *_: ends.append(time.monotonic())
    recorder, spans = Recorder(runtime), []
    for _ in range(steps):
        dist.barrier()
        begin = time.monotonic()
        runtime.step(inputs, inputs)
        spans.append((begin, ends[-1]))
    return recorder.dumps(), spans
