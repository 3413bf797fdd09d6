"""The actions that ranks perform in a test case; results are plain numbers, which the tests compare."""

from __future__ import annotations

import gc
import hashlib
import time
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage

from pipesched import torch_runtime
from pipesched.runtime import Runtime, boundaries_of
from pipesched.runtime.execute import transport as channels
from pipesched.runtime.execute.errors import RunError
from pipesched.runtime.execute.nets import Net
from pipesched.stream import Instruction, Stream
from tests.runtime.asleep import Asleep
from tests.runtime.live import Counted, Live
from tests.runtime.marked import Marked, Noticed
from tests.runtime.models import batch, blocks, copies, error, squared, undivided
from tests.runtime.variants import VARIANTS

COMPUTES = ("F", "I", "W", "B", "R", "O", "L", "OVERLAP")


def gradients(rank: int, stream: Stream, kind: str = "float64", blocking: bool = False) -> dict[str, Any]:
    """Run one step on residual blocks; return the errors against undivided training, and the most live activations.

    Without the garbage collector: what autograd releases must be freed by itself. Frozen stages ask for no gradient.
    """
    dtype = getattr(torch, kind)
    whole = blocks(stream.stages, dtype)
    for stage in stream.frozen:
        whole[stage].requires_grad_(requires_grad=False)
    inputs, targets = batch(stream.microbatches, dtype)
    expected = undivided(whole, inputs.chunk(stream.microbatches), targets.chunk(stream.microbatches), squared)
    mine, live = {}, Live()
    for route, stage in stream.held_by(rank):
        mine[route, stage] = Counted(copies(whole)[stage], route, stage, live)
    example = inputs[: len(inputs) // stream.microbatches]
    runtime = Runtime(stream, mine, squared, rank=rank, example=example, before=live.before, blocking=blocking)
    counts: list[int] = []

    def after(instruction: Instruction, index: int) -> None:
        if instruction.op in COMPUTES:
            counts.append(live.count)

    runtime.after = after
    gc.disable()
    try:
        loss = runtime.step(inputs, targets)
    finally:
        gc.enable()
    return {
        "error": max(error(module, whole[stage]) for (_, stage), module in mine.items()),
        "loss": abs(float(loss - expected)) / float(expected),
        "peak": live.peak,
        "counts": counts,
        "left": live.count + sum(len(stage.live) + len(stage.lost) for stage in runtime._stages.values()),
        "handed": len(runtime._inbox) + len(runtime._outbox),
        "digests": {stage: digest(module) for (_, stage), module in mine.items() if stage not in stream.frozen},
        "untouched": all(
            weight.grad is None
            for (_, stage), module in mine.items()
            if stage in stream.frozen
            for weight in module.parameters()
        ),
    }


def disagreeing(
    rank: int, stream: Stream, asks: dict[int, bool], tied: Any, shared: tuple[int, ...] = ()
) -> tuple[str, str]:
    """Return the answer of a runtime to stages with wrong requires_grad; shared: stages that have one weight."""
    stages = blocks(stream.stages)
    if shared:
        one, other = (stages[stage] for stage in shared)
        other.norm = one.norm
    for stage, value in asks.items():
        stages[stage].requires_grad_(value)
    inputs, _ = batch(stream.microbatches)
    mine = {held: stages[held[1]] for held in stream.held_by(rank)}
    try:
        Runtime(stream, mine, squared, rank=rank, example=inputs[: len(inputs) // stream.microbatches], tied=tied)
    except RunError as error:
        return error.fault.code, error.fault.message
    return "", "nothing"


def random(rank: int, stream: Stream) -> list[str]:
    """Return the digests of the gradients of stages with dropout, after a step with a fixed seed."""
    stages = [nn.Sequential(stage, nn.Dropout(0.5)) for stage in blocks(stream.stages)]
    inputs, targets = batch(stream.microbatches)
    mine = {held: stages[held[1]] for held in stream.held_by(rank)}
    example = inputs[: len(inputs) // stream.microbatches]
    runtime = Runtime(stream, mine, squared, rank=rank, example=example)
    torch.manual_seed(rank)
    runtime.step(inputs, targets)
    return [digest(module) for module in mine.values()]


class Changing(nn.Module):
    """A stage that changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) * self.weight


def changing(rank: int, stream: Stream) -> tuple[str, str]:
    """Return the answer of a runtime to such a stage."""
    inputs, targets = batch(stream.microbatches)
    example = inputs[: len(inputs) // stream.microbatches].clone()
    runtime = Runtime(stream, {(0, 0): Changing()}, squared, rank=rank, example=example)
    try:
        runtime.step(inputs, targets)
    except RunError as error:
        return error.fault.code, error.fault.message
    return "", "nothing"


def digest(module: nn.Module) -> str:
    """Return all gradients of a module, to the bit."""
    made = hashlib.sha256()
    for weight in module.parameters():
        assert weight.grad is not None
        made.update(weight.grad.numpy().tobytes())
    return made.hexdigest()


def stuck(rank: int) -> int:
    """Rank 0 returns, the others never do."""
    while rank:
        time.sleep(60)
    return rank


def blocked(rank: int, stream: Stream) -> tuple[int, str]:
    """Run with blocking sends and receives: the instruction under way when the transport gave up, and its error."""
    stages = blocks(stream.stages)
    inputs, targets = batch(stream.microbatches)
    mine = {held: stages[held[1]] for held in stream.held_by(rank)}
    example = inputs[: len(inputs) // stream.microbatches]
    runtime = Runtime(stream, mine, squared, rank=rank, example=example, blocking=True)
    try:
        runtime.step(inputs, targets)
    except RuntimeError as error:  # gloo's, after the timeout of the group
        return runtime.position, str(error)
    return len(runtime.instructions) + 1, "finished"


def timed(rank: int, stream: Stream, costs: list[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Return the begin, end and seconds waited of each instruction of a step, by a clock that all processes share.

    costs: seconds of F, I and W by stage.
    """
    mine = {held: Asleep(*costs[held[1]]) for held in stream.held_by(rank)}
    inputs = [torch.zeros(1, requires_grad=True) for _ in range(stream.microbatches)]
    runtime = Runtime(stream, mine, lambda output, _: output.square().mean(), rank=rank, example=inputs[0])
    begun: list[tuple[float, float]] = []
    taken: list[tuple[float, float, float]] = []

    def after(instruction: Instruction, index: int) -> None:
        begin, waited = begun[index]
        taken.append((begin, time.monotonic(), runtime.waited - waited))

    runtime.before = lambda *_: begun.append((time.monotonic(), runtime.waited))
    runtime.after = after
    dist.barrier()
    runtime.step(inputs, inputs)
    return taken


def variant(rank: int, stream: Stream, name: str, **options: Any) -> dict[str, Any]:
    """Run one step of an irregular model; return the errors against undivided training, and the warnings."""
    chosen = VARIANTS[name]
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(stream.stages)
    whole = chosen.build(stream.stages)
    made = torch.Generator().manual_seed(1)
    inputs, targets = zip(*(chosen.given(made) for _ in range(stream.microbatches)), strict=True)
    expected = undivided(whole, inputs, targets, chosen.loss)
    wanted = [(x, x.grad) for x in inputs if isinstance(x, torch.Tensor) and x.grad is not None]
    for x, _ in wanted:
        x.grad = None
    own = copies(whole)
    if chosen.tied(stream.stages):  # tied across ranks: no rank has the same tensor twice
        own = [copies([stage])[0] for stage in own]
    mine = {held: own[held[1]] for held in stream.held_by(rank)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        runtime = Runtime(
            stream, mine, chosen.loss, rank=rank, example=inputs[0], tied=chosen.tied(stream.stages), **options
        )
        loss = runtime.step(inputs, targets)
    torch.set_default_dtype(torch.float32)
    got = [(x.grad, grad) for x, grad in wanted if x.grad is not None]
    return {
        "error": max(error(module, whole[stage]) for (_, stage), module in mine.items()),
        "inputs": (len(got), max((float((a - b).abs().max() / b.abs().max()) for a, b in got), default=0.0)),
        "loss": abs(float(loss - expected)) / float(expected),
        "warnings": sorted({f"{w.category.__name__}: {w.message}" for w in told}),
    }


def steps(rank: int, stream: Stream, early: int, separate: bool) -> dict[str, Any]:
    """Return three steps with an optimizer as STEP, and old gradients before each; weights against undivided training.

    early: receives posted ahead. separate: one communicator a direction, as on NCCL.
    """
    transport = channels.TRANSPORTS["gloo"]
    channels.TRANSPORTS["gloo"] = replace(transport, tagged=not separate)
    whole = blocks(stream.stages)
    mine = {held: copies(whole)[held[1]] for held in stream.held_by(rank)}
    inputs, targets = batch(stream.microbatches)
    ours, theirs = _sgd(mine.values()), _sgd(whole)
    losses, seen, ahead = [], [], []

    def after(instruction: Instruction, index: int) -> None:
        seen.append(index)
        ahead.append(len(runtime.posted))

    runtime = Runtime(
        stream,
        mine,
        squared,
        rank=rank,
        example=boundaries_of(whole, inputs[: len(inputs) // stream.microbatches]),
        optimize=ours.step,
        early_receives=early,
        after=after,
    )
    for _ in range(3):
        losses.append(float(runtime.step(inputs, targets)))
        losses[-1] -= float(
            undivided(whole, inputs.chunk(stream.microbatches), targets.chunk(stream.microbatches), squared)
        )
        theirs.step()  # gradients are not zeroed: each step adds to those before
    channels.TRANSPORTS["gloo"] = transport
    pairs = [(a, b) for (_, s), m in mine.items() for a, b in zip(m.parameters(), whole[s].parameters(), strict=True)]
    return {
        "weights": max(float((a - b).detach().abs().max()) for a, b in pairs),
        "error": max(error(module, whole[stage]) for (_, stage), module in mine.items()),
        "losses": max(map(abs, losses)),
        "seen": seen == 3 * list(range(len(stream.ranks[rank]))),
        "ends": (runtime.position, runtime.waiting, runtime.posted),
        "ahead": ahead[0],
    }


def forward_only(rank: int, stream: Stream) -> tuple[float, float, bool]:
    """Return a program without backward: its loss, that of the undivided model, and whether nothing was kept."""
    whole = blocks(stream.stages)
    inputs, targets = batch(stream.microbatches)
    with torch.no_grad():
        value = inputs
        for stage in whole:
            value = stage(value)
    live = Live()
    mine = {(r, s): Counted(whole[s], r, s, live) for r, s in stream.held_by(rank)}
    example = inputs[: len(inputs) // stream.microbatches]
    runtime = Runtime(stream, mine, squared, rank=rank, example=example, before=live.before)
    loss = runtime.step(inputs, targets)
    return float(loss), float(squared(value, targets)), live.peak == 0


def torch_engine(rank: int, stream: Stream, csv: str | None, net: Net, steps: int) -> tuple[float, float]:
    """Return the steps of torch's own engine with our order: the largest errors of a gradient and of a loss, against
    undivided training. csv: the file to load instead of the stream's computes.
    """
    held = [stage for _, stage in stream.held_by(rank)]
    own, whole = ([net.stage(stage) for stage in range(net.stages)] for _ in range(2))
    parts = [PipelineStage(own[stage], stage, net.stages, torch.device("cpu")) for stage in held]
    with TemporaryDirectory() as folder:
        order: Any = stream if csv is None else Path(folder, "order.csv")
        if csv is not None:
            order.write_text(csv, "utf-8")
        runtime = torch_runtime(order, parts, stream.microbatches, net.loss)
    gradients, losses = [0.0], [0.0]
    for number in range(steps):
        inputs, targets = net.batch(number, stream.microbatches)
        last, found = net.stages - 1 in held, list[torch.Tensor]()
        given = (inputs,) if 0 in held else ()
        runtime.step(*given, target=targets if last else None, losses=found, return_outputs=False)
        expected = undivided(whole, inputs.chunk(stream.microbatches), targets.chunk(stream.microbatches), net.loss)
        if last:
            losses.append(abs(float(torch.stack(found).detach().mean() / expected) - 1))
        gradients += (error(own[stage], whole[stage]) for stage in held)
        for modules in (own, whole):
            made = _sgd(modules)
            made.step()
            made.zero_grad()
    return max(gradients), max(losses)


def _sgd(modules: Iterable[nn.Module]) -> torch.optim.Optimizer:
    return torch.optim.SGD([weight for module in modules for weight in module.parameters()], lr=0.1)


def offloaded(rank: int, stream: Stream) -> dict[str, Any]:
    """Run one step of stages that keep a tensor each; return the errors against undivided training, and after each
    compute the number of these tensors and how many are still at their original place."""
    whole = blocks(stream.stages)
    for stage in stream.frozen:
        whole[stage].requires_grad_(requires_grad=False)
    inputs, targets = batch(stream.microbatches)
    cut = inputs.chunk(stream.microbatches)
    expected = undivided(whole, cut, targets.chunk(stream.microbatches), squared)
    noticed = Noticed()
    mine = {held: Marked(copies(whole)[held[1]], held, noticed) for held in stream.held_by(rank)}
    counts: list[tuple[int, list[tuple[int, int, int]]]] = []

    def before(instruction: Instruction, index: int) -> None:
        for part in instruction.parts or (instruction,):
            if part.op == "F":
                mine[part.route, part.stage].microbatch = part.microbatch

    def after(instruction: Instruction, index: int) -> None:
        if instruction.op in COMPUTES:
            counts.append((noticed.count(), noticed.first_ones()))

    runtime = Runtime(stream, mine, squared, rank=rank, example=cut[0], before=before, after=after)
    noticed.first.clear()
    gc.disable()
    try:
        with noticed:
            loss = runtime.step(inputs, targets)
    finally:
        gc.enable()
    return {
        "error": max(error(module.inner, whole[stage]) for (_, stage), module in mine.items()),
        "loss": abs(float(loss - expected)) / float(expected),
        "counts": counts,
        "left": sum(len(x.live) + len(x.lost) + len(x.boxes) for x in runtime._stages.values()),
    }
