"""What a rank of a local run has: its stages of a small net, and the stream that says when they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn

from pipesched.runtime.errors import Fault
from pipesched.runtime.launch import Job
from pipesched.runtime.nets import Net
from pipesched.stream import Stream

Held = tuple[int, int]
End = Callable[[Fault], NoReturn]
Step = Callable[[Tensor | None, Tensor | None], float | None]
"""One step of an engine: inputs where stage 0 is, targets where the last stage is; the mean loss where it is known."""


@dataclass(frozen=True)
class Local:
    """One rank. modules: by (route, stage)."""

    job: Job
    rank: int
    device: torch.device
    stream: Stream
    net: Net
    modules: dict[Held, nn.Module]

    def batch(self, step: int) -> tuple[Tensor | None, Tensor | None]:
        """Inputs and targets of a step, where this rank needs them."""
        inputs, targets = (x.to(self.device) for x in self.net.batch(step, self.stream.microbatches))
        stages = {stage for _, stage in self.modules}
        return inputs if 0 in stages else None, targets if self.stream.stages - 1 in stages else None
