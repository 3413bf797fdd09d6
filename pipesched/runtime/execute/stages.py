"""A stage of this rank: its forward, its backward, and the state of each microbatch in between.

    inputs ─detach─> leaves ─module─> outputs ─detach─> to the next stage
                        │                │
                        └──── Saved ─────┘     from F to the end of B or W

A forward that will be recomputed keeps its inputs and the random state, and no graph; R recomputes what the F keeps. O
can copy the kept tensors to host memory, and L back (`offload`).

Only values pass between stages, so the graph of a microbatch is cut at every boundary, and each backward begins with
the gradients from the next stage. On the last stage, the backward begins with the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pipesched.runtime.execute import backward
from pipesched.runtime.execute.backward import Saved
from pipesched.runtime.execute.errors import BOUNDARY, UNSUPPORTED, Fault, RunError
from pipesched.runtime.execute.offload import Boxes
from pipesched.runtime.execute.replicas import passed_by, replicated
from pipesched.runtime.execute.shapes import Boundary, check, gradients, taken, tensors_of
from pipesched.runtime.execute.weights import Weights

Loss = Callable[..., Tensor]
Score = Callable[..., Tensor]
Keywords = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Lost:
    """The state kept from an F until it is recomputed: its inputs, their version counters, the random state."""

    inputs: tuple[Tensor, ...]
    versions: tuple[int, ...]
    random: tuple[Tensor, ...]


class Stage:
    """A module at its place in the pipeline.

    entering, leaving: the input and output boundaries, by microbatch; leaving is None on the last stage, which has the
    loss. train: whether a forward keeps what a backward needs. asks: for each input tensor, whether its producer needs
    a gradient. frozen: whether weights need no gradient, so that I is the whole backward. weights: the versions of the
    weights, if STEPs are inside the order.
    """

    def __init__(
        self,
        module: nn.Module,
        number: int,
        entering: Sequence[Boundary],
        leaving: Sequence[Boundary] | None,
        device: torch.device,
        *,
        split: bool,
        train: bool,
        asks: Sequence[bool],
        frozen: bool,
        weights: Weights | None = None,
    ) -> None:
        self.module, self.number, self.device = module, number, device
        self.entering, self.leaving = entering, leaving
        self.split, self.train, self.asks, self.frozen = split, train, asks, frozen
        self.weights = weights
        self.live: dict[int, Saved] = {}
        self.lost: dict[int, Lost] = {}
        self.boxes: dict[int, Boxes] = {}
        self._gpus = [device] if device.type == "cuda" else []
        self._wrappers = replicated(module)

    def forward(self, microbatch: int, inputs: Sequence[Tensor], keywords: Keywords) -> tuple[Tensor, ...]:
        """Run F of any stage but the last; return the inputs of the next stage.

        Raises:
            RunError: PS824 if the output does not fit the next stage.
        """
        assert self.leaving is not None
        with self._noticing() as once:
            leaves, output = self._run(microbatch, inputs, keywords)
        outputs = tensors_of(output, f"the output of stage {self.number}")
        check(outputs, self.leaving[microbatch], f"activation {microbatch} of stage {self.number}")
        if self.train:
            roots = tuple(map(self._root, outputs))
            self.live[microbatch] = Saved(leaves, roots, once=next(iter(once), None), weights=self._of(microbatch))
        return tuple(tensor.detach() for tensor in outputs)

    def forward_last(
        self, microbatch: int, inputs: Sequence[Tensor], keywords: Keywords, score: Score | None
    ) -> tuple[object, Tensor | None]:
        """Run F of the last stage; return its output and its loss, a number. score: returns an output's loss.

        Raises:
            RunError: PS824 if the loss is not a scalar.
        """
        with self._noticing() as once:
            leaves, output = self._run(microbatch, inputs, keywords)
            if score is None:
                return output, None
            with torch.set_grad_enabled(self.train):
                value: object = score(output)
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            message = f"the loss of microbatch {microbatch} is not a scalar: {shape}"
            raise RunError(Fault(BOUNDARY, message, None, (), "reduce it, for instance with mean()"))
        if self.train:
            roots = (self._root(value),)
            self.live[microbatch] = Saved(leaves, roots, once=next(iter(once), None), weights=self._of(microbatch))
        return output, value.detach().reshape(())

    @contextmanager
    def letting_go(self, microbatch: int, inputs: Sequence[Tensor]) -> Iterator[None]:
        """Return the context for an F that will be recomputed."""
        random = (torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._gpus))
        self.lost[microbatch] = Lost(tuple(inputs), tuple(x._version for x in inputs), random)
        train, self.train = self.train, False
        try:
            yield
        finally:
            self.train = train
            torch.clear_autocast_cache()  # clears the cached casts of weights without a gradient

    def boxing(self, microbatch: int, inputs: Sequence[object]) -> AbstractContextManager[object]:
        """Return the context for an F on a rank that offloads. inputs: the model's own inputs, which are not moved."""
        own = (*self.module.parameters(), *self.module.buffers(), *inputs)
        self.boxes[microbatch] = boxes = Boxes(own)
        return boxes.packing()

    def offload(self, microbatch: int) -> None:
        """Run O: copy the tensors that the F keeps to host memory."""
        saved = self._kept(microbatch)
        self.boxes[microbatch].out((*saved.inputs, *saved.roots))

    def load(self, microbatch: int) -> None:
        """Run L: copy the tensors back."""
        self.boxes[microbatch].back(self.device)

    def recompute(self, microbatch: int, keywords: Keywords, score: Score | None) -> None:
        """Run R: repeat the forward with the same random numbers.

        Raises:
            RunError: PS831 if the stage changes its input in place.
        """
        if microbatch not in self.lost:
            raise LookupError(f"stage {self.number} has no F of microbatch {microbatch} to recompute")
        lost = self.lost.pop(microbatch)
        if tuple(x._version for x in lost.inputs) != lost.versions:
            message = f"stage {self.number} changes its input in place, so its forward cannot be run again"
            raise RunError(Fault(UNSUPPORTED, message, None, (), "change a copy of it, or remove R from the stream"))
        with torch.random.fork_rng(devices=self._gpus):
            torch.set_rng_state(lost.random[0])
            for gpu, state in zip(self._gpus, lost.random[1:], strict=True):
                torch.cuda.set_rng_state(state, gpu)
            if self.leaving is None:
                self.forward_last(microbatch, lost.inputs, keywords, score)
            else:
                self.forward(microbatch, lost.inputs, keywords)

    def backward(self, op: str, microbatch: int, arrived: Sequence[Tensor] | None) -> backward.Gradients:
        """Run B or I; return the gradients of the inputs that can have one, None if no output depends on the input.

        arrived: the gradients of the outputs that can have one; None on the last stage.
        """
        saved = self._kept(microbatch)
        saved.arrived = (None,) if arrived is None else self._spread(microbatch, arrived)
        with self._as_computed():
            if op == "B" or self.frozen:
                found = backward.full(saved)
                self._done(microbatch)
            else:
                found = backward.for_input(saved, self.module)
        entering = self.entering[microbatch]
        return tuple(made for spec, made in zip(entering, found, strict=True) if spec.differentiable)

    def backward_weights(self, microbatch: int) -> None:
        """Run W: compute the gradients of the weights from the state that I left."""
        with self._as_computed():
            backward.for_weights(self._kept(microbatch), self.module)
        self._done(microbatch)

    def _done(self, microbatch: int) -> None:
        del self.live[microbatch]
        self.boxes.pop(microbatch, None)
        if self.weights is not None:
            self.weights.add(microbatch)

    def _of(self, microbatch: int) -> tuple[Tensor, ...]:
        """Return the trained tensors on which a microbatch runs; () if these are the module's own."""
        if self.weights is None:
            return ()
        return tuple(leaf for leaf in self.weights.read(microbatch).values() if leaf.requires_grad)

    def _as_computed(self) -> AbstractContextManager[object]:
        """Disable autocast: a backward uses the dtypes of its forward."""
        kind = self.device.type
        return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()

    def _noticing(self) -> AbstractContextManager[list[str]]:
        """Return the context that detects during a forward why its backward cannot be split."""
        return backward.selective() if self.split else nullcontext([])

    def _kept(self, microbatch: int) -> Saved:
        if microbatch not in self.live:
            raise LookupError(
                f"stage {self.number} keeps nothing of microbatch {microbatch}: no F yet, or already done"
            )
        return self.live[microbatch]

    def _run(self, microbatch: int, inputs: Sequence[Tensor], keywords: Keywords) -> tuple[tuple[Tensor, ...], object]:
        check(inputs, self.entering[microbatch], f"the input of stage {self.number}, microbatch {microbatch},")
        leaves = tuple(self._leaf(x, asks) for x, asks in zip(inputs, self.asks, strict=True))
        with torch.set_grad_enabled(self.train), passed_by(self._wrappers):
            given = taken(self.module, keywords)
            if self.weights is None:
                return leaves, self.module(*leaves, **given)
            return leaves, functional_call(self.module, self.weights.read(microbatch), leaves, given)

    def _leaf(self, value: Tensor, asks: bool) -> Tensor:
        """Return the leaf of this stage's graph; the model's own input has a gradient only if it requires one."""
        leaf = value.detach()
        wanted = value.requires_grad or (asks and (leaf.is_floating_point() or leaf.is_complex()))
        return leaf.requires_grad_(wanted and self.train)

    def _root(self, value: Tensor) -> Tensor:
        """Return the root of the backward: a clone of a view, which torch's split backward cannot detach."""
        return value.clone() if self.split and value._is_view() and value.requires_grad else value

    def _spread(self, microbatch: int, arrived: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """Return the gradients in the order of the outputs, None for outputs without one."""
        assert self.leaving is not None
        leaving = self.leaving[microbatch]
        check(arrived, gradients(leaving), f"the gradient for stage {self.number}")
        rest = iter(arrived)
        return tuple(next(rest) if spec.differentiable else None for spec in leaving)
