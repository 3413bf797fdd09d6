"""Weights of different ranks that look like one.

A weight that the first and the last stage share is, once the stages are on two ranks, two tensors, and each gets only
a part of its gradient: nothing fails, the model just trains wrong. Nobody tells us, but such weights begin with the
same values. So every rank shows a digest of a few numbers of every weight, and equal ones are pointed at, unless all
weights of both stages are equal: then the stages are copies, not tied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from pipesched.runtime.shapes import TensorSpec

SAMPLE = 64  # numbers of a weight that are shown

Shown = Mapping[str, str]
"""By the weight's name what stands for its shape, dtype and numbers; without weights whose numbers are all one."""


class LooksTied(UserWarning):
    """Two weights on different ranks begin with the same values, and are not declared as tied."""


def shown(module: nn.Module) -> dict[str, str]:
    """A few numbers of each weight of a stage, as a digest: equal ones are equal, bit by bit."""
    found = {}
    for name, weight in module.named_parameters():
        sample = weight.detach().flatten()[:SAMPLE].cpu()
        if sample.numel() > 1 and not bool((sample == sample[0]).all()):
            digest = hashlib.sha256(bytes(sample.contiguous().view(torch.uint8).tolist()))
            found[name] = f"{TensorSpec.of(weight)} {digest.hexdigest()}"
    return found


def look(stages: Sequence[Shown], ranks: Sequence[int], declared: Sequence[Sequence[tuple[int, str]]]) -> list[str]:
    """What to warn of. stages: what each stage shows; ranks: who holds each."""
    known = [set(group) for group in declared]
    first: dict[str, tuple[int, str]] = {}
    found = []
    for stage, weights in enumerate(stages):
        for name, sample in weights.items():
            other, named = first.setdefault(sample, (stage, name))
            pair = {(other, named), (stage, name)}
            if ranks[other] == ranks[stage] or any(pair <= group for group in known):
                continue
            if len(weights) > 1 and sorted(weights.values()) == sorted(stages[other].values()):
                continue
            found.append(f"{named!r} of stage {other} and {name!r} of stage {stage} begin with the same values")
    return found
