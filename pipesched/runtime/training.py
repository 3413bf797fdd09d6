"""What a rank of ``pipesched run`` does: build its stages, train, and compare with the model in one piece.

The result is plain data: the losses, the largest error of a gradient and where, the most activations alive, and the
times of every instruction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipesched.runtime.breaking import Broken
from pipesched.runtime.clock import Clock, settling
from pipesched.runtime.counted import Alive
from pipesched.runtime.errors import NEEDS, STALLED, Fault, Place, RunError
from pipesched.runtime.executor import Runtime
from pipesched.runtime.guard import Guard, finite
from pipesched.runtime.launch import START, Job
from pipesched.runtime.local import End, Local, Step
from pipesched.runtime.nets import Net
from pipesched.runtime.undivided import Difference, Undivided, descend, difference, gradients
from pipesched.stream import Instruction, Stream, loads

_GROUP_TIMEOUT = timedelta(minutes=30)  # the watchdog and the supervisor are faster


def train(job: Job, rank: int, folder: str, end: End) -> dict[str, Any]:
    """The whole life of a rank; `folder` is empty and shared by the ranks, for them to meet.

    Raises:
        RunError: whatever ends it.
    """
    torch.set_num_threads(1)
    device = _device(job, rank)
    late = Fault(STALLED, f"rank {rank} waited {START:g} s for the other ranks to begin", Place(rank))
    alarm = threading.Timer(START, end, [late])
    alarm.daemon = True
    alarm.start()
    dist.init_process_group(
        job.backend, init_method=f"file://{folder}/meet", rank=rank, world_size=job.ranks, timeout=_GROUP_TIMEOUT
    )
    stream = _stream(job, rank)
    net = Net(job.net, stream.stages, job.seed, getattr(torch, job.dtype))
    modules = {held: net.stage(held[1]).to(device) for held in stream.held_by(rank)}
    alive, clock = Alive(), Clock(job.pace, settling(device))
    for module in modules.values():
        alive.watch(module)
    local = Local(job, rank, device, stream, net, modules)
    with _engine(local, clock, end) as step:
        alarm.cancel()
        result = _train(local, step)
    dist.destroy_process_group()
    return result | {"peak": alive.peak, "spans": clock.spans, "steps": clock.steps if job.trace else []}


def _device(job: Job, rank: int) -> torch.device:
    """Where the stages of a rank are: ranks share the GPUs, if there are less of them.

    Raises:
        RunError: PS820, the backend or the device is not here, or nccl wants more GPUs.
    """
    if not dist.is_backend_available(job.backend):
        raise RunError(Fault(NEEDS, f"this torch has no backend {job.backend}", help="--backend gloo runs anywhere"))
    count = torch.cuda.device_count()
    if job.backend == "nccl" and count < job.ranks:
        wanting = f"nccl needs a GPU for each of {job.ranks} ranks; here are {count}"
        raise RunError(Fault(NEEDS, wanting, help="--backend gloo runs anywhere, and shares GPUs"))
    if job.device == "cpu" and job.backend != "nccl":
        return torch.device("cpu")
    if not count:
        raise RunError(Fault(NEEDS, "there is no GPU here that torch can use", help="--device cpu runs anywhere"))
    torch.cuda.set_device(rank % count)
    return torch.device("cuda", rank % count)


def _stream(job: Job, rank: int) -> Stream:
    """The stream of a rank; where ranks are not to notice that theirs differ, with the fingerprint of the others."""
    stream = loads(job.others.get(rank, job.stream))
    if not job.agree:
        stream.__dict__["fingerprint"] = loads(job.stream).fingerprint
    return stream


def _engine(local: Local, clock: Clock, end: End) -> Any:
    if local.job.engine == "torch":
        from pipesched.runtime.training_torch import torch_engine

        return torch_engine(local)
    return _own_engine(local, clock, end)


@contextmanager
def _own_engine(local: Local, clock: Clock, end: End) -> Iterator[Step]:
    """`Runtime`, under guard."""
    job = local.job
    broken = [Broken(given, local.modules.values()) for given in job.breaks if given.rank == local.rank]

    def before(instruction: Instruction, index: int) -> None:
        for one in broken:
            one.before(instruction, index)
        clock.before(instruction, index)

    inputs, _ = local.net.batch(0, local.stream.microbatches)
    example = inputs.chunk(local.stream.microbatches)[0].to(local.device)
    runtime = Runtime(
        local.stream,
        local.modules,
        finite(local.net.loss),
        rank=local.rank,
        example=example,
        device=local.device,
        before=before,
        after=clock.after,
    )
    clock.watch(runtime)

    def step(inputs: Tensor | None, targets: Tensor | None) -> float:
        dist.barrier()  # so that ranks begin together, as a timeline does
        clock.step()
        return float(runtime.step(inputs, targets))

    with Guard(runtime, timeout=job.timeout, end=end):
        yield step


def _train(local: Local, step: Step) -> dict[str, Any]:
    """The losses of every step, and of the undivided model; the largest error of all gradients, with its place."""
    whole = Undivided(local.net, local.stream.microbatches, local.device)
    modules = list(local.modules.values())
    losses, undivided, worst, at = [], [], Difference(0.0, ""), 0
    leaves = any(given.kind == "leave" and given.rank == local.rank for given in local.job.breaks)
    for number in range(1 if leaves else local.job.steps):
        losses.append(step(*local.batch(number)))
        undivided.append(whole.step(number))
        for (_, stage), module in local.modules.items():
            here = difference(gradients(stage, module), gradients(stage, whole.stages[stage]))
            if here.error > worst.error:
                worst, at = here, number + 1
        descend(modules)
        whole.descend()
    return {"losses": losses, "undivided": undivided, "error": worst.error, "tensor": worst.tensor, "step": at}
