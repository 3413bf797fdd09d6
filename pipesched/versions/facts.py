"""The weight versions in an order with STEPs inside. They follow from the lists and do not depend on times.

    rank 0   F0 F1 B0 STEP F2 B1 STEP B2 STEP        version of the stage:  0 until the first STEP, then 1, 2, 3

A STEP takes the gradients of its stage that are complete and not yet taken: the t-th STEP takes batch t.

    rule      F reads                      I and B read              F2 and B1 above, with k = 1
    stash     the newest version           the version of their F    1, 0      PipeDream, arXiv:1806.03377
    latest    the newest version           the newest version        1, 1      PipeMare, arXiv:1910.05124
    delay d   max(0, t - d) for batch t    the same                  2 - d     d = 1 is PipeDream-2BW, arXiv:2006.09503

A version is alive from its STEP until the next STEP of the stage, and longer if a later operation reads it. Live
versions are counted after each operation of a rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesched.model.columns import Bools, Ints
from pipesched.model.ops import Result
from pipesched.model.schedule import Schedule, Steps
from pipesched.schedule_analysis import Analysis

_END = 2**62


@dataclass(frozen=True, eq=False)
class Versions:
    """The weight versions of a schedule with a correct compute order.

    steps: the STEPs inside the order. unit: for each STEP, its copy of a stage, as stage * ranks + rank. made: for each
    operation, the number of STEPs of its copy before it. forward, backward, done: at index stage * microbatches +
    microbatch, the index of the F, of the I or B, and of the last operation of the backward; -1 if there is none.
    """

    schedule: Schedule
    steps: Steps
    unit: Ints
    made: Ints
    forward: Ints
    backward: Ints
    done: Ints

    @classmethod
    def of(cls, made: Analysis) -> Versions | None:
        """Return the versions of an order; None for an order without a STEP inside."""
        schedule, steps = made.schedule, made.schedule.steps
        if steps is None:
            return None
        unit = steps.stage.astype(np.int64) * schedule.ranks + steps.rank
        units = schedule.stage.astype(np.int64) * schedule.ranks + schedule.rank
        before = _before(unit, steps.at, units, len(schedule)) if len(schedule) else np.zeros(1, dtype=np.int64)
        results = made.dependencies.made
        forward, backward, weights = (results[x].astype(np.int64) for x in _RESULTS)
        done = np.maximum(weights, backward)
        return cls(schedule, steps, unit, before, forward=forward, backward=backward, done=done)

    @property
    def rule(self) -> str:
        """The first word of the version rule in the file; "" if the file has no rule."""
        return self.steps.rule.partition(" ")[0]

    @cached_property
    def trained(self) -> Bools:
        """At index stage * microbatches + microbatch: True if that microbatch has a weight gradient on that stage."""
        wanted = self.schedule.placement.wants[Result.WEIGHTS]
        return np.repeat(wanted, self.schedule.microbatches) & (self.done >= 0)

    @cached_property
    def batch(self) -> Ints:
        """At index stage * microbatches + microbatch: number of the STEP for its gradient; -1 if it has no gradient."""
        return np.where(self.trained, self.made[self.done], -1)

    @cached_property
    def number(self) -> Ints:
        """For each STEP, its number among the STEPs of its copy, from 0."""
        order = np.argsort(self.unit, kind="stable")
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.arange(len(order)) - np.searchsorted(self.unit[order], self.unit[order])
        return number

    @cached_property
    def read(self) -> Ints:
        """At index stage * microbatches + microbatch: the version that the F reads; -1 if there is no F."""
        newest = np.where(self.forward >= 0, self.made[self.forward], -1)
        if self.rule != "delay":
            return newest
        delayed = np.maximum(self.batch - int(self.steps.rule.partition(" ")[2]), 0)
        return np.where(self.trained, delayed, newest)

    @cached_property
    def read_back(self) -> Ints:
        """At index stage * microbatches + microbatch: the version that the I or B reads; -1 if there is neither."""
        read = self.made[self.backward] if self.rule == "latest" else self.read
        return np.where(self.backward >= 0, read, -1)

    @cached_property
    def crossings(self) -> Ints:
        """At index stage * microbatches + microbatch: the number of STEPs of the stage between F and I or B."""
        both = (self.forward >= 0) & (self.backward >= 0)
        return np.where(both, self.made[self.backward] - self.made[self.forward], 0)

    @cached_property
    def lags(self) -> Ints:
        """At index stage * microbatches + microbatch: the staleness, the version at the STEP less the version read."""
        return np.where(self.trained, self.batch - self.read_back, 0)

    @property
    def staleness(self) -> tuple[int, ...]:
        """For each rank, the largest of `lags`."""
        return self._by_rank(self.lags)

    @property
    def crossed(self) -> tuple[int, ...]:
        """For each rank, the largest of `crossings`."""
        return self._by_rank(self.crossings)

    @cached_property
    def alive(self) -> tuple[int, ...]:
        """For each rank, the largest number of versions of one stage that are alive at once."""
        _, unit, delta = self._events
        after = np.cumsum(delta)  # the entries of a copy sum to 0
        most = np.zeros(self.schedule.ranks, dtype=np.int64)
        np.maximum.at(most, unit % self.schedule.ranks, after)
        return tuple(most.tolist())

    def held(self, weights: Sequence[int]) -> Ints:
        """Return, for each operation, the memory of all versions on its rank while it runs, shape (operations,).

        weights: for each stage, the size of one version, in any unit.
        """
        schedule, size = self.schedule, len(self.schedule)
        place, unit, delta = self._events
        stage, rank = np.divmod(unit, schedule.ranks)
        wide = size + len(self.steps) + 2
        keys = rank * wide + np.clip(place + 1, 0, wide - 1)
        order = np.argsort(keys, kind="stable")
        total = np.cumsum((delta * np.array(weights, dtype=np.int64)[stage])[order])
        begins = schedule.rank * wide + np.arange(size) + np.searchsorted(self.steps.at, np.arange(size), side="right")
        before = total[np.searchsorted(keys[order], begins, side="right") - 1]  # an operation frees at its end
        return np.asarray(before)

    def _by_rank(self, values: Ints) -> tuple[int, ...]:
        most = np.zeros(self.schedule.ranks, dtype=np.int64)
        there = np.flatnonzero(self.backward >= 0)
        np.maximum.at(most, self.schedule.rank[self.backward[there]], values[there])
        return tuple(most.tolist())

    @cached_property
    def _events(self) -> tuple[Ints, Ints, Ints]:
        """The beginnings (1) and ends (-1) of all versions, sorted by copy: positions in the lists, copies, signs."""
        order, ranks, microbatches = self.schedule, self.schedule.ranks, self.schedule.microbatches
        places = np.arange(len(order)) + np.searchsorted(self.steps.at, np.arange(len(order)), side="right")
        own = [s * ranks + r for s in range(order.stages) for r in order.placement.copies(s)]
        unit = np.concatenate([np.array(own, dtype=np.int64), self.unit])
        begin = np.concatenate([np.full(len(own), -1), self.steps.at + np.arange(len(self.steps))])
        at = np.lexsort((begin, unit))  # the versions of each copy, one after the other
        unit, begin = unit[at], begin[at]
        last = np.append(unit[1:] != unit[:-1], True)
        end = np.where(last, _END, np.append(begin[1:], 0))
        if self.rule != "latest":
            keys = np.flatnonzero((self.backward >= 0) & (self.read >= 0))
            copy = keys // microbatches * ranks + order.rank[self.backward[keys]]
            version = np.searchsorted(unit, copy) + self.read[keys]
            inside = version < np.searchsorted(unit, copy, side="right")
            np.maximum.at(end, version[inside], places[self.done[keys[inside]]])
        place, delta = np.concatenate([begin, end]), np.repeat([1, -1], len(unit))
        unit = np.tile(unit, 2)
        at = np.lexsort((delta, place, unit))
        return place[at], unit[at], delta[at]


_RESULTS = Result.ACTIVATION, Result.GRADIENT, Result.WEIGHTS


def _before(steps: Ints, at: Ints, units: Ints, size: int) -> Ints:
    """Return, for each operation, the number of earlier STEPs of its copy, shape (size,).

    steps: the copy of each STEP. at: the operation that each STEP precedes. units: the copy of each operation.
    """
    keys, wide = np.sort(steps * (size + 1) + at), size + 1
    first = np.searchsorted(keys, units * wide)
    return np.asarray(np.searchsorted(keys, units * wide + np.arange(size), side="right") - first)
