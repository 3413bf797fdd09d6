"""Trains on real processes with a model in the usual wrappers, and compares it with the undivided model."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.tensor import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from pipesched.runtime import Runtime
from pipesched.runtime.execute.building import NotReplicated
from pipesched.stream import Stream
from tests.runtime.models import BATCH, WIDTH, Block, batch, blocks, copies, error, squared, undivided

REPLICAS = 2
Wrap = Callable[[nn.Module], nn.Module]


class Moody(nn.Module):
    """A block with running statistics, an unused weight, and one that only the last replica uses."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.norm = Block(), nn.BatchNorm1d(WIDTH)
        self.unused, self.sometimes = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(WIDTH))
        self.last = False

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.norm(self.block(x))
        return made * self.sometimes if self.last else made


def replicas(rank: int, stream: Stream, options: Mapping[str, Any], apart: bool) -> dict[str, Any]:
    """Return three steps of two replicas of a pipeline, with accumulating gradients, the second step within `no_sync`.

    apart: without tags, so that communicators of both pipelines are made. Errors are those of the first and of the
    last step, against the undivided model that trains on the batches of both.
    """
    size = len(stream.ranks)
    replica, here = divmod(rank, size)
    pipelines = [dist.new_group([r * size + i for i in range(size)]) for r in range(REPLICAS)]
    groups = [dist.new_group([r * size + i for r in range(REPLICAS)]) for i in range(size)]
    torch.manual_seed(stream.stages)
    whole = [Moody().double() for _ in range(stream.stages)]
    mine = {held: copies(whole)[held[1]] for held in stream.held_by(here)}
    for module in mine.values():
        module.last = replica == REPLICAS - 1
    options, hook = dict(options), options.get("hook")
    options.pop("hook", None)
    wrapped = {
        held: DistributedDataParallel(module, process_group=groups[here], bucket_cap_mb=0.0005, **options)
        for held, module in mine.items()
    }
    for wrapper in wrapped.values() if hook else ():
        wrapper.register_comm_hook(groups[here], hook)
    inputs, targets = zip(*(batch(stream.microbatches * (r + 1)) for r in range(REPLICAS)), strict=True)
    inputs, targets = ([x[: len(x) // (r + 1)] for r, x in enumerate(given)] for given in (inputs, targets))
    runtime = Runtime(
        stream,
        wrapped,
        squared,
        rank=here,
        group=pipelines[replica],
        example=inputs[replica][:BATCH],
    )
    errors = []
    for step in range(3):
        for wrapper in wrapped.values():
            wrapper.require_backward_grad_sync = step != 1  # what `no_sync` does
        runtime.step(inputs[replica], targets[replica])
        _together(whole, stream.microbatches, inputs, targets)
        errors.append(max(_share(module, whole[stage]) for (_, stage), module in mine.items()))
    running = torch.cat([module.norm.running_mean for module in mine.values()])
    theirs = [torch.zeros_like(running) for _ in range(REPLICAS)]
    dist.all_gather(theirs, running, group=groups[here])
    unused = [module.unused.grad is None for module in mine.values()]
    return {"errors": [errors[0], errors[2]], "buffers": float((theirs[0] - theirs[1]).abs().max()), "unused": unused}


def unequal(rank: int, streams: Sequence[Stream], wrapped: Sequence[int]) -> str:
    """Return the errors of replicas when they are built: each runs its stream, and these stages are wrapped."""
    size = len(streams[0].ranks)
    replica, here = divmod(rank, size)
    pipelines = [dist.new_group([r * size + i for i in range(size)]) for r in range(REPLICAS)]
    groups = [dist.new_group([r * size + i for r in range(REPLICAS)]) for i in range(size)]
    stream = streams[replica]
    mine = {held: blocks(stream.stages)[held[1]] for held in stream.held_by(here)}
    for held in [held for held in mine if held[1] in wrapped]:
        mine[held] = DistributedDataParallel(mine[held], process_group=groups[here])
    example = batch(1)[0]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            Runtime(stream, mine, squared, rank=here, group=pipelines[replica], example=example)
        except RuntimeError as found:
            return str(found)
    return "\n".join(str(w.message) for w in told if w.category is NotReplicated)


def _together(whole: Sequence[nn.Module], count: int, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Sum over replicas of the gradients that each adds."""
    for number, (given, target) in enumerate(zip(inputs, targets, strict=True)):
        for module in whole:
            module.last = number == REPLICAS - 1
        undivided(whole, given.chunk(count), target.chunk(count), squared)


def _share(found: nn.Module, total: nn.Module) -> float:
    mean = copy.deepcopy(total)
    for weight, source in zip(mean.parameters(), total.parameters(), strict=True):
        weight.grad = None if source.grad is None else source.grad / REPLICAS
    return error(found, mean)


def _hooked(module: nn.Module) -> nn.Module:
    for weight in module.parameters():
        weight.register_post_accumulate_grad_hook(lambda _: None)
    return module


def _optimized(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.jit, which is not ours
        from torch.distributed.optim import _apply_optimizer_in_backward

    _apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 0.1})
    return module


def _frozen(module: nn.Module) -> nn.Module:
    wrapped = DistributedDataParallel(
        module, process_group=dist.new_group([dist.get_rank()], use_local_synchronization=True)
    )
    next(module.parameters()).requires_grad_(False)
    return wrapped


def _composed(module: nn.Module) -> nn.Module:
    from torch.distributed._composable.replicate import replicate

    made: nn.Module = replicate(module)
    return made


REFUSED: Mapping[str, Wrap] = {
    "FSDP1": lambda module: FullyShardedDataParallel(module, device_id=torch.device("cpu")),
    "FSDP2": lambda module: fully_shard(module, mesh=init_device_mesh("cpu", (2,))),
    "tensor parallel": lambda module: parallelize_module(
        module, init_device_mesh("cpu", (2,)), {"wide": ColwiseParallel()}
    ),
    "replicate()": _composed,
    "DDP over all processes": DistributedDataParallel,
    "DDP, frozen later": _frozen,
    "hooks on weights": _hooked,
    "optimizer in the backward": _optimized,
}


def refused(rank: int, stream: Stream, kind: str) -> str:
    """Return the error of a runtime when it is built, or in its first step."""
    mine = {held: REFUSED[kind](blocks(stream.stages, torch.float32)[held[1]]) for held in stream.held_by(rank)}
    inputs, targets = batch(stream.microbatches, torch.float32)
    try:
        Runtime(stream, mine, squared, rank=rank, example=inputs[:BATCH]).step(inputs, targets)
    except Exception as found:
        return f"{type(found).__name__}: {found}"
    return "trains"


def _selective(module: nn.Module, x: Tensor) -> Any:
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    saved = [torch.ops.aten.addmm.default]
    return checkpoint(
        module, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, saved)
    )


class Around(nn.Module):
    """A module with a changed call."""

    def __init__(self, inner: nn.Module, call: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x: Tensor) -> Any:
        return self.call(self.inner, x)


def _compiled(module: nn.Module, backend: str, *, in_place: bool) -> nn.Module:
    if not in_place:
        return torch.compile(module, backend=backend)  # type: ignore[return-value]
    module.compile(backend=backend)
    return module


def _cast(module: nn.Module, x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module(x)


AROUND: Mapping[str, Wrap] = {
    "plain": lambda module: module,
    "compile eager": lambda module: _compiled(module, "eager", in_place=False),
    "compile aot_eager": lambda module: _compiled(module, "aot_eager", in_place=False),
    "compile in place": lambda module: _compiled(module, "aot_eager", in_place=True),
    "compile DDP": lambda module: _compiled(_alone(module), "aot_eager", in_place=False),
    "autocast inside": lambda module: Around(module, _cast),
}


def _alone(module: nn.Module) -> nn.Module:
    return DistributedDataParallel(
        module, process_group=dist.new_group([dist.get_rank()], use_local_synchronization=True)
    )


def around(rank: int, stream: Stream, kind: str, autocast: bool) -> dict[str, Any]:
    """Return two steps with an optimizer, in float32: weights and gradients against the same wrapping in one piece."""
    wrap = AROUND[kind]
    whole = blocks(stream.stages, torch.float32)
    own = copies(whole)
    mine = {held: own[held[1]] for held in stream.held_by(rank)}
    inputs, targets = batch(stream.microbatches, torch.float32)
    ours, theirs = (torch.optim.SGD([w for m in ms for w in m.parameters()], lr=0.1) for ms in (mine.values(), whole))
    once = [Around(stage, _cast) for stage in whole] if autocast or kind == "autocast inside" else whole
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else nullcontext():
            wrapped = {held: wrap(module) for held, module in mine.items()}
            runtime = Runtime(stream, wrapped, squared, rank=rank, example=inputs[:BATCH], optimize=ours.step)
            for _ in range(2):
                ours.zero_grad()
                runtime.step(inputs, targets)
    for _ in range(2):  # after it: casts of weights are kept until an outermost autocast ends
        theirs.zero_grad()
        undivided(once, inputs.chunk(stream.microbatches), targets.chunk(stream.microbatches), squared)
        theirs.step()
    pairs = [(a, b) for (_, s), m in mine.items() for a, b in zip(m.parameters(), whole[s].parameters(), strict=True)]
    return {
        "error": max(error(module, whole[stage]) for (_, stage), module in mine.items()),
        "weights": max(float((a - b).detach().abs().max()) for a, b in pairs),
        "split": not any("cannot be split" in str(w.message) for w in told),
    }


def scaled(rank: int, stream: Stream) -> dict[str, Any]:
    """Return two steps with a scaler that all ranks share: a normal one, and one with an overflow in the first
    stage."""
    whole = blocks(stream.stages, torch.float32)
    own = copies(whole)
    mine = {held: own[held[1]] for held in stream.held_by(rank)}
    inputs, targets = batch(stream.microbatches, torch.float32)
    optimizer = torch.optim.SGD([w for module in mine.values() for w in module.parameters()], lr=0.1)
    scaler = ShardedGradScaler(device="cpu", init_scale=1024.0)
    scaler.scale(torch.zeros(()))  # every rank has the scale, also those without a loss

    def loss(output: Tensor, target: Tensor) -> Tensor:
        made: Tensor = scaler.scale(squared(output, target))
        return made

    def update() -> None:
        scaler.step(optimizer)
        scaler.update()

    runtime = Runtime(stream, mine, loss, rank=rank, example=inputs[:BATCH], optimize=update)
    runtime.step(inputs, targets)
    undivided(whole, inputs.chunk(stream.microbatches), targets.chunk(stream.microbatches), squared)
    wrong = max(error(module, whole[stage]) for (_, stage), module in mine.items())
    first = [weight.detach().clone() for module in mine.values() for weight in module.parameters()]
    optimizer.zero_grad()
    handles = [m.wide.weight.register_hook(lambda g: g * float("inf")) for (_, s), m in mine.items() if s == 0]
    runtime.step(inputs, targets)
    for handle in handles:
        handle.remove()
    now = [weight.detach() for module in mine.values() for weight in module.parameters()]
    return {
        "error": wrong,
        "skipped": all(bool((a == b).all()) for a, b in zip(first, now, strict=True)),
        "scale": scaler.get_scale(),
    }


def cast_late(rank: int, stream: Stream) -> str:
    """Return the autocast around the step alone."""
    mine = {held: blocks(stream.stages, torch.float32)[held[1]] for held in stream.held_by(rank)}
    torch.manual_seed(rank)
    mine = {held: nn.Sequential(module, nn.Linear(WIDTH, WIDTH)) for held, module in mine.items()}
    inputs, targets = batch(stream.microbatches, torch.float32)
    runtime = Runtime(stream, mine, squared, rank=rank, example=inputs[:BATCH])
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            runtime.step(inputs, targets)
    except Exception as found:
        return f"{type(found).__name__}: {found}"
    return "trains"


def reshaped(rank: int, stream: Stream, where: str) -> str:
    """Return a sequence that is longer in one microbatch, or in all of the second step."""
    mine = {held: blocks(stream.stages)[held[1]] for held in stream.held_by(rank)}
    inputs, targets = (list(x.chunk(stream.microbatches)) for x in batch(stream.microbatches))
    runtime = Runtime(stream, mine, squared, rank=rank, example=inputs[0])
    try:
        if where == "step":
            runtime.step(inputs, targets)
        longer = slice(None) if where == "step" else slice(1, 2)
        for given in (inputs, targets):
            given[longer] = [torch.cat([x, x]) for x in given[longer]]
        runtime.step(inputs, targets)
    except Exception as found:
        return f"{type(found).__name__}: {found}"
    return "trains"
