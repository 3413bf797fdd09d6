"""The local run of a stream, or of a CSV with messages, through torch's own engine.

It has no guard, which sees instructions of ours alone: a message that does not come within the timeout is a stall, as
the transport tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

from pipesched.runtime.errors import STALLED, Fault, Place, RunError, printable
from pipesched.runtime.guard import LATE
from pipesched.runtime.local import Local, Step
from pipesched.runtime.torch_engine import torch_runtime


@contextmanager
def torch_engine(local: Local) -> Iterator[Step]:
    """A step of torch's runtime; only ranks with the last stage know the loss."""
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

    def step(inputs: Tensor | None, targets: Tensor | None) -> float | None:
        losses: list[Tensor] = []
        given = () if inputs is None else (inputs,)
        try:
            runtime.step(*given, target=targets, losses=losses, return_outputs=False)
        except RuntimeError as error:
            if not LATE.search(str(error)):
                raise
            said = " ".join(str(error).split())
            message = f"nothing moves: a message did not come within {local.job.timeout:g} s"
            raise RunError(Fault(STALLED, message, Place(local.rank), (printable(said),))) from error
        return None if targets is None else float(torch.stack(losses).detach().double().mean())

    yield step


def _judge(name: str | None) -> Callable[[str], object] | None:
    """The function of a name such as ``module:function``: a runtime is told who judges, and does not choose."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    found: Callable[[str], object] = getattr(import_module(module), function)
    return found
