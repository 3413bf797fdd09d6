"""Seconds and bytes of every stage, for one choice after another; most stages of a choice are alike.

What a stage keeps and computes is proportional to the tokens of a microbatch on a rank, b s / c, so it is worked out
for one sequence and multiplied. Nanoseconds and bytes are whole, rounded down: they are for bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, TypeVar

from pipesched.model.costs import Costs
from pipesched.planning.space import Choice, Cut, Space
from pipesched.transformer import activations, flops, parameters, state, times, traffic
from pipesched.transformer.config import Training, layers_of
from pipesched.transformer.devices import HALF, Device
from pipesched.transformer.times import link

NANO = 10**9
Made = TypeVar("Made")


@dataclass(frozen=True)
class Problem:
    """The choices, and what they run on. cap: bytes of a rank. efficiency: the share of its peak that the device
    reaches in matrix products. overlap: the share of what copies send that may run beside compute.
    """

    space: Space
    device: Device
    cap: Fraction
    efficiency: Fraction = HALF
    overlap: Fraction = Fraction(1)


@dataclass(frozen=True)
class Times:
    """Nanoseconds of F, I, W and of a message, by stage, with what ZeRO sends between copies.

    parts: seconds of one microbatch on all ranks: compute, what runs again, over t, over c, to experts, over d.
    """

    F: tuple[int, ...]
    I: tuple[int, ...]
    W: tuple[int, ...]
    C: tuple[int, ...]
    parts: tuple[float, ...]


@dataclass(frozen=True)
class Once:
    """Nanoseconds for which a stage sends its gradients, from its last backward on, and parameters that ZeRO has
    divided, before its first forward of the next step: beside compute, a layer at a time, and alone.
    """

    beside: tuple[float, float]
    alone: tuple[float, float]
    layers: int


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of the choices of a problem; each figure is worked out once."""

    problem: Problem
    memo: dict[Hashable, Any] = field(default_factory=dict)

    def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        if key not in self.memo:
            self.memo[key] = make()
        found: Made = self.memo[key]
        return found

    def _training(self, cut: Cut, **sizes: Any) -> Training:
        """Of one sequence, on one copy."""
        alone = {"microbatch": 1, "context": 1, "data": 1, "expert": 1, "zero": 0, "batch": None, "recompute": "none"}
        return replace(self.problem.space.training, **{**alone, "layout": cut.layout, **sizes})

    def layers(self, cut: Cut) -> tuple[range, ...]:
        """Of each stage."""
        x = self._training(cut)
        return self._once(("layers", cut), lambda: layers_of(self.problem.space.transformer, x, cut.stages))

    def kinds(self, cut: Cut) -> tuple[int, ...]:
        """For every stage the first one that has as many layers of each sort."""

        def make() -> tuple[int, ...]:
            a, seen, found = self.problem.space.transformer, dict[Hashable, int](), []
            for stage, layers in enumerate(self.layers(cut)):
                sort = (len(layers), sum(map(a.has_experts, layers)), stage == 0, stage == cut.stages - 1)
                found.append(seen.setdefault(sort, stage))
            return tuple(found)

        return self._once(("kinds", cut), make)

    def _each(self, cut: Cut, of: Callable[[int], Made]) -> tuple[Made, ...]:
        """A figure of every stage, worked out for one of each kind."""
        kinds = self.kinds(cut)
        made = {kind: of(kind) for kind in dict.fromkeys(kinds)}
        return tuple(made[kind] for kind in kinds)

    def _parts(self, t: int, e: int, cut: Cut) -> tuple[tuple[parameters.Part, ...], ...]:
        a, x = self.problem.space.transformer, self._training(cut, tensor=t, expert=e)
        return self._once(("parts", t, e, cut), lambda: parameters.by_stage(a, x, cut.stages))

    def counts(self, t: int, e: int, cut: Cut) -> tuple[tuple[Fraction, Fraction], ...]:
        """Parameters on one rank, those of experts apart."""

        def make() -> tuple[tuple[Fraction, Fraction], ...]:
            found = self._parts(t, e, cut)
            return self._each(cut, lambda k: parameters.counts(found[k]))

        return self._once(("counts", t, e, cut), make)

    def saved(self, choice: Choice) -> tuple[int, ...]:
        """Bytes that a stage keeps at least of one sequence whose tokens are not shared, on one rank."""
        t, recompute, cut = choice.training.tensor, choice.training.recompute, choice.cut
        a, x = self.problem.space.transformer, self._training(cut, tensor=t, recompute=recompute)

        def make() -> tuple[int, ...]:
            layers, dense = self.layers(cut), a.experts.dense_layers if a.experts else 0
            ends = {0: activations.embedding(a, x), cut.stages - 1: activations.head(a, x)}

            def stage(kind: int) -> int:
                kept = sum(self._layer(x, min(layer, dense)) for layer in layers[kind])
                return int(kept + ends.get(kind, 0))

            return self._each(cut, stage)

        return self._once(("saved", t, recompute, cut), make)

    def _layer(self, x: Training, layer: int) -> Fraction:
        """Bytes of one sequence."""
        make = partial(activations.layer, self.problem.space.transformer, x, layer)
        return self._once(("layer", x.tensor, x.recompute, layer), make)

    def state(self, choice: Choice) -> tuple[int, ...]:
        """Bytes of parameters, gradients and optimizer on one rank."""
        x, cut = choice.training, choice.cut

        def make() -> tuple[int, ...]:
            found = self._parts(x.tensor, x.expert, cut)
            return self._each(cut, lambda k: int(state.state(self.problem.space.transformer, x, found[k]).total))

        return self._once(("state", x.tensor, x.context * x.data, x.expert, x.zero, cut), make)

    def _work(self, t: int, recompute: str, cut: Cut) -> tuple[tuple[float, ...], ...]:
        """FLOPs of one sequence on one rank: of F, I and W, and those of I that run an F again."""

        def make() -> tuple[tuple[float, ...], ...]:
            a, x = self.problem.space.transformer, self._training(cut, tensor=t, recompute=recompute)
            found = flops.by_stage(a, x, cut.stages)
            return tuple(tuple(map(float, (one.forward, one.input, one.weights, one.again))) for one in found)

        return self._once(("work", t, recompute, cut), make)

    def _sent(self, x: Training, layer: int) -> tuple[tuple[float, ...], ...]:
        """Seconds of what a layer's ranks send of a microbatch in F and in the backward: over t, over c, to experts."""

        def make() -> tuple[tuple[float, ...], ...]:
            a, device, made = self.problem.space.transformer, self.problem.device, []
            for found in (traffic.forward(a, x, layer), traffic.backward(a, x, layer)):
                alone = (replace(traffic.NONE, **{one.name: getattr(found, one.name)}) for one in fields(found))
                made.append(tuple(float(traffic.seconds(x, device, one)) for one in alone))
            return tuple(made)

        return self._once(("sent", x.tensor, x.context, x.expert, x.microbatch, x.recompute, layer), make)

    def costs(self, choice: Choice) -> Costs:
        """Of its timeline, in milliseconds: those of a device."""
        problem, x = self.problem, choice.training
        return times.costs(
            problem.space.transformer, x, problem.device, choice.ranks, problem.efficiency, overlap=problem.overlap
        )

    def times(self, choice: Choice) -> Times:
        """Of every stage on its rank."""
        x, cut = choice.training, choice.cut
        zero = (max(x.zero, 1), choice.row.fused and x.zero > 1)
        key = (x.tensor, x.context, x.data, x.expert, x.microbatch, x.recompute, *zero, choice.ranks, cut)
        return self._once(("times", *key), lambda: self._times(choice, cut))

    def _times(self, choice: Choice, cut: Cut) -> Times:
        problem, x, a = self.problem, choice.training, self.problem.space.transformer
        rate, overlap = float(problem.device.flops * problem.efficiency), float(problem.overlap)
        tokens = x.microbatch / x.context
        work, counts = self._work(x.tensor, x.recompute, cut), self.counts(x.tensor, x.expert, cut)
        layers, dense = self.layers(cut), a.experts.dense_layers if a.experts else 0

        def make(kind: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
            gather, scatter = map(float, traffic.each_microbatch(a, x, counts[kind], problem.device))
            f, i, w, again = (one * tokens / rate for one in work[kind])
            sent = [self._sent(x, min(layer, dense)) for layer in layers[kind]]
            there, back = (tuple(sum(one[side][k] for one in sent) for k in range(3)) for side in (0, 1))
            forward, inputs = f + sum(there), i + sum(back)
            *more, whole = traffic.waits((gather, scatter), (forward, inputs, w), len(sent), overlap)
            if choice.row.fused:
                more[1:] = whole, 0.0
            parts = (f + i + w - again, again, *map(sum, zip(there, back, strict=True)), sum(more))
            return _nano(forward + more[0], inputs + more[1], w + more[2]), parts

        made = self._each(cut, make)
        forward, back, weights = zip(*(times for times, _ in made), strict=True)
        parts = tuple(map(sum, zip(*(parts for _, parts in made), strict=True)))
        return Times(forward, back, weights, self._messages(choice), parts)

    def _messages(self, choice: Choice) -> tuple[int, ...]:
        """Of each stage the longer of those to the stage after it and to the one before it."""
        x, device = choice.training, self.problem.device
        size = activations.boundary(self.problem.space.transformer, x)
        after = [float(size / link(x, device, *two)) for two in pairwise(choice.ranks)]
        return _nano(*map(max, [0.0, *after], [*after, 0.0]))

    def once(self, choice: Choice) -> tuple[Once, ...]:
        """What each stage sends once a step."""
        x, cut, device = choice.training, choice.cut, self.problem.device

        def make() -> tuple[Once, ...]:
            a, counts = self.problem.space.transformer, self.counts(x.tensor, x.expert, cut)
            beside, layers = float(self.problem.overlap), self.layers(cut)

            def stage(kind: int) -> Once:
                gather, scatter = (NANO * float(one) for one in traffic.between_copies(a, x, counts[kind], device))
                gradients, parameters = scatter + gather * (x.zero == 0), gather * (x.zero in (1, 2))
                sent = (gradients * beside, parameters * beside)
                alone = (gradients * (1 - beside) * (x.zero < 2), parameters * (1 - beside))
                return Once(sent, alone, max(1, len(layers[kind])))

            return self._each(cut, stage)

        return self._once(("once", x.tensor, x.context, x.data, x.expert, x.zero, cut), make)


def _nano(*seconds: float) -> tuple[int, ...]:
    """Rounded down."""
    return tuple(int(NANO * one) for one in seconds)


@lru_cache(maxsize=2)
def stages_of(problem: Problem) -> Stages:
    """One for each problem and process."""
    return Stages(problem)
