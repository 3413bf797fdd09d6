"""Runs a rank of ``pipesched run``: builds its stages, trains or evaluates, and checks against the undivided model.

    error of a tensor   max |g - g0| / max |g0|, with g0 of the undivided model, which takes the microbatches in turn
                        through all stages: gradients of their mean loss, or, for a schedule without a backward,
                        the outputs of each microbatch
    activations alive   each forward of a stage gets a token, held by everything that autograd saves during the forward;
                        the activation is alive until the last holder is freed. On a rank that offloads activations, an
                        activation counts while any part of it is on the device

The result is plain data: the losses, the largest error and its location, the largest number of activations alive, and
the times of every instruction.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from pipesched.runtime.execute.breaking import Broken
from pipesched.runtime.execute.delayed import Delayed, snapshot
from pipesched.runtime.execute.errors import NEEDS, STALLED, Fault, Place, RunError, printable
from pipesched.runtime.execute.executor import Runtime
from pipesched.runtime.execute.guard import LATE, Guard, finite
from pipesched.runtime.execute.launch import START, Compared, Job, Measured
from pipesched.runtime.execute.nets import Net
from pipesched.runtime.execute.recorder import Recorder
from pipesched.runtime.execute.replicas import Held
from pipesched.stream import Instruction, Stream, loads

_GROUP_TIMEOUT = timedelta(minutes=30)  # longer than the watchdog and the supervisor wait
RATE = 0.05
"""The learning rate of plain gradient descent, for the pipeline and for the undivided model."""

End = Callable[[Fault], NoReturn]
Step = Callable[[Tensor | None, Tensor | None], tuple[float | None, Mapping[int, Tensor]]]
"""A step of an engine: it takes inputs on the ranks whose stages read them, and targets on the rank of the last stage;
it returns the mean loss if known, and, on the rank of the last stage, the outputs of an evaluation by microbatch."""
Engine = tuple[Step, list[list[list[float]]]]
"""A step function, and the times of every step, as `Recorder.steps`, if they are recorded."""


@dataclass
class Local:
    """The state of one rank. modules: the module of each (route, stage). history: the versions of each stage's weights
    that STEPs inside the order made in this training step. counted: returns, for each stage, the largest number of
    weight versions stored at a time.
    """

    job: Job
    rank: int
    device: torch.device
    stream: Stream
    net: Net
    modules: dict[Held, nn.Module]
    history: dict[int, list[list[Tensor]]] = field(default_factory=dict)
    counted: Callable[[], Mapping[int, int]] = dict

    def stepped(self, stage: int) -> None:
        """Run a STEP inside the order, and keep the version that it makes."""
        descend([self.modules[0, stage]])
        self.history.setdefault(stage, []).append(snapshot(self.modules[0, stage]))

    def batch(self, step: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the inputs and targets of a step, None for those that this rank does not need."""
        inputs, targets = (x.to(self.device) for x in self.net.batch(step, self.stream.microbatches))
        stages = {stage for _, stage in self.modules}
        reading = any(-1 in self.stream.read(stage) for stage in stages)
        return inputs if reading else None, targets if self.stream.stages - 1 in stages else None


def train(job: Job, rank: int, folder: str, end: End) -> Measured:
    """Run a rank from beginning to end; the ranks meet in `folder`, which is empty and shared.

    Raises:
        RunError: the fault that ends the run.
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
    net = Net(job.net, stream.stages, job.seed, getattr(torch, job.dtype), stream.reads, job.samples)
    held_by = stream.held_by(rank)
    stages = {stage: net.stage(stage).to(device) for _, stage in held_by}  # one even if two routes place it here
    modules = {held: stages[held[1]] for held in held_by}
    for stage, module in stages.items():
        module.requires_grad_(stage not in stream.frozen)
    alive = Alive()
    offloads = any(x.op == "O" for x in stream.ranks[rank])
    for module in stages.values() if not offloads else ():
        alive.watch(module)
    local = Local(job, rank, device, stream, net, modules)
    own = _own_engine(local, end, alive if offloads else None)
    with _torch_engine(local) if job.engine == "torch" else own as (step, times):
        alarm.cancel()
        result = _train(local, step)
    dist.destroy_process_group()
    spans = [(instructions[0][1], instructions[-1][2]) for instructions in times]
    most = max(local.counted().values(), default=0)
    return {**result, "peak": alive.peak, "versions": most, "spans": spans, "steps": times if job.trace else []}


def _device(job: Job, rank: int) -> torch.device:
    """Return the device of a rank's stages: ranks share the GPUs if there are more ranks than GPUs.

    Raises:
        RunError: PS820 if the backend or the device is missing, or nccl needs more GPUs.
    """
    if not dist.is_backend_available(job.backend):
        raise RunError(
            Fault(NEEDS, f"this build of torch lacks the backend {job.backend}", help="--backend gloo runs anywhere")
        )
    count = torch.cuda.device_count()
    if job.backend == "nccl" and count < job.ranks:
        wanting = f"nccl needs one GPU per rank, {job.ranks} in total; this machine has {count}"
        raise RunError(Fault(NEEDS, wanting, help="--backend gloo runs anywhere, and ranks can share GPUs"))
    if job.device == "cpu" and job.backend != "nccl":
        return torch.device("cpu")
    if not count:
        raise RunError(Fault(NEEDS, "torch finds no usable GPU here", help="--device cpu runs anywhere"))
    torch.cuda.set_device(rank % count)
    return torch.device("cuda", rank % count)


def _stream(job: Job, rank: int) -> Stream:
    """Return the stream of a rank; if ranks must not notice a difference, its fingerprint is that of `Job.stream`."""
    stream = loads(job.others.get(rank, job.stream))
    if not job.agree:
        stream.__dict__["fingerprint"] = loads(job.stream).fingerprint
    return stream


@contextmanager
def _own_engine(local: Local, end: End, alive: Alive | None) -> Iterator[Engine]:
    """Run `Runtime` under a guard. alive: if given, its peak is updated at each F and L."""
    job = local.job
    broken = [Broken(given, local.modules.values()) for given in job.breaks if given.rank == local.rank]

    def before(instruction: Instruction, index: int) -> None:
        for one in broken:
            one.before(instruction, index)
        if alive is not None and any(x.op in ("F", "L") for x in instruction.parts or (instruction,)):
            alive.peak = max(alive.peak, runtime.alive + 1)

    inputs, _ = local.net.batch(0, local.stream.microbatches)
    examples = local.net.cut(inputs.to(local.device))
    runtime = Runtime(
        local.stream,
        local.modules,
        finite(local.net.loss),
        rank=local.rank,
        example=examples[0],
        device=local.device,
        before=before,
        optimize=local.stepped if local.stream.versions else None,
    )
    local.counted = lambda: runtime.versions
    if job.samples:
        runtime.expect(examples)
    recorder = Recorder(runtime, job.pace)

    def step(inputs: Tensor | None, targets: Tensor | None) -> tuple[float, Mapping[int, Tensor]]:
        given, wanted = (None if x is None else local.net.cut(x) for x in (inputs, targets))
        dist.barrier()  # ranks begin together, as in a timeline
        if not local.stream.forward_only:
            return float(runtime.step(given, wanted)), {}
        found = runtime.evaluate(given, wanted)
        assert found.loss is not None
        return float(found.loss), found.outputs

    with Guard(runtime, timeout=job.timeout, end=end):
        yield step, recorder.steps


@contextmanager
def _torch_engine(local: Local) -> Iterator[Engine]:
    """Run torch's own runtime; only ranks with the last stage know the loss.

    This run has no guard, since a guard sees only the instructions of `Runtime`. A stall is reported when the
    transport's wait for a message exceeds the timeout.
    """
    from torch.distributed.pipelining import PipelineStage

    from pipesched.runtime.execute.torch_engine import torch_runtime

    patient = dist.new_group(timeout=timedelta(seconds=local.job.timeout))
    stages = [
        PipelineStage(module, stage, local.stream.stages, local.device, group=patient)
        for (_, stage), module in sorted(local.modules.items())
    ]
    with TemporaryDirectory() as folder:
        order = local.stream if local.job.csv is None else Path(folder) / "order.csv"
        if isinstance(order, Path):
            order.write_text(local.job.csv or "", "utf-8")
        runtime = torch_runtime(
            order,
            stages,
            local.stream.microbatches,
            local.net.loss,
            verify=_judge(local.job.judge),
            **local.job.options,
        )

    def step(inputs: Tensor | None, targets: Tensor | None) -> tuple[float | None, Mapping[int, Tensor]]:
        losses: list[Tensor] = []
        given = () if inputs is None else (inputs,)
        try:
            runtime.step(*given, target=targets, losses=losses, return_outputs=False)
        except RuntimeError as error:
            if not LATE.search(str(error)):
                raise
            said = " ".join(str(error).split())
            message = f"no progress: a message did not arrive within {local.job.timeout:g} s"
            raise RunError(Fault(STALLED, message, Place(local.rank), (printable(said),))) from error
        return None if targets is None else float(torch.stack(losses).detach().double().mean()), {}

    yield step, []


def _judge(name: str | None) -> Callable[[str], object] | None:
    """Import ``module:function``, which checks torch's program; the runtime itself does not depend on the compiler."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    found: Callable[[str], object] = getattr(import_module(module), function)
    return found


def _train(local: Local, step: Step) -> Compared:
    """Train or evaluate; compare the losses and all tensors of every step with the undivided model."""
    stream, trains = local.stream, not local.stream.forward_only
    if stream.versions:
        return _train_inside(local, step)
    whole = Undivided(local.net, stream.microbatches, local.device, stream.frozen, out=_left_out(stream), trains=trains)
    modules = list(local.modules.values())
    losses, undivided, worst = [], [], (0.0, "", 0)
    leaves = any(given.kind == "leave" and given.rank == local.rank for given in local.job.breaks)
    for number in range(1 if leaves else local.job.steps):
        loss, outputs = step(*local.batch(number))
        expected, whole_outputs = whole.step(number)
        losses.append(loss)
        undivided.append(expected)
        errors = [(_error(x, whole_outputs[at]), f"microbatch {at}") for at, x in outputs.items()]
        for (_, stage), module in local.modules.items() if trains else ():
            pairs = zip(module.named_parameters(), whole.stages[stage].parameters(), strict=True)
            errors += ((_error(_gradient(a), _gradient(b)), f"{stage}.{name}") for (name, a), b in pairs)
        worst = max([worst, *((error, name, number + 1) for error, name in errors)], key=lambda found: found[0])
        if trains:
            descend(modules)
            whole.descend()
    error, tensor, at = worst
    return {"losses": losses, "undivided": undivided, "error": error, "tensor": tensor, "step": at}


def _train_inside(local: Local, step: Step) -> Compared:
    """Train with STEPs inside the order; compare the losses, and every version of every weight, with the undivided
    model after the same updates (`delayed`).
    """
    whole = Delayed(local.net, local.stream, local.device, lambda module: descend([module]))
    losses, undivided, worst = [], [], (0.0, "", 0)
    for number in range(local.job.steps):
        local.history.clear()
        loss, _ = step(*local.batch(number))
        expected, history = whole.step(number)
        losses.append(loss)
        undivided.append(expected)
        for stage, made in local.history.items():
            names = [name for name, _ in local.modules[0, stage].named_parameters()]
            for version, pair in enumerate(zip(made, history[stage][1:], strict=True), start=1):
                errors = map(_error, *pair)
                what = (f"{stage}.{name}, version {version}" for name in names)
                found = [(error, name, number + 1) for error, name in zip(errors, what, strict=True)]
                worst = max([worst, *found], key=lambda found: found[0])
    error, tensor, at = worst
    return {"losses": losses, "undivided": undivided, "error": error, "tensor": tensor, "step": at}


class Undivided:
    """The whole model, trained step by step. frozen: stages that are not trained. out: the stages that each microbatch
    skips. trains: whether there is a backward.
    """

    def __init__(
        self,
        net: Net,
        microbatches: int,
        device: torch.device | str = "cpu",
        frozen: Sequence[int] = (),
        *,
        out: Mapping[int, Collection[int]] | None = None,
        trains: bool = True,
    ) -> None:
        self._net, self._microbatches, self._device, self._trains = net, microbatches, device, trains
        self._out = out or {}
        self.stages = [net.stage(index).to(device).train(trains) for index in range(net.stages)]
        for stage in frozen:
            self.stages[stage].requires_grad_(requires_grad=False)

    def step(self, number: int) -> tuple[float, list[Tensor]]:
        """Run one step; return the mean loss and the outputs, and leave the gradients in place."""
        total, outputs = 0.0, []
        inputs, targets = (x.to(self._device) for x in self._net.batch(number, self._microbatches))
        for i, (x, target) in enumerate(zip(self._net.cut(inputs), self._net.cut(targets), strict=True)):
            with torch.set_grad_enabled(self._trains):
                made = {-1: x}
                for number, stage in enumerate(self.stages):
                    read = (made[source] for source in self._net.read(number))
                    made[number] = next(read) if number in self._out.get(i, ()) else stage(*read)
                x = made[len(self.stages) - 1]
                loss = self._net.loss(x, target) / self._microbatches
            if self._trains:
                loss.backward()
            total += float(loss.detach())
            outputs.append(x.detach())
        return total, outputs

    def descend(self) -> None:
        """Apply the optimizer."""
        descend(self.stages)


def _left_out(stream: Stream) -> dict[int, list[int]]:
    """Return the stages that each microbatch skips."""
    out = [([s for s, rank in enumerate(route.ranks) if rank < 0], route.microbatches) for route in stream.placement]
    return {i: stages for stages, ends in out if stages for i in range(*ends)}


@torch.no_grad()
def descend(modules: Sequence[nn.Module]) -> None:
    """Apply gradient descent; clear all gradients."""
    for module in modules:
        for weight in module.parameters():
            if weight.grad is not None:
                weight.sub_(RATE * weight.grad)
                weight.grad = None


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _error(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference between two tensors, relative to the largest entry of `expected`; inf for NaN."""
    scale, distance = float(expected.abs().max()), float((found - expected).abs().max())
    if distance != distance:
        return math.inf
    return distance / scale if scale else (math.inf if distance else 0.0)


class _Token:
    """A token for one forward of one stage."""


class Alive:
    """Counts the forwards of some modules whose saved tensors are alive; `peak` is the largest count."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self._open: list[saved_tensors_hooks] = []

    def watch(self, module: nn.Module) -> None:
        """Count the forwards of a module from now on."""
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._end, always_call=True)

    def _begin(self, module: nn.Module, inputs: object) -> None:
        token = _Token()
        self.now += 1
        self.peak = max(self.peak, self.now)
        weakref.finalize(token, self._free).atexit = False
        packed = lambda tensor: (tensor.detach(), token)  # noqa: E731  # an output would hold its own graph
        hooks = saved_tensors_hooks(packed, lambda found: found[0])
        hooks.__enter__()
        self._open.append(hooks)

    def _end(self, module: nn.Module, inputs: object, output: object) -> None:
        self._open.pop().__exit__()

    def _free(self) -> None:
        self.now -= 1
