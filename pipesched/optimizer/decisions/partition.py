"""Partitions: every split of L equal layers into S stages, with an embedding before the layers and a head after them.

    stage 0        embedding + n[0] layers          every stage has at least one layer
    stage S - 1    n[S - 1] layers + head

    cost of a stage     n x layer, plus the load at its end              F, I, W or B, and the activations M
    cap of a rank       the cap less what its layers hold regardless of the order (parameters, if caps are in bytes)

A rank does not begin before a microbatch reaches its first stage, and runs one operation at a time. With one stage per
rank, the first I of rank r waits for the longest path to the last rank and back, and at most k forwards run before it;
after its last I the gradient travels to rank 0, and at most k weight gradients are left to compute. If memory is freed
at W or at B, k is the number of microbatches that fit the cap:

    m w[r]  +  H[r]                              H[r]: forwards of earlier ranks, with messages; 0 for the span
            +  max(0, L[r] - (k - 1) F[r])       L[r]: forwards and backwards of later ranks
            +  max(0, G[r] - k W[r])             G[r]: the longest path from a last I to the end of an earlier rank

Splits are listed stage by stage; a prefix is dropped once its bound reaches the best known objective.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, comb, lcm
from typing import TypeAlias

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.cost_values import Cost
from pipesched.model.costs import Costs
from pipesched.model.numbers import plain
from pipesched.optimizer.verdict import Terms

MOST = 50_000
"""Limit on the listed splits; all other splits are covered by the bound of a common prefix."""

ENDLESS = 2**20

Choice: TypeAlias = tuple[int, ...]
"""A split: the number of layers of each stage."""

Load: TypeAlias = Mapping[str, Fraction]
"""Costs by name: times F, I, W or F, B; activations M of a microbatch; order-independent memory S, in units of caps."""


@dataclass(frozen=True)
class Rest:
    """The splits that quick bounds do not exclude. left: (bound, split), in ascending order; floor: a bound for all
    splits that are not listed, or None if every split is listed.
    """

    left: list[tuple[Fraction, Choice]]
    floor: Fraction | None = None


@dataclass(frozen=True, eq=False)
class Partition:
    """All splits of `layers` layers. base: the terms that all splits share, with the caps before S is subtracted.

    layer, first, last: the loads of a layer, the embedding and the head. message: the time C of a message.
    """

    base: Terms
    layers: int
    layer: Load
    first: Load
    last: Load
    message: Cost

    @property
    def stages(self) -> int:
        return self.base.placement.stages

    @property
    def count(self) -> int:
        return comb(self.layers - 1, self.stages - 1)

    def seeds(self) -> list[Choice]:
        """Return the even split, and splits that minimize the largest stage, with ties broken toward each end."""
        even = [self.layers // self.stages + (s < self.layers % self.stages) for s in range(self.stages)]
        made = [tuple(even), self._least_largest(reverse=False), self._least_largest(reverse=True)]
        return list(dict.fromkeys(made))

    def _least_largest(self, *, reverse: bool) -> Choice:
        """Return the split that gives each layer to the stage that stays smallest; reverse: ties go to the last."""
        counts = [1] * self.stages
        ends = {0: self._work(self.first), self.stages - 1: self._work(self.last)}
        one = self._work(self.layer)
        for _ in range(self.layers - self.stages):
            at = range(self.stages)[::-1] if reverse else range(self.stages)
            counts[min(at, key=lambda s: (counts[s] + 1) * one + ends.get(s, 0))] += 1
        return tuple(counts)

    def _work(self, load: Load) -> Fraction:
        return sum((load.get(kind, Fraction(0)) for kind in self.base.kinds), Fraction(0))

    def terms(self, choice: Choice) -> Terms:
        """Return the terms of a split."""
        given: dict[str, Cost] = {key: self._column(key, choice) for key in (*self.base.kinds, "M")}
        costs = Costs({**given, "C": self.message}, self.base.costs.note, self.base.costs.unit)
        caps = self.base.caps
        if caps is not None:
            there = self._column("S", choice)
            own = self.base.placement.rank_of[0].tolist()
            spent = [
                sum((x for x, at in zip(there, own, strict=True) if at == r), Fraction(0)) for r in range(len(caps))
            ]
            caps = tuple(cap - more for cap, more in zip(caps, spent, strict=True))
        return replace(self.base, costs=costs, caps=caps, decided=self.text(choice))

    def _column(self, key: str, choice: Choice) -> tuple[Fraction, ...]:
        each = [n * self.layer.get(key, Fraction(0)) for n in choice]
        each[0] += self.first.get(key, Fraction(0))
        each[-1] += self.last.get(key, Fraction(0))
        return tuple(each)

    def text(self, choice: Choice) -> str:
        """Describe a split."""
        return f"{self.layers} layers as {','.join(map(str, choice))}{self._ends}"

    @cached_property
    def _ends(self) -> str:
        one = self._work(self.layer)
        ends = [
            f"{name} of {float(self._work(load) / one):.3g}"
            for name, load in (("an embedding", self.first), ("a head", self.last))
            if one and self._work(load)
        ]
        return f" and {' and '.join(ends)}" if ends else ""

    def to_json(self) -> dict[str, object]:
        """Return the loads as JSON."""
        loads = {"layer": self.layer, "first": self.first, "last": self.last}
        message = [plain(x) for x in self.message] if isinstance(self.message, tuple) else plain(_scalar(self.message))
        caps = self.base.caps
        return {
            "layers": self.layers,
            **{name: {key: plain(x) for key, x in load.items()} for name, load in loads.items()},
            "message": message,
            "caps": None if caps is None else [plain(cap) for cap in caps],
        }

    # Quick bounds, in integers

    @cached_property
    def _scale(self) -> int:
        """The number of ticks per unit of time."""
        loads = (x for load in (self.layer, self.first, self.last) for key, x in load.items() if key not in "MS")
        return lcm(*(x.denominator for x in (*self._by_stage, *loads)))

    @property
    def _by_stage(self) -> tuple[Fraction, ...]:
        return self.message if isinstance(self.message, tuple) else (_scalar(self.message),) * self.stages

    def _table(self, counts: Ints, key: str, scale: int) -> Ints:
        """Return the cost `key` of each stage for splits `counts`, in units of 1 / scale; shape (splits, stages)."""
        made = counts * int(self.layer.get(key, Fraction(0)) * scale)
        for s, load in ((0, self.first), (self.stages - 1, self.last)):
            if s < counts.shape[1]:
                made[:, s] += int(load.get(key, Fraction(0)) * scale)
        return made

    @cached_property
    def _messages(self) -> tuple[Ints, Ints]:
        """Ticks of a message from each stage to the next one, and back; 0 within a rank."""
        own = self.base.placement.rank_of[0]
        ticks = np.array([int(x * self._scale) for x in self._by_stage], dtype=np.int64)
        apart = own[1:] != own[:-1]
        return np.where(apart, ticks[:-1], 0), np.where(apart, ticks[1:], 0)

    def rest(self, value: Fraction) -> Rest:
        """Return the splits whose bound is below a value."""
        limit = ceil(value * self._scale)
        counts, floor = np.zeros((1, 0), dtype=np.int64), None
        for s in range(self.stages):
            counts = self._longer(counts, s)
            bounds = self._of_beginnings(counts)
            counts, bounds = counts[bounds < limit], bounds[bounds < limit]
            if len(counts) > MOST:
                order = np.argsort(bounds, kind="stable")
                cut = int(bounds[order[MOST]])
                floor = cut if floor is None else min(floor, cut)
                counts = counts[order[:MOST]]
        bounds = np.maximum(self._of_beginnings(counts), self._of_splits(counts))
        listed = [int(i) for i in np.argsort(bounds, kind="stable") if bounds[i] < limit]
        left = [(Fraction(int(bounds[i]), self._scale), tuple(counts[i].tolist())) for i in listed]
        return Rest(left, None if floor is None else Fraction(floor, self._scale))

    def _longer(self, counts: Ints, s: int) -> Ints:
        """Return all extensions of the prefixes by one stage; the last stage takes all remaining layers."""
        used, behind = counts.sum(axis=1), self.stages - 1 - s
        if not behind:
            return np.column_stack([counts, self.layers - used])
        most = self.layers - used - behind
        rows = np.repeat(np.arange(len(counts)), most)
        n = np.arange(len(rows)) - np.repeat(np.cumsum(most) - most, most) + 1
        return np.column_stack([counts[rows], n])

    def _of_beginnings(self, counts: Ints) -> Ints:
        """Return a bound for each prefix: from the work of each rank so far, or the average of the remaining stages."""
        known, m, span = counts.shape[1], self.base.placement.microbatches, self.base.objective == "span"
        own, none = self.base.placement.rank_of[0].tolist(), np.zeros(len(counts), dtype=np.int64)
        work = sum((self._table(counts, kind, self._scale) for kind in self.base.kinds), 0 * counts)
        forward, best, reached = self._table(counts, "F", self._scale), none, none
        head, done = dict[int, Ints](), dict[int, Ints]()
        for s in range(known):
            head.setdefault(own[s], none if span else reached)
            done[own[s]] = done.get(own[s], none) + m * work[:, s]
            best = np.maximum(best, head[own[s]] + done[own[s]])
            reached = reached + forward[:, s] + (int(self._messages[0][s]) if s < self.stages - 1 else 0)
        if left := self.stages - known:
            most = -(-(self.layers - counts.sum(axis=1)) // left)
            folded = self.stages != self.base.placement.ranks  # then a rank may begin before these stages are reached
            average = m * most * int(self._work(self.layer) * self._scale)
            best = np.maximum(best, average + (none if span or folded else reached))
        return best

    def _of_splits(self, counts: Ints) -> Ints:
        """Return a bound with warm-up and cool-down for each split if stage r is on rank r for every r; otherwise 0."""
        base, none = self.base, np.zeros(len(counts), dtype=np.int64)
        if base.placement.rank_of[0].tolist() != list(range(base.placement.ranks)):
            return none
        forward, back = (self._table(counts, kind, self._scale) for kind in base.kinds[:2])
        weight = 0 * counts if base.fused else self._table(counts, "W", self._scale)
        room, (there, home) = self._room(counts), self._messages
        best, reached, gradient = none, none, none
        behind = forward + back
        behind[:, 1:] += there + home
        for r in range(self.stages):
            begins = np.maximum(0, behind[:, r + 1 :].sum(axis=1) - (room[:, r] - 1) * forward[:, r])
            ends = np.maximum(0, gradient - room[:, r] * weight[:, r])
            work = base.placement.microbatches * (forward[:, r] + back[:, r] + weight[:, r])
            best = np.maximum(best, reached + work + begins + ends)
            if r < self.stages - 1:
                reached = reached if base.objective == "span" else reached + forward[:, r] + there[r]
                gradient = np.maximum(gradient, weight[:, r]) + back[:, r] + home[r]
        return best

    def _room(self, counts: Ints) -> Ints:
        """Return, for each split, the most microbatches that each rank can hold; ENDLESS if there is no limit."""
        base, endless = self.base, np.full(counts.shape, ENDLESS, dtype=np.int64)
        if base.caps is None or (not base.fused and base.release.at_input > 0):
            return endless
        loads = (x for load in (self.layer, self.first, self.last) for key, x in load.items() if key in "MS")
        fine = lcm(*(x.denominator for x in (*loads, *base.caps)))
        held, there = self._table(counts, "M", fine), self._table(counts, "S", fine)
        caps = np.array([int(cap * fine) for cap in base.caps], dtype=np.int64)
        return np.where(held > 0, np.minimum(np.maximum(caps - there, 0) // np.maximum(held, 1), ENDLESS), endless)


def _scalar(cost: Cost) -> Fraction:
    assert isinstance(cost, Fraction | int), "the cost of a message must be a number or a list"
    return Fraction(cost)
