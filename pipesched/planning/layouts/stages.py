"""Seconds and bytes of every stage for many choices; most stages of a choice are alike.

The bytes and FLOPs of a stage are proportional to the tokens of a microbatch on a rank, b s / c, so they are computed
for one sequence and multiplied. Nanoseconds and bytes are rounded down, since they are for bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import lru_cache, wraps
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar, cast

from pipesched.model.costs import Costs
from pipesched.planning.layouts.space import Choice, Space
from pipesched.planning.transformer import activations, flops, parameters, state, times, traffic
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.devices import HALF, Device
from pipesched.planning.transformer.rules import layers_of
from pipesched.planning.transformer.times import link

NANO = 10**9
Made = TypeVar("Made")


@dataclass(frozen=True)
class Problem:
    """The choices and the cluster. cap: bytes per rank. efficiency: the fraction of the device's peak FLOP/s that is
    achieved. overlap: the share of the messages between copies that may overlap compute.
    """

    space: Space
    device: Device
    cap: Fraction
    efficiency: Fraction = HALF
    overlap: Fraction = Fraction(1)


@dataclass(frozen=True)
class Times:
    """The nanoseconds of F, I, W and of a message, by stage, including ZeRO's messages between copies.

    parts: seconds of one microbatch on all ranks: compute, recomputation, messages over t, over c, to experts, over d.
    """

    F: tuple[int, ...]
    I: tuple[int, ...]
    W: tuple[int, ...]
    C: tuple[int, ...]
    parts: tuple[float, ...]


@dataclass(frozen=True)
class Once:
    """The nanoseconds of a stage's messages that are sent once per step: (gradients after its last backward, ZeRO's
    parameters before its next forward). beside: overlapping compute, layer by layer; alone: not overlapping.
    """

    beside: tuple[float, float]
    alone: tuple[float, float]
    layers: int


def _kept(*sizes: str) -> Callable[[Callable[[Stages, Choice], Made]], Callable[[Stages, Choice], Made]]:
    """Cache a figure for all choices that agree in these sizes."""
    of = attrgetter("cut.stages", *sizes)

    def once(make: Callable[[Stages, Choice], Made]) -> Callable[[Stages, Choice], Made]:
        def found(self: Stages, choice: Choice) -> Made:
            key = make, of(choice)
            if key not in self.memo:
                self.memo[key] = make(self, choice)
            return cast("Made", self.memo[key])

        return wraps(make)(found)

    return once


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of the choices of a problem."""

    problem: Problem
    memo: dict[Hashable, object] = field(default_factory=dict)

    @property
    def model(self) -> Transformer:
        return self.problem.space.transformer

    @_kept("cut")
    def layers(self, choice: Choice) -> tuple[range, ...]:
        """Return the layers of each stage."""
        return layers_of(self.model, choice.training, choice.cut.stages)

    @_kept("cut")
    def _kinds(self, choice: Choice) -> tuple[int, ...]:
        """Return, for every stage, the first one with the same number of layers of each kind."""
        seen, found, last = dict[Hashable, int](), [], choice.cut.stages - 1
        for stage, layers in enumerate(self.layers(choice)):
            sort = (len(layers), sum(map(self.model.has_experts, layers)), stage == 0, stage == last)
            found.append(seen.setdefault(sort, stage))
        return tuple(found)

    def _each(self, choice: Choice, of: Callable[[int], Made]) -> tuple[Made, ...]:
        """Return a figure of every stage, computed once for each kind of stage."""
        kinds = self._kinds(choice)
        made = {kind: of(kind) for kind in dict.fromkeys(kinds)}
        return tuple(made[kind] for kind in kinds)

    @_kept("cut", "training.tensor", "training.expert")
    def _parts(self, choice: Choice) -> tuple[tuple[parameters.Part, ...], ...]:
        return parameters.by_stage(self.model, choice.training, choice.cut.stages)

    @_kept("cut", "training.tensor", "training.expert")
    def _counts(self, choice: Choice) -> tuple[tuple[Fraction, Fraction], ...]:
        """Return the parameters on one rank, with the parameters of experts separately."""
        found = self._parts(choice)
        return self._each(choice, lambda kind: parameters.counts(found[kind]))

    @_kept("cut", "training.tensor", "training.recompute")
    def saved(self, choice: Choice) -> tuple[int, ...]:
        """Return the least bytes that a stage keeps of one sequence on one rank, without context parallelism."""
        a, x, layers = self.model, _alone(choice.training), self.layers(choice)
        each = [activations.layer(a, x, index) for index in self._sorts]
        ends = {0: activations.embedding(a, x), len(layers) - 1: activations.head(a, x)}

        def stage(kind: int) -> int:
            return int(sum(each[a.has_experts(layer)] for layer in layers[kind]) + ends.get(kind, 0))

        return self._each(choice, stage)

    @property
    def _sorts(self) -> tuple[int, int]:
        """The indices of a layer without experts and of one with experts, if the model has them."""
        return 0, self.model.experts.dense_layers if self.model.experts else 0

    @_kept("cut", "training.tensor", "training.context", "training.data", "training.expert", "training.zero")
    def state(self, choice: Choice) -> tuple[int, ...]:
        """Return the bytes of parameters, gradients and optimizer on one rank."""
        found = self._parts(choice)
        return self._each(choice, lambda kind: int(state.state(self.model, choice.training, found[kind]).total))

    @_kept("cut", "training.tensor", "training.recompute")
    def _work(self, choice: Choice) -> tuple[tuple[float, ...], ...]:
        """Return the FLOPs of one sequence on one rank: for F, I and W, and for the part of I that recomputes an F."""
        found = flops.by_stage(self.model, _alone(choice.training), choice.cut.stages)
        return tuple(tuple(map(float, (one.forward, one.input, one.weights, one.again))) for one in found)

    @_kept("training.tensor", "training.context", "training.expert", "training.microbatch", "training.recompute")
    def _sent(self, choice: Choice) -> list[list[tuple[float, ...]]]:
        """Return the seconds of messages of one microbatch between the ranks of a layer of each kind, in F and in the
        backward: over t, over c, to experts.
        """
        x, names = choice.training, [one.name for one in fields(traffic.NONE)]

        def seconds(found: traffic.Traffic) -> tuple[float, ...]:
            alone = (replace(traffic.NONE, **{name: getattr(found, name)}) for name in names)
            return tuple(float(traffic.seconds(x, self.problem.device, one)) for one in alone)

        ways = (traffic.forward, traffic.backward)
        return [[seconds(way(self.model, x, index)) for way in ways] for index in self._sorts]

    def costs(self, choice: Choice) -> Costs:
        """Return the costs of the timeline of a choice on the device, in milliseconds."""
        problem = self.problem
        way = choice.training, problem.device, choice.ranks, problem.efficiency
        return times.costs(self.model, *way, overlap=problem.overlap)

    @_kept(
        *("cut", "ranks", "row.fused", "training.tensor", "training.context", "training.data", "training.expert"),
        *("training.microbatch", "training.recompute", "training.zero"),
    )
    def times(self, choice: Choice) -> Times:
        """Return the times of every stage on its rank."""
        problem, x, layers, sent = self.problem, choice.training, self.layers(choice), self._sent(choice)
        rate, overlap = float(problem.device.flops * problem.efficiency), float(problem.overlap)
        work, counts, tokens = self._work(choice), self._counts(choice), x.microbatch / x.context

        def stage(kind: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
            gather, scatter = map(float, traffic.each_microbatch(self.model, x, counts[kind], problem.device))
            f, i, w, again = (one * tokens / rate for one in work[kind])
            mine = [sent[self.model.has_experts(layer)] for layer in layers[kind]]
            there, back = (tuple(sum(one[side][k] for one in mine) for k in range(3)) for side in (0, 1))
            forward, inputs = f + sum(there), i + sum(back)
            *more, whole = traffic.waits((gather, scatter), (forward, inputs, w), len(mine), overlap)
            if choice.row.fused:
                more[1:] = whole, 0.0
            parts = (f + i + w - again, again, *map(sum, zip(there, back, strict=True)), sum(more))
            return _nano(forward + more[0], inputs + more[1], w + more[2]), parts

        made = self._each(choice, stage)
        forward, back, weights = zip(*(times for times, _ in made), strict=True)
        parts = tuple(map(sum, zip(*(parts for _, parts in made), strict=True)))
        return Times(forward, back, weights, self._messages(choice), parts)

    def _messages(self, choice: Choice) -> tuple[int, ...]:
        """Return the message time of each stage: the longer of its messages to the next and to the previous stage."""
        x, device = choice.training, self.problem.device
        size = activations.boundary(self.model, x)
        after = [float(size / link(x, device, *two)) for two in pairwise(choice.ranks)]
        return _nano(*map(max, [0.0, *after], [*after, 0.0]))

    @_kept("cut", "training.tensor", "training.context", "training.data", "training.expert", "training.zero")
    def once(self, choice: Choice) -> tuple[Once, ...]:
        """Return the messages that each stage sends once per step."""
        x, counts, layers = choice.training, self._counts(choice), self.layers(choice)
        beside = float(self.problem.overlap)

        def stage(kind: int) -> Once:
            found = traffic.between_copies(self.model, x, counts[kind], self.problem.device)
            gather, scatter = (NANO * float(one) for one in found)
            gradients, parameters = scatter + gather * (x.zero == 0), gather * (x.zero in (1, 2))
            sent = (gradients * beside, parameters * beside)
            alone = (gradients * (1 - beside) * (x.zero < 2), parameters * (1 - beside))
            return Once(sent, alone, max(1, len(layers[kind])))

        return self._each(choice, stage)


def _alone(x: Training) -> Training:
    """Return the training with microbatches of one sequence, without context parallelism."""
    return replace(x, microbatch=1, context=1, data=1, expert=1, zero=0, batch=None)


def _nano(*seconds: float) -> tuple[int, ...]:
    """Return nanoseconds, rounded down."""
    return tuple(int(NANO * one) for one in seconds)


@lru_cache(maxsize=2)
def stages_of(problem: Problem) -> Stages:
    """Return the stages of a problem, cached."""
    return Stages(problem)
