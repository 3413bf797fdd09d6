"""Models that do not match their stream, and the errors that the runtime raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pipesched.runtime import Runtime, TensorSpec, boundaries_of
from pipesched.stream import Stream
from tests.runtime.models import WIDTH, batch, blocks, copies, squared

Modules = dict[tuple[int, int], nn.Module]


def refused(rank: int, stream: Stream, fault: str) -> str:
    """Return the runtime's error for a faulty model, or nothing."""
    whole = blocks(stream.stages)
    inputs, targets = batch(stream.microbatches)
    example: Any = inputs[: len(inputs) // stream.microbatches]
    mine = {held: copies(whole)[held[1]] for held in stream.held_by(rank)}
    runtime = None
    try:
        breaker = FAULTS[fault]
        example = breaker(stream, mine, example) or example
        runtime = Runtime(stream, mine, squared, rank=rank, example=example)
        if fault == "microbatches":
            inputs = inputs[1:]
        runtime.step(inputs, targets)
    except (ValueError, LookupError, RuntimeError) as found:
        return f"{type(found).__name__}: {found}"
    return ""


def _narrow(stream: Stream, mine: Modules, example: Any) -> Any:
    """Make stage 0 return one column less than agreed."""
    agreed = boundaries_of([nn.Identity() for _ in range(stream.stages)], example)
    if (0, 0) in mine:
        mine[0, 0] = Cut(mine[0, 0], lambda made: made[:, 1:])
    return agreed


def _single(stream: Stream, mine: Modules, example: Any) -> Any:
    """Make stage 0 return another dtype than agreed."""
    agreed = boundaries_of([nn.Identity() for _ in range(stream.stages)], example)
    if (0, 0) in mine:
        mine[0, 0] = Cut(mine[0, 0], lambda made: made.float())
    return agreed


def _missing(stream: Stream, mine: Modules, example: Any) -> Any:
    mine.clear()


def _raising(stream: Stream, mine: Modules, example: Any) -> Any:
    """Make stage 0 fail on its input."""
    if (0, 0) in mine:
        mine[0, 0] = nn.Linear(1, 1)


def _no_tensor(stream: Stream, mine: Modules, example: Any) -> Any:
    if (0, 0) in mine:
        mine[0, 0] = Cut(mine[0, 0], lambda made: {"x": made})


def _other_copy(stream: Stream, mine: Modules, example: Any) -> Any:
    if (1, 0) in mine:
        mine[1, 0] = nn.Linear(WIDTH, WIDTH)


def _other_values(stream: Stream, mine: Modules, example: Any) -> Any:
    if (1, 0) in mine:
        with torch.no_grad():
            mine[1, 0].get_parameter("wide.weight").add_(1)


def _nothing(stream: Stream, mine: Modules, example: Any) -> Any:
    return None


def _no_boundaries(stream: Stream, mine: Modules, example: Any) -> Any:
    return [(TensorSpec((1,), torch.float64),)]


FAULTS: dict[str, Callable[[Stream, Modules, Any], Any]] = {
    "shape": _narrow,
    "dtype": _single,
    "missing": _missing,
    "raising": _raising,
    "no tensor": _no_tensor,
    "copies": _other_copy,
    "values": _other_values,
    "microbatches": _nothing,
    "": _nothing,
    "boundaries": _no_boundaries,
}


class Cut(nn.Module):
    """A stage with a change of its output."""

    def __init__(self, inner: nn.Module, then: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.then = inner, then

    def forward(self, x: torch.Tensor) -> Any:
        return self.then(self.inner(x))
