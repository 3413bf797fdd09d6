"""Tied weights: one weight in the model but several tensors here, such as an embedding and its head.

    declared    `Runtime(tied=…)`: each tensor gets the sum of all their gradients, so they stay equal
    undeclared  tensors with the same initial values are refused: each would get only its part of the gradient

Equality is judged from a sample of every weight, which ranks exchange before the first step. Weights with regular
values, such as zeros or 1, 2, 3, …, may be equal by chance and are not refused. If several weights of a block all begin
like the weights of another block, the block is usually a copy that is trained separately, so there is only a warning.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import TypeAlias, TypedDict

import torch
from torch import nn

from pipesched.runtime.execute.errors import BOUNDARY, UNSUPPORTED, Fault, Place, RunError
from pipesched.runtime.execute.passed import home
from pipesched.runtime.execute.shapes import TensorSpec
from pipesched.stream import Stream

Weight: TypeAlias = tuple[int, str]
"""A stage, and the name of one of its parameters."""
Tied: TypeAlias = Sequence[Sequence[Weight]]
Shown: TypeAlias = Mapping[str, tuple[str, bool]]
"""For each weight name: a digest of its shape, its dtype and some of its values, and whether the values look random."""
Parameter: TypeAlias = tuple[str, Sequence[int], str, bool, Sequence[Weight]]
"""The name, shape and dtype of a weight, whether it is trained, and all its names on its rank."""


class Reported(TypedDict, total=False):
    """A rank's report of its weights, by ``route/stage``; the keys are missing if a module is not supported."""

    replicas: Mapping[str, int]
    weights: Mapping[str, Sequence[Parameter]]
    shown: Mapping[str, Shown]
    tied: Tied | None


class Note(Reported):
    """A rank's report before step 1, as JSON. unsupported: the message and the help text, if a module is refused."""

    unsupported: tuple[str, str] | None


SAMPLE = 64  # numbers of a weight that are sampled, spread over the whole weight
_DRAWN = 3  # fewest distinct unsorted numbers that look random


class LooksTied(UserWarning):
    """Weights begin with the same values but are not declared as tied."""


def shown(module: nn.Module) -> dict[str, tuple[str, bool]]:
    """Return a digest of a few values of each weight of a stage; equal digests mean equal bits."""
    found = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        flat = weight.detach().flatten()
        step = max(1, flat.numel() // SAMPLE)
        sample = flat[::step].cpu().contiguous()
        digest = hashlib.sha256(bytes(sample.view(torch.uint8).tolist())).hexdigest()
        found[name] = (
            f"{TensorSpec.of(weight)} {digest}",
            _drawn((sample.abs() if sample.is_complex() else sample).tolist()),
        )
    return found


def _drawn(numbers: Sequence[float]) -> bool:
    """Return True if numbers look random: most of them differ, and they are not sorted."""
    rises = {a < b for a, b in pairwise(numbers)}
    return len(rises) == 2 and len({*numbers}) >= max(_DRAWN, len(numbers) // 2)


def plain(tied: Tied | None) -> Tied | None:
    """Return the tied weights as JSON data."""
    return None if tied is None else [[(stage, name) for stage, name in group] for group in tied]


def exchanged(stream: Stream, notes: Sequence[Note], tied: Tied | None, *, warn: bool) -> list[list[Weight]]:
    """Return the groups whose gradients are exchanged, with one name per tensor; the same on every rank.

    notes: the reports of the ranks. warn: whether this rank warns about weights that may be tied or separate.

    Raises:
        RunError: PS831 if weights look tied but are not declared, or if declared weights do not exist, are not alike,
        or differ between ranks. PS824 if tied weights begin with different values.
    """
    for rank, note in enumerate(notes):
        if note["tied"] != notes[0]["tied"]:
            message = f"rank {rank} ties different weights than rank 0"
            raise RunError(Fault(UNSUPPORTED, message, Place(rank), (), "pass the same groups to `tied` on every rank"))
    model = _Model(stream, notes)
    groups = [[(stage, name) for stage, name in group] for group in tied or ()]
    for group in groups:
        model.require_alike(group)
    model.require_once([weight for group in groups for weight in group])
    model.look(groups, told=tied is not None, warn=warn)
    return [group for group in map(model.apart, groups) if len(group) > 1]


class _Model:
    """The weights of all stages, as their ranks report them."""

    def __init__(self, stream: Stream, notes: Sequence[Note]) -> None:
        self.routes = [route.ranks for route in stream.placement]
        self.rank_of = [home(stream, stage) for stage in range(stream.stages)]
        first = (next(x for x, ranks in enumerate(self.routes) if ranks[s] >= 0) for s in range(stream.stages))
        at = [(self.rank_of[stage], f"{route}/{stage}") for stage, route in enumerate(first)]
        self.shown: list[Shown] = [notes[rank]["shown"][key] for rank, key in at]
        self.weights = {
            (stage, name): (tuple(shape), dtype, trained)
            for stage, (rank, key) in enumerate(at)
            for name, shape, dtype, trained, _ in notes[rank]["weights"][key]
        }
        self.sharing = {
            (route, stage, name): frozenset((of, other) for of, other in shared)
            for route, ranks in enumerate(self.routes)
            for stage, rank in enumerate(ranks)
            if rank >= 0
            for name, _, _, _, shared in notes[rank]["weights"][f"{route}/{stage}"]
        }

    def require_alike(self, group: Sequence[Weight]) -> None:
        """Require that the weights of a group agree in shape, dtype, initial values, and whether they are trained."""
        for stage, name in group:
            if (stage, name) not in self.weights:
                there = [other for of, other in self.weights if of == stage]
                help = f"its weights are {', '.join(there[:8])}{', …' if len(there) > 8 else ''}" if there else None
                raise _refused(f"stage {stage} has no weight {name!r}, which `tied` names", None, help)
        first = group[0]
        for weight in group[1:]:
            if self.weights[weight] != self.weights[first]:
                what = f"{_kind(self.weights[first])} and {_kind(self.weights[weight])}"
                raise _refused(
                    f"{_both(first, weight)} are declared as one weight, but are {what}", self._rank(weight), None
                )
            if self.shown[weight[0]][weight[1]] != self.shown[first[0]][first[1]]:
                message = f"{_both(first, weight)} are declared as one weight, but begin with different values"
                help = "copy the values of one tensor to the others before building the runtime"
                raise RunError(Fault(BOUNDARY, message, Place(self._rank(weight)), (), help))

    def require_once(self, named: Sequence[Weight]) -> None:
        twice = next((weight for at, weight in enumerate(named) if weight in named[:at]), None)
        if twice is not None:
            help = "put all tensors of one weight into one group"
            raise _refused(f"{_one(twice)} is named twice in `tied`", self._rank(twice), help)

    def apart(self, group: Sequence[Weight]) -> list[Weight]:
        """Return the group with one name per tensor; with copies of stages, [] if each rank has a single tensor."""
        once = [x for at, x in enumerate(group) if not any(self._one_tensor(x, y) for y in group[:at])]
        if len(self.routes) == 1:
            return once
        once = [x for at, x in enumerate(group) if not any(self._one_tensor(x, y) and x[0] == y[0] for y in group[:at])]
        held = [self.sharing[route, *weight] & {*once} for route in range(len(self.routes)) for weight in once]
        if all(len(together) == 1 for together in held):
            return once
        if all(together == {*once} for together in held):
            return []  # each SYNC adds the gradients of all of them
        message = f"{_both(*group[:2])} are one tensor on some ranks, but separate tensors on others"
        raise _refused(message, None, "give each stage a separate tensor, or let the stages of every rank share one")

    def _one_tensor(self, one: Weight, other: Weight) -> bool:
        return other in self.sharing[0, *one]

    def look(self, groups: Sequence[Sequence[Weight]], *, told: bool, warn: bool) -> None:
        """Refuse weights that begin with the same values and are in no group; warn if this may be intended."""
        known = [*map(set, groups)]
        found = [
            (one, other)
            for one, other in self._alike()
            if not self._one_tensor(one, other) and not any({one, other} <= group for group in known)
        ]
        single = [pair for pair in found if not self._copied(*pair)]
        if single and not told:
            raise self._untold(single)
        for one, other in (single[:1] or ([] if told else found[:1])) if warn else ():
            help = "if they are one weight, name them in `Runtime(tied=…)`: each now gets only its part of the gradient"
            warnings.warn(f"{_both(one, other)} begin with the same values; {help}", LooksTied, stacklevel=4)

    def _alike(self) -> Iterator[tuple[Weight, Weight]]:
        """Yield the pairs of trained weights with equal initial values that look random."""
        of: dict[str, list[Weight]] = {}
        for stage, weights in enumerate(self.shown):
            for name, (digest, drawn) in weights.items():
                if drawn and self.weights[stage, name][2]:
                    of.setdefault(digest, []).append((stage, name))
        for alike in of.values():
            yield from combinations(alike, 2)

    def _copied(self, one: Weight, other: Weight) -> bool:
        """Return True if both weights belong to blocks that have several weights, all with equal initial values."""
        names, others = one[1].split("."), other[1].split(".")
        while names and others and names.pop() == others.pop():
            parts = [self._within(of, ".".join(path)) for of, path in ((one[0], names), (other[0], others))]
            if len(parts[0]) > 1 and parts[0] == parts[1]:
                return True
        return False

    def _within(self, stage: int, block: str) -> dict[str, str]:
        """Return the digests of the random-looking weights of a block, by their names in the block."""
        before = f"{block}." if block else ""
        return {
            name.removeprefix(before): digest
            for name, (digest, drawn) in self.shown[stage].items()
            if drawn and name.startswith(before)
        }

    def _untold(self, pairs: Collection[tuple[Weight, Weight]]) -> RunError:
        groups: list[list[Weight]] = []
        for one, other in pairs:
            group = next((group for group in groups if one in group or other in group), None)
            if group is None:
                groups.append([one, other])
            else:
                group += [weight for weight in (one, other) if weight not in group]
        one, other = groups[0][:2]
        where = "" if self._rank(one) != self._rank(other) else ", and are two tensors"
        message = f"{_both(one, other)} begin with the same values{where}, but are not declared as tied"
        note = "each is trained on its own part of the gradient, so they diverge"
        help = f"`Runtime(tied={groups})` trains them as one weight; `tied=()` declares them separate"
        return RunError(Fault(UNSUPPORTED, message, Place(self._rank(other)), (note,), help))

    def _rank(self, weight: Weight) -> int:
        return self.rank_of[weight[0]]


def _refused(message: str, rank: int | None, help: str | None) -> RunError:
    return RunError(Fault(UNSUPPORTED, message, None if rank is None else Place(rank), (), help))


def _one(weight: Weight) -> str:
    return f"{weight[1]!r} of stage {weight[0]}"


def _both(one: Weight, other: Weight) -> str:
    return f"{_one(one)} and {_one(other)}"


def _kind(weight: tuple[tuple[int, ...], str, bool]) -> str:
    shape, dtype, trained = weight
    return f"{dtype.removeprefix('torch.')}{list(shape)}{'' if trained else ' frozen'}"
