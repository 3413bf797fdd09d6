"""The dependencies between operations: each operation needs the result of another operation.

    F(s) <- F(s-1)      I(s), B(s) <- I(s+1) or B(s+1)      W(s) <- I(s)
    F(0) <- nothing     the last stage's I, B <- its own F

These are the rows of `model.ops`. Each operation has one producer, so the dependency graph consists of the rank orders
and a single column. A producer on another rank costs a message; a producer on the same rank need only come earlier. If
a file names the stages that each stage reads, an F has one producer per stage that it reads, and a backward operation
has one per stage that reads its stage. The column contains the nearest producer; a list of further edges contains the
others, and is empty for a chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import numpy as np

from pipesched.model.columns import PLACE, Bools, Column, Ints, among, makes
from pipesched.model.ops import BEFORE, COMPUTES, MAKERS, SAME, Op, Result
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.support.record import Record


class Edges(Record):
    """Edges from producers to consumers, sorted by consumer. crosses: whether a message carries the result."""

    producer: Column
    consumer: Column
    crosses: Bools

    def __len__(self) -> int:
        return len(self.producer)


class Dependencies(Record):
    """The producers of all operations. made: for each kind of result, the first operation that makes it for each
    (stage, microbatch), -1 for none, shape (stages * microbatches,). producer: the operation that each operation
    depends on, -1 if it depends on none or the producer is missing. crosses: whether the producer is on another rank.
    valid: whether the operation's stage and microbatch are in range. further: additional producers, all of which exist.
    """

    made: Mapping[Result, Column]
    producer: Column
    crosses: Bools
    valid: Bools
    further: Edges

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """Return the dependencies of a schedule; O(operations)."""
        stages, microbatches = schedule.stages, schedule.microbatches
        stage, microbatch = schedule.stage, schedule.microbatch
        valid = (stage >= 0) & (stage < stages) & (microbatch >= 0) & (microbatch < microbatches)
        key, there, clean = schedule.key(), schedule.counts, bool(valid.all())

        known: dict[tuple[Op, ...], Ints] = {}

        def places(kinds: Iterable[Op]) -> Ints:
            """Return the operations of these kinds whose stage and microbatch are in range."""
            if (some := tuple(op for op in kinds if there[op])) not in known:
                which = among(schedule.op, some)
                known[some] = (which if clean else which & valid).nonzero()[0]
            return known[some]

        nowhere, made = np.full(stages * microbatches, -1, dtype=PLACE), dict[Result, Column]()
        for result, makers in MAKERS.items():
            at = places(makers)[::-1]
            made[result] = nowhere.copy() if len(at) else nowhere
            made[result][key[at]] = at  # for equal keys the first place is kept
        producer = np.full(len(schedule), -1, dtype=PLACE)
        found: list[tuple[Column, Column]] = []
        for (taken, of, own), kinds in _ALIKE.items():
            if not len(consumer := places(kinds)):
                continue
            nearest, others, begins = schedule.placement.neighbours(of)
            table = _passed(made[taken].reshape(stages, microbatches), of, schedule.placement)[nearest]
            table[nearest < 0] = -1 if own is None else made[own].reshape(stages, microbatches)[nearest < 0]
            producer[consumer] = table.reshape(-1)[key[consumer]]
            if len(others):
                count = np.diff(begins)[stage[consumer]]
                consumer = np.repeat(consumer, count)
                number = np.arange(len(consumer)) - np.repeat(np.cumsum(count) - count, count)
                source = others[begins[stage[consumer]] + number]
                found.append((made[taken][source * microbatches + microbatch[consumer]], consumer))
        crosses = (producer >= 0) & (schedule.rank[producer] != schedule.rank)
        none = Edges(producer[:0], producer[:0], crosses[:0])
        further = _further(schedule, *map(np.concatenate, zip(*found, strict=True))) if found else none
        return cls(made, producer, crosses, valid, further)

    def edges(self) -> Edges:
        """Return all edges, sorted by consumer; for each consumer the producer in the column comes first."""
        consumer = np.flatnonzero(self.producer >= 0).astype(PLACE)
        edges = Edges(self.producer[consumer], consumer, self.crosses[consumer])
        if not len(self.further):
            return edges
        names = Edges.__dataclass_fields__
        both = Edges(*(np.concatenate([getattr(edges, name), getattr(self.further, name)]) for name in names))
        return _chosen(both, np.argsort(both.consumer, kind="stable"))

    def messages(self) -> Edges:
        """Return the edges between ranks; each is one message."""
        if len(self.further):
            return _chosen(found := self.edges(), found.crosses)
        consumer = self.crosses.nonzero()[0].astype(PLACE)
        return Edges(self.producer[consumer], consumer, np.ones(len(consumer), dtype=np.bool_))


def _passed(made: Column, of: int, placement: Placement) -> Column:
    """Return `made`, shape (stages, microbatches), in which a skipped stage has the result that it passes on."""
    if not placement.left_out or of == SAME:
        return made
    passed, out = made.copy(), placement.table < 0
    for stage in range(1, len(made) - 1) if of == BEFORE else range(len(made) - 2, 0, -1):
        passed[stage] = np.where(out[stage], passed[stage + of], passed[stage])
    return passed


def _further(schedule: Schedule, producer: Ints, consumer: Ints) -> Edges:
    """Return the edges whose producer exists, sorted by consumer."""
    edges = Edges(producer, consumer, schedule.rank[producer] != schedule.rank[consumer])
    order = np.argsort(consumer, kind="stable")
    return _chosen(edges, order[producer[order] >= 0])


def _chosen(edges: Edges, which: Ints | Bools) -> Edges:
    return Edges(edges.producer[which], edges.consumer[which], edges.crosses[which])


def between_slices(schedule: Schedule, dependencies: Dependencies) -> Iterator[tuple[Ints, Ints]]:
    """Yield dependencies between the slices of a sequence: operations and their producers, -1 if missing.

    F(j) <- F(j-1)      I(j), B(j) <- I(j+1) or B(j+1)      of the same stage, so on the same rank
    """
    if schedule.slices == 1:
        return
    place = schedule.microbatch % schedule.slices
    for result, step, end in ((Result.ACTIVATION, -1, 0), (Result.GRADIENT, 1, schedule.slices - 1)):
        at = np.flatnonzero(dependencies.valid & makes(schedule.op, result) & (place != end))
        yield at, dependencies.made[result][schedule.key(at) + step]


_ALIKE: dict[tuple[Result, int, Result | None], list[Op]] = {}
"""The kinds of compute operations, grouped by the inputs that they need."""
for _op in COMPUTES:
    _ALIKE.setdefault((_op.result, _op.kind.of, _op.kind.own), []).append(_op)
