"""The worst makespan over all orders in which microbatches can come, each with its own costs.

The order of operations stays; microbatch i gets the costs of entry e(i), where e is a permutation. The makespan is the
length of the longest of very many paths. For one path, let C[i, j] be what it has of microbatch i with the costs of
entry j: its worst permutation is an assignment, found by sorting where C[i, j] = a[i] * b[j].

    few permutations      each is tried
    many                  from below: the assignment of a longest path, then that of its own longest path, until none is
                          longer; from above: prices (`_Prices`)
    very long lists       from below: the order as it is; from above: every operation with its worst entry
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from math import factorial, prod

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.model.columns import Column, Ints
from pipesched.model.costs import Ticks
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule

TRIED = 40_000_000  # operations that are run to try every permutation
RELAXED = 12_000_000  # operations times kinds of entries, over all rounds of prices
ROUNDS = 160  # of prices, at most
PASSED = 300_000  # operations that are passed, over all rounds
FINE = 64  # parts of a tick in which prices are counted
LOOKED = 4_000_000  # operations times microbatches, beyond which a bound is all that is looked for
_RUN = 2_000_000  # operations that are run side by side
_SCALES, _PATIENCE = 7, 10  # first prices, each half of those before; rounds without a gain before a step is halved
_OFTEN = 5  # rounds, of which one is taken for a permutation


@dataclass(frozen=True)
class Worst:
    """value: with these entries; bound: no permutation has more. entries: by microbatch, whose costs it has."""

    value: Fraction | int
    bound: Fraction | int
    entries: tuple[int, ...]

    @property
    def exact(self) -> bool:
        return self.value == self.bound

    def times(self, unit: Fraction) -> Worst:
        """The same in another unit."""
        return replace(self, value=self.value * unit, bound=self.bound * unit)


def worst_makespan(schedule: Schedule, dependencies: Dependencies, times: Timeline, ticks: Ticks) -> Worst:
    """The worst makespan, in ticks, of a schedule that finishes; times: its timeline."""
    if len(schedule) * schedule.microbatches > LOOKED:
        compute, message = (_of_the_worst(table, axes) for table, axes in ((ticks.compute, 2), (ticks.message, 1)))
        pair = None if ticks.pair is None else _of_the_worst(ticks.pair, 1)
        bound = timeline(schedule, dependencies, Ticks(ticks.scale, compute, pair, message)).makespan
        return Worst(times.makespan, bound, tuple(range(schedule.microbatches)))
    net = _Net.of(schedule, dependencies, times, ticks)
    return net.tried() if net.permutations * len(net.turn) <= TRIED else net.between()


def _of_the_worst(table: Ints, axes: int) -> Ints:
    return table.max(axis=-1) if table.ndim > axes else table


@dataclass(frozen=True, eq=False)
class _Net:
    """Operations and what they wait for; the second part of an overlap pair comes after the first.

    turn: the operations, inputs first. microbatch, op: of each. weight: its time, by kind of entry. before: the one
    before it on its rank, or -1. into: of each input from another rank the last part of its slot, the producer, and its
    delay by kind. kinds: of the entries, by microbatch; counts: entries of each kind.
    """

    turn: list[int]
    microbatch: list[int]
    op: list[int]
    weight: list[Ints]
    before: list[int]
    into: list[list[tuple[int, int, Ints]]]
    kinds: Ints
    counts: Ints

    @classmethod
    def of(cls, schedule: Schedule, dependencies: Dependencies, times: Timeline, ticks: Ticks) -> _Net:
        """The net of a schedule; entries with the same costs are of one kind."""
        tables = [_by_entry(ticks.compute, 2, schedule), _by_entry(ticks.message, 1, schedule)]
        tables += [] if ticks.pair is None else [_by_entry(ticks.pair, 1, schedule)]
        columns = np.concatenate([table.reshape(-1, schedule.microbatches) for table in tables])
        _, known, kinds, counts = np.unique(columns, axis=1, return_index=True, return_inverse=True, return_counts=True)
        compute, message, *pair = (table[..., known] for table in tables)
        op, stage = schedule.op.tolist(), schedule.stage.tolist()
        weight = [compute[x] for x in zip(op, stage, strict=True)]
        second = np.flatnonzero(schedule.joined)
        for x in second[schedule.op[second] == Op.B].tolist() if pair else ():
            weight[x - 1], weight[x] = pair[0][stage[x - 1]], np.zeros(len(known), dtype=np.int64)
        head, last = np.arange(len(schedule)), np.arange(len(schedule))
        head[second], last[second - 1] = second - 1, second
        into: list[list[tuple[int, int, Ints]]] = [[] for _ in op]
        found = dependencies.messages()
        for producer, consumer in zip(found.producer.tolist(), found.consumer.tolist(), strict=True):
            into[int(head[consumer])].append((int(last[producer]), producer, message[stage[producer]]))
        before = np.arange(-1, len(schedule) - 1)
        before[schedule.start[:-1][np.diff(schedule.start) > 0]] = -1
        turn = np.lexsort((np.arange(len(schedule)), times.turn)).tolist()
        return cls(turn, schedule.microbatch.tolist(), op, weight, before.tolist(), into, kinds.ravel(), counts)

    @property
    def permutations(self) -> int:
        """How many differ."""
        return factorial(len(self.kinds)) // prod(map(factorial, self.counts.tolist()))

    def ends(self, kinds: Ints) -> list[Ints]:
        """The end of every operation; kinds: by permutation and microbatch."""
        ends = [np.zeros(len(kinds), dtype=np.int64)] * len(self.turn)
        nothing = np.zeros(len(kinds), dtype=np.int64)
        for x in self.turn:
            start = nothing if self.before[x] < 0 else ends[self.before[x]]
            for tail, producer, delay in self.into[x]:
                start = np.maximum(start, ends[tail] + delay[kinds[:, self.microbatch[producer]]])
            ends[x] = start + self.weight[x][kinds[:, self.microbatch[x]]]
        return ends

    def tried(self) -> Worst:
        """The worst of all permutations."""
        best, chosen = -1, self.kinds
        every = _arrangements(self.counts.tolist())
        while len(some := np.array(list(islice(every, max(1, _RUN // len(self.turn)))), dtype=np.int64)):
            found = np.max(self.ends(some), axis=0)
            if found.max() > best:
                best, chosen = int(found.max()), some[int(np.argmax(found))]
        return Worst(best, best, self.entries(chosen))

    def entries(self, kinds: Ints) -> tuple[int, ...]:
        """An entry for each microbatch, of the kinds that are wanted."""
        entries = np.empty(len(kinds), dtype=np.int64)
        entries[np.argsort(kinds, kind="stable")] = np.argsort(self.kinds, kind="stable")
        return tuple(entries.tolist())

    def between(self) -> Worst:
        """The worst that is found, and a bound."""
        found = self.climbed(self.kinds)
        high = int(np.max(self.at_worst().ends(np.zeros((1, len(self.kinds)), dtype=np.int64))))
        if (rounds := min(ROUNDS, PASSED // len(self.turn), RELAXED // (len(self.turn) * len(self.counts)))) > _SCALES:
            prices = _Prices(self)
            for turn in range(rounds):
                bound, path = prices.next(found[0])
                high = min(high, bound)
                if turn < _SCALES or turn % _OFTEN == 0:
                    found = max(found, self.climbed(self.sorted(path)), key=lambda one: one[0])
                if found[0] == high:
                    break
        return Worst(found[0], high, self.entries(found[1]))

    def at_worst(self) -> _Net:
        """Every operation with the entry that is worst for it."""
        weight = [w.max(keepdims=True) for w in self.weight]
        into = [[(tail, sender, delay.max(keepdims=True)) for tail, sender, delay in x] for x in self.into]
        return replace(self, weight=weight, into=into)

    def sorted(self, path: Ints) -> Ints:
        """The kinds by microbatch: where the path has most, the longest; the best where what it has is a product."""
        long = np.argsort(np.sum(self.weight, axis=0), kind="stable")
        kinds = np.empty(len(self.kinds), dtype=np.int64)
        kinds[np.argsort(path[:, long[-1]] - path[:, long[0]], kind="stable")] = np.repeat(long, self.counts[long])
        return kinds

    def climbed(self, kinds: Ints) -> tuple[int, Ints]:
        """From a permutation to one that its longest path does not make worse."""
        low, best = -1, kinds
        while True:
            value, path = self.longest(kinds)
            if value <= low:
                return low, best
            low, best, kinds = value, kinds, self.sorted(path)

    def longest(self, kinds: Ints) -> tuple[int, Ints]:
        """The makespan, and a longest path: what it has of each microbatch, by kind."""
        ends = [int(end[0]) for end in self.ends(kinds[None, :])]
        path = np.zeros((len(kinds), len(self.counts)), dtype=np.int64)
        x = int(np.argmax(ends))
        makespan = ends[x]
        while x >= 0:
            path[self.microbatch[x]] += self.weight[x]
            start, now = ends[x] - int(self.weight[x][kinds[self.microbatch[x]]]), x
            x = self.before[now]
            if x < 0 or ends[x] < start:
                x = -1
                for tail, producer, delay in self.into[now] if start else ():
                    if ends[tail] + int(delay[kinds[self.microbatch[producer]]]) == start:
                        path[self.microbatch[producer]] += delay
                        x = tail
                        break
        return makespan, path


@dataclass(frozen=True, eq=False)
class _Arc:
    """From an operation to the next on a path. delay: by kind of entry, of the microbatch that is sent, or None.

    same: whether both are of one microbatch; visit: whether the next one begins a visit.
    """

    tail: int
    sender: int
    delay: Ints | None
    same: bool
    visit: bool


class _Prices:
    """A bound from above.

        price    v[j] >= 0 for each kind of entry; a path pays v[e(i)] for each microbatch i on it, so sum(v) at most
        visit    operations of one kind and microbatch, side by side on a path; each pays a share of the price, and the
                 shares of all visits that a path can have of a microbatch add up to 1 at most
        bound    sum(v) + the longest path on which every visit has the entry that is best for it after its share

    So a microbatch may have another entry at each visit, and an entry may be there twice: that is what is given away.
    Whatever the prices are it is a bound; they go where it is small, by subgradients. All in parts of a tick.
    """

    def __init__(self, net: _Net) -> None:
        self.net = net
        self.arcs = [self._into(x) for x in range(len(net.turn))]
        work: dict[int, int] = {}
        for x, op in enumerate(net.op):
            work[op] = work.get(op, 0) + int(net.weight[x] @ net.counts)
        self.work, self.total = work, max(1, sum(work.values()))
        self.shares = [(op, most) for op, most in zip(net.op, self._visits(sorted(work)), strict=True)]
        """By operation, its kind, and how many visits of this kind a path can have of its microbatch."""
        self.at = self.kept = FINE * np.sum(net.weight, axis=0) / len(net.kinds)
        """The prices of the next round, at first of all operations of a microbatch; and those of the best one."""
        self.best, self.turn, self.waited, self.step = -1, 0, 0, 1.0

    def _into(self, x: int) -> list[_Arc]:
        net, arcs = self.net, []
        inputs = [(net.before[x], None, None)] if net.before[x] >= 0 else []
        for tail, sender, delay in [*inputs, *net.into[x]]:
            same = net.microbatch[tail] == net.microbatch[x]
            sent = None if delay is None or not delay.any() else delay
            if sent is not None and sender != tail:
                sent = np.full(len(sent), sent.max())
            arcs.append(
                _Arc(tail, tail if sender is None else sender, sent, same, not same or net.op[tail] != net.op[x])
            )
        return arcs

    def _visits(self, kinds: list[int]) -> list[int]:
        """By operation, the most visits of its microbatch and kind that a path can have."""
        net = self.net
        group = [net.microbatch[x] * len(kinds) + kinds.index(op) for x, op in enumerate(net.op)]
        most = np.zeros(len(net.kinds) * len(kinds), dtype=np.int64)
        paths = [most] * len(net.turn)
        for x in net.turn:
            paths[x] = np.zeros_like(most)
            paths[x][group[x]] = 1
            for arc in self.arcs[x]:
                came = paths[arc.tail].copy()
                came[group[x]] += arc.visit
                np.maximum(paths[x], came, out=paths[x])
            np.maximum(most, paths[x], out=most)
        visits: list[int] = most[group].tolist()
        return visits

    def bound(self, price: Ints) -> tuple[int, Column, Ints]:
        """A bound in ticks; what its path pays, in shares of each price; and what it has of each microbatch by kind."""
        net = self.net
        paid = {share: price * self.work[share[0]] // (self.total * share[1]) for share in set(self.shares)}
        value = [price] * len(net.turn)
        for x in net.turn:
            share = paid[self.shares[x]]
            begun = -share
            for arc in self.arcs[x]:
                came = value[arc.tail] if arc.delay is None else value[arc.tail] + FINE * arc.delay
                came = came if arc.same else came.max()
                begun = np.maximum(begun, came - share if arc.visit else came)
            value[x] = begun + FINE * net.weight[x]
        x = max(range(len(value)), key=lambda x: int(value[x].max()))
        high = (int(value[x].max()) + int(price @ net.counts)) // FINE
        return high, *self._path(x, value, paid)

    def _path(self, x: int, value: list[Ints], paid: dict[tuple[int, int], Ints]) -> tuple[Column, Ints]:
        """The path to an operation that the values come from: what it pays, and what it has."""
        net, kind = self.net, int(np.argmax(value[x]))
        shares, has = np.zeros(len(net.counts)), np.zeros((len(net.kinds), len(net.counts)), dtype=np.int64)
        while x >= 0:
            has[net.microbatch[x]] += net.weight[x]
            op, most = self.shares[x]
            share = int(paid[op, most][kind])
            begun = int(value[x][kind]) - FINE * int(net.weight[x][kind])
            visit, y, other = True, -1, kind
            for arc in self.arcs[x]:
                came = value[arc.tail] if arc.delay is None else value[arc.tail] + FINE * arc.delay
                last = kind if arc.same else int(np.argmax(came))
                if int(came[last]) - share * arc.visit == begun:
                    visit, y, other = arc.visit, arc.tail, last
                    if arc.delay is not None:
                        has[net.microbatch[arc.sender]] += arc.delay
                    break
            if visit:
                shares[kind] += self.work[op] / (self.total * most)
            x, kind = y, other
        return shares, has

    def next(self, low: int) -> tuple[int, Ints]:
        """A bound, and what its path has of each microbatch. low: what some permutation has."""
        self.turn += 1
        bound, paid, path = self.bound(np.floor(self.at).astype(np.int64))
        if self.best < 0 or bound < self.best:
            self.best, self.kept, self.waited = bound, self.at, 0
        else:
            self.waited += 1
        if self.turn < _SCALES:
            self.at = self.at / 2
        elif self.turn == _SCALES or self.waited == _PATIENCE:
            self.at, self.waited = self.kept, 0
            self.step /= 1 if self.turn == _SCALES else 2
        else:
            slope = self.net.counts - paid
            length = self.step * FINE * max(bound - low, 1) / max(float(slope @ slope), 1e-9)
            self.at = np.maximum(self.at - length * slope, 0)
        return bound, path


def _by_entry(table: Ints, axes: int, schedule: Schedule) -> Ints:
    """A table with an entry for each microbatch."""
    wide = table if table.ndim > axes else table[..., None]
    return np.broadcast_to(wide, (*wide.shape[:-1], schedule.microbatches))


def _arrangements(counts: list[int]) -> Iterator[tuple[int, ...]]:
    """Every order of so many of each kind, once."""
    left, made = list(counts), list[int]()

    def more() -> Iterator[tuple[int, ...]]:
        if len(made) == sum(counts):
            yield tuple(made)
            return
        for kind in range(len(left)):
            if left[kind]:
                left[kind] -= 1
                made.append(kind)
                yield from more()
                made.pop()
                left[kind] += 1

    return more()
