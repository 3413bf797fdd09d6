"""Delayed gradient descent by its formula, and a rank that trains with STEPs inside its order.

    stash      loss of the whole model, stage s at version max(0, i - (p - 1 - s)) // k for microbatch i
    delay d    loss of the whole model, every stage at version max(0, t - d) for batch t = i // k
    latest     forwards as with stash; a backward by hand with the weights of version i // k and the old activations

These are the versions of 1F1B without a flush; no list is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pipesched.runtime import Runtime
from pipesched.runtime.execute.weights import Weights
from pipesched.stream import Stream
from tests.runtime.models import batch, blocks, copies, squared

Named = dict[str, Tensor]
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.05),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.01, foreach=True),
}


def stepped(rank: int, stream: Stream, k: int, kind: str, windows: int = 2) -> dict[str, Any]:
    """Train for some windows; return the largest difference of any version of any weight of this rank from the formula,
    the difference of the losses, the versions counted by storage, and the largest weight as a scale.
    """
    p, m = stream.stages, stream.microbatches
    whole = blocks(p)
    mine = copies(whole)[rank]
    optimizer = OPTIMIZERS[kind](mine.parameters())
    made: list[list[Tensor]] = []

    def optimize(stage: int) -> None:
        assert stage == rank
        optimizer.step()
        made.append([weight.detach().clone() for weight in mine.parameters()])

    inputs, targets = batch(m)
    runtime = Runtime(
        stream, {(0, rank): mine}, squared, rank=rank, example=inputs[: len(inputs) // m], optimize=optimize
    )
    losses = [float(runtime.step(inputs, targets)) for _ in range(windows)]
    expected, history = formula(whole, stream.versions, k, kind, inputs.chunk(m), targets.chunk(m), windows)
    pairs = [(a, b) for x, y in zip(made, history[rank], strict=True) for a, b in zip(x, y, strict=True)]
    return {
        "error": max(float((a - b).abs().max()) for a, b in pairs),
        "loss": max(abs(a - b) for a, b in zip(losses, expected, strict=True)),
        "versions": runtime.versions[rank],
        "last": [weight.tolist() for weight in made[-1]],
        "left": sum(weight.grad is not None for weight in mine.parameters()),
    }


def overwritten(rank: int, stream: Stream, k: int) -> tuple[bool, bool]:
    """Train with a runtime whose STEPs overwrite a version that is still read. Return whether that happened on this
    rank, and whether the weights are those of the formula.
    """
    right, dropped = Weights._wanted, set[int]()

    def others(own: Weights) -> set[int]:
        dropped.update({own.made} & right(own))
        return right(own) - {own.made}

    with mock.patch.object(Weights, "_wanted", others):
        found = stepped(rank, stream, k, "SGD", 1)
    return bool(dropped), bool(found["error"] <= 1e-12)


def formula(
    stages: Sequence[nn.Module],
    rule: str,
    k: int,
    kind: str,
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    windows: int,
) -> tuple[list[float], list[list[list[Tensor]]]]:
    """Return the mean loss of every window, and by stage all versions that its STEPs make."""
    p, losses = len(stages), []
    optimizers = [OPTIMIZERS[kind](stage.parameters()) for stage in stages]
    history: list[list[list[Tensor]]] = [[] for _ in stages]
    for _ in range(windows):
        versions = [[_weights(stage)] for stage in stages]
        total = 0.0
        for t in range(len(inputs) // k):
            sums: list[Named] = [{} for _ in stages]
            for i in range(t * k, t * k + k):
                at = [max(0, i - (p - 1 - s)) // k for s in range(p)]
                if rule.startswith("delay"):
                    at = [max(0, t - int(rule.split()[1]))] * p
                old = [versions[s][at[s]] for s in range(p)]
                if rule == "latest":
                    loss, found = by_hand(old, [versions[s][i // k] for s in range(p)], inputs[i], targets[i])
                else:
                    loss, found = of_one_loss(stages, old, inputs[i], targets[i])
                total += loss / len(inputs)
                for own, part in zip(sums, found, strict=True):
                    own |= {name: own[name] + x if name in own else x for name, x in part.items()}
            for s, stage in enumerate(stages):
                for name, weight in stage.named_parameters():
                    weight.grad = sums[s][name] / k
                optimizers[s].step()
                versions[s].append(_weights(stage))
                history[s].append([*versions[s][-1].values()])
        losses.append(total)
    return losses, history


def _weights(stage: nn.Module) -> Named:
    return {name: weight.detach().clone() for name, weight in stage.named_parameters()}


def of_one_loss(
    stages: Sequence[nn.Module], weights: Sequence[Named], x: Tensor, target: Tensor
) -> tuple[float, list[Named]]:
    """Return the loss of the whole model at these weights, and its gradients by stage."""
    leaves = [{name: value.clone().requires_grad_() for name, value in own.items()} for own in weights]
    for stage, own in zip(stages, leaves, strict=True):
        x = functional_call(stage, own, (x,))
    loss = squared(x, target)
    found = iter(torch.autograd.grad(loss, [value for own in leaves for value in own.values()]))
    return float(loss.detach()), [{name: next(found) for name in own} for own in leaves]


def by_hand(old: Sequence[Named], new: Sequence[Named], x: Tensor, target: Tensor) -> tuple[float, list[Named]]:
    """Return the loss, and the gradients where forwards have the old weights and backwards the new ones.

    A stage is x + back(tanh(wide(norm(x)))).
    """
    kept = []
    for w in old:
        spread = 1 / torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)
        even = (x - x.mean(-1, keepdim=True)) * spread
        normed = even * w["norm.weight"] + w["norm.bias"]
        bent = torch.tanh(normed @ w["wide.weight"].T + w["wide.bias"])
        kept.append((spread, even, normed, bent))
        x = x + bent @ w["back.weight"].T + w["back.bias"]
    loss, grad = squared(x, target), 2 * (x - target) / x.numel()
    found: list[Named] = []
    for w, (spread, even, normed, bent) in zip(reversed(new), reversed(kept), strict=True):
        inner = (grad @ w["back.weight"]) * (1 - bent**2)
        into = inner @ w["wide.weight"]
        found.append(
            {
                "norm.weight": (into * even).sum(0),
                "norm.bias": into.sum(0),
                "wide.weight": inner.T @ normed,
                "wide.bias": inner.sum(0),
                "back.weight": grad.T @ bent,
                "back.bias": grad.sum(0),
            }
        )
        scaled = into * w["norm.weight"]
        mean, along = scaled.mean(-1, keepdim=True), (scaled * even).mean(-1, keepdim=True)
        grad = grad + spread * (scaled - mean - even * along)
    return float(loss), found[::-1]


def refused(rank: int, stream: Stream, what: str) -> str:
    """Return the message for a stage that cannot have several versions."""
    whole = blocks(stream.stages)
    mine: nn.Module = whole[rank]
    if what == "DDP":
        mine = nn.parallel.DistributedDataParallel(mine, process_group=torch.distributed.new_group([rank]))
    tied = [[(0, "wide.weight"), (1, "wide.weight")]] if what == "tied" else ()
    inputs, _ = batch(stream.microbatches)
    try:
        Runtime(
            stream,
            {(0, rank): mine},
            squared,
            rank=rank,
            example=inputs[: len(inputs) // stream.microbatches],
            optimize=None if what == "optimize" else lambda stage: None,
            tied=tied,
        )
    except Exception as error:
        return str(error)
    return ""
