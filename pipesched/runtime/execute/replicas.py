"""Supports data parallelism: each stage in DistributedDataParallel, with one process group of replicas per stage.

    replica 0   rank 0 ── rank 1 ── rank 2        a pipeline each, with a `Runtime` and a group of its own
                  ┆         ┆         ┆           the replicas of a stage: DDP's group
    replica 1   rank 0 ── rank 1 ── rank 2

DDP averages with hooks in the first backward after each forward. With m microbatches, that covers only a part of the
gradient, and a split backward never triggers the hooks. Microbatches therefore bypass DDP, and their gradients add up
on each replica. At REDUCE_GRAD, after the last backward of the stage, DDP gets a forward and a backward of its own,
which reach every weight and add nothing: its buckets, communication hook and buffers work as usual. Averaging is
linear, so gradients can be added before or after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, FunctionCtx
from torch.nn.parallel import DistributedDataParallel

from pipesched.runtime.execute.errors import UNSUPPORTED, Fault, Place, RunError
from pipesched.runtime.execute.exchange import everybody
from pipesched.stream import Stream

Held = tuple[int, int]  # route, stage
_Card: TypeAlias = tuple[str, int, int, int]  # fingerprint, rank, route, stage


def replicated(module: nn.Module) -> tuple[DistributedDataParallel, ...]:
    """Return the DDP wrappers of a stage: usually the stage itself, or some of its parts."""
    return tuple(part for part in module.modules() if isinstance(part, DistributedDataParallel))


def trained(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module.parameters() if weight.requires_grad]


@contextmanager
def passed_by(wrappers: Sequence[DistributedDataParallel]) -> Iterator[None]:
    """Bypass the wrappers: within this context their forward is the forward of the wrapped module."""
    with ExitStack() as stack:
        for wrapper in wrappers:
            wrapper.__dict__["forward"] = wrapper.module.__call__
            stack.callback(wrapper.__dict__.pop, "forward")
        yield


class _Reach(torch.autograd.Function):
    """A function of every weight, with a gradient of zero."""

    @staticmethod
    def forward(ctx: FunctionCtx, *weights: Tensor) -> Tensor:
        return weights[0].new_zeros(())

    @staticmethod
    def backward(ctx: BackwardCFunction, *arrived: Tensor) -> tuple[None, ...]:
        return tuple(None for _ in ctx.needs_input_grad)


class Replica:
    """A DDP wrapper, with the other replicas of its stage."""

    def __init__(self, wrapper: DistributedDataParallel) -> None:
        self._wrapper = wrapper
        self._weights = trained(wrapper.module)
        self._behind = False
        if wrapper.static_graph:
            self._begin()

    @property
    def views(self) -> bool:
        """True if gradients are views of DDP's buckets, which the next average overwrites."""
        return bool(self._wrapper.gradient_as_bucket_view)

    def average(self) -> None:
        """Replace ``.grad`` by its mean over the replicas, now or in the first step outside `no_sync`. A collective.

        Under `no_sync` the average is deferred: gradients are in ``.grad`` only at the end of a step, where `catch_up`
        averages them.
        """
        self._behind |= not self._wrapper.require_backward_grad_sync
        if not self._behind:
            self._reach()

    def catch_up(self) -> None:
        """Average the gradients of earlier `no_sync` steps at the end of a step, unless it is also in `no_sync`."""
        if self._behind and self._wrapper.require_backward_grad_sync:
            self._behind = False
            self._reach()

    def _begin(self) -> None:
        """Run two backwards of a static graph, on zeros.

        In the first, DDP counts how often the gradient hook of each weight is called. Until the second begins, it would
        also count the calls that the backwards of microbatches cause, so both run before training.
        """
        before = [weight.grad for weight in self._weights]
        for _ in range(2):
            for weight in self._weights:
                weight.grad = torch.zeros_like(weight)
            self._reach()
        for weight, gradient in zip(self._weights, before, strict=True):
            weight.grad = gradient

    @torch.enable_grad()
    def _reach(self) -> None:
        """Run a forward and a backward of DDP that reach all weights.

        Raises:
            RunError: PS831 if DDP waits for weights that were frozen after it was built.
        """
        wrapper = self._wrapper
        if all(weight.requires_grad for weight in self._weights):
            wrapper._pre_forward(self._weights[0].new_zeros(()))
            made = _Reach.apply(*self._weights)
            wrapper._post_forward(made).backward()
            return
        message = "DistributedDataParallel cannot average: weights were frozen after the first step"
        raise RunError(Fault(UNSUPPORTED, message, help="rebuild the stage's DDP and the runtime"))


def check_replicas(wrappers: Mapping[Held, Sequence[DistributedDataParallel]], stream: Stream, rank: int) -> None:
    """Require that the processes among which DDP averages hold the same stages of the same program. A collective.

    Raises:
        RunError: PS831 on all processes, naming a process that differs.
    """
    for held, parts in sorted(wrappers.items()):
        for part in parts:
            cards = everybody((stream.fingerprint, rank, *held), part.process_group)
            for number, card in enumerate(cards):
                if card != cards[0]:
                    raise RunError(_not_replicas(number, cards[0], card))


def _not_replicas(number: int, first: _Card, other: _Card) -> Fault:
    (_, rank, route, stage), (_, *theirs) = first, other
    what = f"replicas 0 and {number} of stage {stage}, which run different streams"
    if theirs != [rank, route, stage]:
        what = f"stage {stage} on rank {rank} and stage {theirs[2]} on rank {theirs[0]}"
    help = "DistributedDataParallel(stage, process_group=…) needs the group of the replicas of this stage"
    return Fault(UNSUPPORTED, f"DistributedDataParallel averages {what}", Place(rank), (), help)
