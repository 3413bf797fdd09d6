"""Runs the backward of one microbatch through one stage, full or split in two.

    B   d loss / d input  and  d loss / d weights     one pass over the graph
    I   d loss / d input                              keeps the gradients at the nodes where weights branch off
    W   d loss / d weights                            from those nodes on, without a second pass over the rest

torch's own stage backward does the split. It is wrong or raises an error in four cases, which are handled here:

- a stage whose inputs have no gradient (usually the first stage) has nothing to split: I does nothing, and W runs B;
- weights that no input reaches (an output that depends only on weights) are missed by the split, and weights that a
  stage uses several times are counted twice before torch 2.13: they get their gradient at I;
- the graph is kept until all of W is done, so that layers applied several times share it safely;
- a stage that cannot be split runs a full backward at I, with a warning, and W does nothing: reentrant and selective
  checkpointing, which have a single backward, and compiled graphs, which torch would run twice.

I frees all values that W does not need, and keeps the gradients with which W begins; W frees the rest. Other activation
checkpointing inside a stage yields correct gradients, but its W runs the forward once per group of weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.utils._python_dispatch import TorchDispatchMode

from pipesched.runtime.execute.replicas import trained

_ENTER = "__enter__"
_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

Gradients = tuple[Tensor | None, ...]
Group: TypeAlias = dict[str, Collection[Node]]
"""The weights that torch's split backward handles as a group; `params` and `intermediates` are nodes of the graph."""


class NotSplit(UserWarning):
    """A stage's backward is not split: I runs all of it."""


@dataclass(eq=False, slots=True)
class Saved:
    """The state of a microbatch between its F and the end of its backward.

    inputs: the graph's leaves. roots: the outputs, or the loss. arrived: the gradients of the roots, once known. once:
    the reason why the backward can run only once, or None. weights: the tensors that the module used in place of its
    own parameters, if any.
    """

    inputs: tuple[Tensor, ...]
    roots: tuple[Tensor, ...]
    arrived: Gradients = ()
    once: str | None = None
    weights: tuple[Tensor, ...] = ()
    groups: list[Group] | None = None
    done: bool = field(default=False)


def full(saved: Saved) -> Gradients:
    """Run B: return the gradients of the inputs, and add the gradients of the weights to ``.grad``."""
    pairs = [(root, arrived) for root, arrived in zip(saved.roots, saved.arrived, strict=True) if root.requires_grad]
    if pairs:
        torch.autograd.backward([root for root, _ in pairs], [arrived for _, arrived in pairs])
    return _taken(saved.inputs)


def for_input(saved: Saved, module: nn.Module) -> Gradients:
    """Run I: return the gradients of the inputs, and leave the values for W in `saved`."""
    if not any(x.requires_grad for x in saved.inputs):
        return tuple(None for _ in saved.inputs)
    roots = [(r, a) for r, a in zip(saved.roots, saved.arrived, strict=True) if r.requires_grad]
    nodes = list(_nodes([r.grad_fn for r, _ in roots if r.grad_fn is not None]))
    reason = saved.once or next((_WHOLE[node.name()] for node in nodes if node.name() in _WHOLE), None)
    if reason is None:
        reason = _split(saved, module, roots, nodes)
        if reason is None:
            return _taken(saved.inputs)
    warnings.warn(
        f"{type(module).__name__} cannot be split: {reason}; I runs its full backward", NotSplit, stacklevel=2
    )
    saved.done = True
    return full(saved)


def for_weights(saved: Saved, module: nn.Module) -> None:
    """Run W: add the gradients of the weights to ``.grad``."""
    if saved.done:
        return
    if saved.groups is None:
        full(saved)
        return
    stage_backward_weight(_each(saved.weights or trained(module)), saved.groups, retain_graph=True)


def _split(saved: Saved, module: nn.Module, roots: list[tuple[Tensor, Tensor | None]], nodes: list[Node]) -> str | None:
    """Run torch's backward for the input. Return the reason if it fails, otherwise None; the graph stays intact."""
    edges = [get_gradient_edge(root) for root, _ in roots]
    arrived = [torch.ones_like(r) if a is None else a for r, a in roots]
    weights = saved.weights or trained(module)
    try:
        _, groups = stage_backward_input([r for r, _ in roots], arrived, list(saved.inputs), _each(weights))
    except (RuntimeError, AttributeError) as error:
        cause = error.__cause__ or error
        _taken(saved.inputs)
        return f"{type(cause).__name__}: {str(cause).splitlines()[0]}"
    saved.groups = [group for group in groups if group.get("grads") is not None and _counts_once(group)]
    _missed(weights, saved.groups, nodes, edges, arrived)
    saved.roots = ()
    return None


def _missed(
    weights: Sequence[Tensor],
    groups: list[Group],
    nodes: list[Node],
    edges: list[GradientEdge],
    arrived: list[Tensor],
) -> None:
    """Add the gradients of weights that no input reaches: the split backward misses them."""
    grouped = {node for group in groups for node in group["params"]}
    by_node = {id(node.variable): node for node in nodes if hasattr(node, "variable")}
    missed = [w for w in weights if id(w) in by_node and by_node[id(w)] not in grouped]
    if missed:
        found = torch.autograd.grad(edges, missed, arrived, retain_graph=True, allow_unused=True)
        for weight, gradient in zip(missed, found, strict=True):
            if gradient is not None:
                weight.grad = gradient if weight.grad is None else weight.grad + gradient


def _counts_once(group: Group) -> bool:
    """Return True if torch's W is correct for a group: before 2.13, torch counts a weight twice if it is used twice."""
    return _VERSION >= (2, 13) or len(group["intermediates"]) == 1


# Nodes of the graph that compute all gradients together, and only once.
_WHOLE = {
    "CheckpointFunctionBackward": "reentrant activation checkpointing (use_reentrant=True) can run only one backward",
    "CompiledFunctionBackward": "a graph of torch.compile can run only one backward",
}


@contextmanager
def selective() -> Iterator[list[str]]:
    """Detect selective activation checkpointing during a forward, since its backward can run only once.

    Such checkpointing returns each saved value only once and leaves no trace in the graph, so it must be detected
    during the forward.
    """
    mode = torch.utils.checkpoint._CachingTorchDispatchMode
    found: list[str] = []
    enter, own = mode.__enter__, _ENTER in vars(mode)

    def noticed(self: TorchDispatchMode) -> object:
        found.append("selective activation checkpointing can run only one backward")
        return enter(self)

    setattr(mode, _ENTER, noticed)
    try:
        yield found
    finally:
        if own:
            setattr(mode, _ENTER, enter)
        else:
            delattr(mode, _ENTER)


def _nodes(roots: list[Node]) -> Iterator[Node]:
    """Yield every node of the graph."""
    seen = set(roots)
    stack = list(roots)
    while stack:
        node = stack.pop()
        yield node
        for after, _ in node.next_functions:
            if after is not None and after not in seen:
                seen.add(after)
                stack.append(after)


def _each(weights: Sequence[Tensor]) -> Iterator[nn.Parameter]:
    return cast("Iterator[nn.Parameter]", iter(weights))  # torch accepts all leaves


def _taken(inputs: tuple[Tensor, ...]) -> Gradients:
    """Return the gradients of the leaves, and clear them there."""
    found = tuple(x.grad for x in inputs)
    for x in inputs:
        x.grad = None
    return found
