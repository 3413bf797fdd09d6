"""The seconds and bytes of every stage, for many choices. Most stages of a choice are equal.

The bytes and FLOPs of a stage are proportional to the tokens of a microbatch on a rank, b s / c, so they are computed
for one sequence and multiplied. Nanoseconds and bytes are rounded down, since they serve as bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial, wraps
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar, cast

from pipesched.model.costs import Costs
from pipesched.planning.layouts.space import Choice, Space
from pipesched.planning.transformer import activations, flops, parameters, shapes, state, times, traffic
from pipesched.planning.transformer.config import Training, Transformer
from pipesched.planning.transformer.constants import Constants
from pipesched.planning.transformer.devices import HALF, Device
from pipesched.planning.transformer.rules import layers_of
from pipesched.planning.transformer.shapes import PICO, Machine, machine
from pipesched.planning.transformer.times import link
from pipesched.planning.transformer.trainers import DEFAULT, reserve_of, whole_gradients

NANO = 10**9
Made = TypeVar("Made")


@dataclass(frozen=True)
class Problem:
    """The cluster and the assumptions for a set of choices. cap: bytes per rank. efficiency: the fraction of the
    device's peak FLOP/s that is achieved; None: times by shape, if the device has the figures for it. overlap: the
    share of the messages between copies that may overlap compute; None: the trainer's. constants: values that replace
    those of constants.toml.
    """

    space: Space
    device: Device
    cap: Fraction
    efficiency: Fraction | None = None
    overlap: Fraction | None = None
    constants: Constants | None = None

    @cached_property
    def on(self) -> Machine | None:
        """The machine for times by shape; None with a flat efficiency."""
        if self.efficiency is not None:
            return None
        return machine(self.device, self.space.training.trainer or DEFAULT, self.constants)

    @cached_property
    def whole_cap(self) -> int:
        """The cap in whole bytes."""
        return int(self.cap)

    @property
    def flat(self) -> Fraction:
        """The flat efficiency, if one is used."""
        return HALF if self.efficiency is None else self.efficiency

    def hidden(self, zero: int) -> Fraction:
        """Return the share of the messages between copies that overlaps compute."""
        if self.overlap is not None:
            return self.overlap
        return 1 - self.on.shown(zero) if self.on else Fraction(1)


@dataclass(frozen=True)
class Times:
    """The nanoseconds of F, I, W and a message, by stage, including ZeRO's messages between copies.

    parts: seconds of one microbatch on all ranks: compute, recomputation, messages over t, over c, to experts, over d.
    """

    F: tuple[int, ...]
    I: tuple[int, ...]
    W: tuple[int, ...]
    C: tuple[int, ...]
    parts: tuple[float, ...]


@dataclass(frozen=True)
class Once:
    """The nanoseconds of a stage's messages that are sent once per step, as pairs: gradients after its last backward,
    and ZeRO's parameters before its next forward. beside: the part that overlaps compute, layer by layer; alone: the
    part that does not. layers: the number of its layers.
    """

    beside: tuple[float, float]
    alone: tuple[float, float]
    layers: int


def _kept(*sizes: str) -> Callable[[Callable[[Stages, Choice], Made]], Callable[[Stages, Choice], Made]]:
    """Cache a figure for all choices that agree in the named sizes."""
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
    """The stages of all choices of a problem."""

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
        """Return, for every stage, the first stage with the same number of layers of each kind."""
        seen, found, last = dict[Hashable, int](), [], choice.cut.stages - 1
        for stage, layers in enumerate(self.layers(choice)):
            many = tuple(Counter(map(self.model.kind, layers)).items())
            sort = (many, self.model.joins(layers), stage == 0, stage == last)
            found.append(seen.setdefault(sort, stage))
        return tuple(found)

    def _each(self, choice: Choice, of: Callable[[int], Made]) -> tuple[Made, ...]:
        """Return a figure for every stage, computed once per kind of stage."""
        kinds = self._kinds(choice)
        made = {kind: of(kind) for kind in dict.fromkeys(kinds)}
        return tuple(made[kind] for kind in kinds)

    @_kept("cut", "training.tensor", "training.expert")
    def _parts(self, choice: Choice) -> tuple[tuple[parameters.Part, ...], ...]:
        return parameters.by_stage(self.model, choice.training, choice.cut.stages)

    @_kept("cut", "training.tensor", "training.expert")
    def _counts(self, choice: Choice) -> tuple[parameters.Counts, ...]:
        """Return, for each stage, the parameters on one rank, with those of experts and frozen parameters separate."""
        found = self._parts(choice)
        return self._each(choice, lambda kind: parameters.counts(found[kind]))

    @_kept("cut", "training.tensor", "training.recompute")
    def saved(self, choice: Choice) -> tuple[int, ...]:
        """Return, for each stage, the fewest bytes that it keeps for one sequence on one rank, without context
        parallelism.
        """
        a, x, layers = self.model, _alone(choice.training), self.layers(choice)
        # copies of weights are not for each token, so they are left out of a bound
        each = {kind: activations.layer(a, x, kind) - activations.weights(a, x, kind) for kind in self._sorts}
        ends = {0: activations.embedding(a.at(0), x), len(layers) - 1: activations.head(a, x)}

        def stage(kind: int) -> int:
            return int(sum(each[a.kind(layer)] for layer in layers[kind]) + ends.get(kind, 0))

        return self._each(choice, stage)

    @property
    def _sorts(self) -> set[int]:
        """The index of the first layer of each kind."""
        return {self.model.kind(0), self.model.kind(self.model.layers - 1)}

    @_kept("cut", "training.tensor", "training.context", "training.data", "training.expert", "training.zero")
    def state(self, choice: Choice) -> tuple[int, ...]:
        """Return, for each stage, the bytes of parameters, gradients and optimizer on a rank, with their share of the
        reserve.
        """
        found, x = self._parts(choice), choice.training
        of, whole = reserve_of(x), whole_gradients(x, choice.cut.stages)

        def stage(kind: int) -> int:
            made = state.state(self.model, x, found[kind], whole=whole)
            return int(made.total + (of.state * (made.parameters + made.gradients) if of else 0))

        return self._each(choice, stage)

    @_kept("cut", "training.tensor", "training.recompute")
    def _work(self, choice: Choice) -> tuple[tuple[float, ...], ...]:
        """Return, for each stage, the FLOPs of one sequence on one rank: of F, I, W, and of the part of I that
        recomputes F.
        """
        found = flops.by_stage(self.model, _alone(choice.training), choice.cut.stages)
        return tuple(tuple(map(float, (one.forward, one.input, one.weights, one.again))) for one in found)

    @_kept("training.tensor", "training.context", "training.expert", "training.microbatch", "training.recompute")
    def _sent(self, choice: Choice) -> dict[int, list[tuple[float, ...]]]:
        """Return the seconds that one microbatch's messages between the ranks of a layer take, for each kind of layer,
        in F and in the backward: over t, over c, to experts.
        """
        x, names = choice.training, [one.name for one in fields(traffic.NONE)]

        def seconds(found: traffic.Traffic) -> tuple[float, ...]:
            alone = (replace(traffic.NONE, **{name: getattr(found, name)}) for name in names)
            return tuple(float(traffic.seconds(x, self.problem.device, one)) for one in alone)

        ways = (traffic.forward, traffic.backward)
        return {index: [seconds(way(self.model, x, index)) for way in ways] for index in self._sorts}

    def costs(self, choice: Choice) -> Costs:
        """Return the costs for the timeline of a choice on the device, in milliseconds."""
        problem, x = self.problem, choice.training
        way = x, problem.device, choice.ranks, problem.flat
        return times.costs(self.model, *way, overlap=problem.hidden(x.zero), on=problem.on)

    @_kept(
        *("cut", "ranks", "row.fused", "training.tensor", "training.context", "training.data", "training.expert"),
        *("training.microbatch", "training.recompute", "training.zero"),
    )
    def times(self, choice: Choice) -> Times:
        """Return the times of every stage on its rank."""
        x, layers, counts = choice.training, self.layers(choice), self._counts(choice)
        overlap, alone = float(self.problem.hidden(x.zero)), self._shaped(choice) or self._flat(choice)

        def stage(kind: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
            gather, scatter = map(float, traffic.each_microbatch(x, counts[kind], self._copies(x)))
            (forward, inputs, weights), parts = alone[kind]
            *more, whole = traffic.waits((gather, scatter), (forward, inputs, weights), len(layers[kind]), overlap)
            if choice.row.fused:
                more[1:] = whole, 0.0
            return _nano(forward + more[0], inputs + more[1], weights + more[2]), (*parts, sum(more))

        made = self._each(choice, stage)
        forward, back, weights = zip(*(times for times, _ in made), strict=True)
        parts = tuple(map(sum, zip(*(parts for _, parts in made), strict=True)))
        return Times(forward, back, weights, self._messages(choice), parts)

    def _remembered(self, key: Hashable, make: Callable[[], Made]) -> Made:
        if key not in self.memo:
            self.memo[key] = make()
        return cast("Made", self.memo[key])

    def _copies(self, x: Training) -> traffic.Shares:
        """Return the seconds that messages between copies take for each parameter of a rank."""
        key = "copies", x.tensor, x.context, x.data, x.expert, x.zero
        on, device = self.problem.on, self.problem.device
        return self._remembered(key, lambda: traffic.shares(self.model, x, on.between(x.zero) if on else device))

    def _flat(self, choice: Choice) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]:
        """Return, for each stage, the seconds of F, I and W at a flat efficiency, and their parts, without messages
        between copies.
        """
        x, layers, sent, work = choice.training, self.layers(choice), self._sent(choice), self._work(choice)
        rate, tokens = float(self.problem.device.flops * self.problem.flat), x.microbatch / x.context

        def stage(kind: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
            f, i, w, again = (one * tokens / rate for one in work[kind])
            mine = [sent[self.model.kind(layer)] for layer in layers[kind]]
            there, back = (tuple(sum(one[side][k] for one in mine) for k in range(3)) for side in (0, 1))
            parts = (f + i + w - again, again, *map(sum, zip(there, back, strict=True)))
            return (f + sum(there), i + sum(back), w), parts

        return self._each(choice, stage)

    @_kept("cut", "training.tensor", "training.context", "training.expert", "training.microbatch", "training.recompute")
    def _shaped(self, choice: Choice) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]:
        """Like `_flat`, with times by shape; empty if `Problem.on` is None."""
        layers, on = self.layers(choice), self.problem.on
        if on is None:
            return ()

        def stage(kind: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
            ends = {"first": kind == 0, "last": kind == len(layers) - 1}
            one = shapes.stage(self.model, choice.training, on, layers[kind], **ends)
            times = one.forward, one.input, one.weights
            return tuple(each / PICO for each in times), tuple(each / PICO for each in one.parts)

        return self._each(choice, stage)

    def _messages(self, choice: Choice) -> tuple[int, ...]:
        """Return the message time of each stage: the longer of its messages to the next and to the previous stage."""
        x, device, on = choice.training, self.problem.device, self.problem.on

        def seconds(part: Transformer, rate: Fraction) -> float:
            if on is not None:
                return shapes.message(part, x, on, rate) / PICO
            return float(activations.boundary(part, x) / rate)

        rates = [link(x, device, *two) for two in pairwise(choice.ranks)]
        slowest, made = map(min, [*rates[:1], *rates], [*rates, *rates[-1:]]) if rates else [None], list[float]()
        for rate, layers in zip(slowest, self.layers(choice), strict=True):
            part = self.model.at(layers.start)
            key = "message", part is self.model, x.tensor, x.microbatch, x.context, rate
            made.append(self._remembered(key, partial(seconds, part, rate)) if rate is not None else 0.0)
        return _nano(*made)

    @_kept("cut", "training.tensor", "training.context", "training.data", "training.expert", "training.zero")
    def once(self, choice: Choice) -> tuple[Once, ...]:
        """Return the messages that each stage sends once per step."""
        x, counts, layers = choice.training, self._counts(choice), self.layers(choice)
        beside, shares = float(self.problem.hidden(x.zero)), self._copies(x)

        def stage(kind: int) -> Once:
            found = traffic.between_copies(counts[kind], shares)
            gather, scatter = (NANO * float(one) for one in found)
            gradients, parameters = scatter + gather * (x.zero == 0), gather * (x.zero in (1, 2))
            sent = (gradients * beside, parameters * beside)
            on, trained = self.problem.on, sum(counts[kind][:2], Fraction(0))
            stepped = shapes.step_end(trained, x, on) / 1000 if on else 0.0
            alone = (gradients * (1 - beside) * (x.zero < 2) + stepped, parameters * (1 - beside))
            return Once(sent, alone, max(1, len(layers[kind])))

        return self._each(choice, stage)


def _alone(x: Training) -> Training:
    """Return the training with microbatches of one sequence, without context parallelism."""
    return replace(x, microbatch=1, context=1, data=1, expert=1, zero=0, batch=None)


def _nano(*seconds: float) -> tuple[int, ...]:
    """Return nanoseconds, rounded down."""
    return tuple(int(NANO * one) for one in seconds)


def stages_of(problem: Problem) -> Stages:
    """Return the stages of a problem, cached; the last problem's stages are returned without the slow comparison."""
    if not _last or _last[0][0] is not problem:
        _last[:] = [(problem, _stages(problem))]
    return _last[0][1]


_last: list[tuple[Problem, Stages]] = []


@lru_cache(maxsize=2)
def _stages(problem: Problem) -> Stages:
    return Stages(problem)
