"""Instances at small sizes, run in order, as data for guesses. Nothing here is a proof.

The order determines the microbatch of each instance: F, I and B take the next microbatch of their chunk, W the oldest I
without a W, R the oldest F without an R.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from pipesched.language import ast
from pipesched.model.columns import Ints
from pipesched.model.slices import mirrored
from pipesched.prover.enumeration import at, points, values
from pipesched.prover.model import Model
from pipesched.prover.presburger import Point
from pipesched.prover.scope import Scope, evaluate
from pipesched.prover.statements import Statement

OF = {"W": "I", "R": "F"}
"""The kinds that take the microbatch of the oldest instance of another kind."""
RANKS, MICROBATCHES = 6, 40
LARGER = 80  # microbatches of the samples at one p that has no smaller size
FEW, MANY = (9, 4, 40), (6, 5, 30)  # in base p: ranks, groups of p microbatches, microbatches in groups
FEW_CHUNKS = 2  # of a rank, with which a sample may have more sizes


@dataclass(eq=False)
class Instance:
    """An operation at one size. point: the point of its statement. position: its place in the program, by which
    instances are sorted. key: its stage and its microbatch.

    turn: the microbatch that it names or takes.
    """

    statement: int
    size: Point
    point: Point
    floors: tuple[int, ...]
    position: tuple[int, ...] = ()
    key: tuple[int, int] = (-1, -1)
    turn: int = -1


class Stuck(Exception):
    """Raised if the order cannot run because a microbatch is past the last one or a W comes before its I."""


@dataclass(eq=False)
class Sample:
    """The instances of statements at a few sample sizes, in execution order, by size and rank."""

    model: Model
    sizes: tuple[Point, ...]
    ranks: dict[tuple[Point, int], list[Instance]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found: defaultdict[tuple[Point, int], list[Instance]] = defaultdict(list)
        for number, statement in enumerate(self.model.statements):
            for each in self._points(number, statement):
                found[each.size, each.point[0]].append(each)
        for (size, rank), instances in found.items():
            self.ranks[size, rank] = _Run(self, size, rank).of(sorted(instances, key=lambda x: x.position))

    @cached_property
    def grid(self) -> Ints:
        """The sample sizes, one row each."""
        return np.array(self.sizes, dtype=np.int64).reshape(len(self.sizes), len(self.model.parameters))

    def _points(self, number: int, statement: Statement) -> Iterator[Instance]:
        model, count = self.model, len(self.model.parameters)
        domain = statement.domain
        if statement.drain:
            own = model.space.raw(model.space.dims[statement.loops])
            domain = domain.intersect(own.zero_set())
        rows, named = points(domain, self.grid), statement.microbatch
        floors = np.column_stack([rows[:, :0], *(values(each, rows) for each in statement.floors)])
        turns = [-1] * len(rows) if named is None else at(model.space, named, rows)
        for row, own, turn in zip(rows.tolist(), floors.tolist(), turns, strict=True):
            made = Instance(number, tuple(row[:count]), tuple(row[count:]), tuple(own), turn=turn)
            made.position = statement.position(made.point[1:])
            yield made

    @cached_property
    def held(self) -> dict[tuple[Point, int], list[tuple[int, int]]]:
        """The route and stage of each chunk, by size and rank."""
        found: defaultdict[tuple[Point, int], list[tuple[int, int]]] = defaultdict(list)
        for chunk in self.model.placing.chunks:
            for *size, rank, route, stage in points(chunk.wrap(), self.grid).tolist():
                found[tuple(size), rank].append((route, stage))
        return found

    def ends(self, size: Point) -> list[tuple[int, int]]:
        """Return each route's first microbatch, and the end of its range."""
        known = self.model.known_at(size)
        scope = self.model.names(self.model.space)
        scope = Scope(scope.space, {**scope.values, **known}, scope.definitions, scope.context)
        whole = 0, evaluate(ast.Name(self.model.file.name.span, "m"), scope)
        of = [whole if x is None else x.of(scope) for x in self.model.placing.ends]
        return [(int(low), int(high)) for low, high in of]

    def columns(self, statement: int) -> Ints:
        """Return a row for each instance of a statement: 1, size, rank, loop variables, floors."""
        rows = [(1, *x.size, *x.point, *x.floors) for x in self.of(statement)]
        return np.array(rows, dtype=np.int64)

    def of(self, statement: int) -> list[Instance]:
        """Return the instances of a statement."""
        return self._by_statement[statement]

    @cached_property
    def _by_statement(self) -> list[list[Instance]]:
        found: list[list[Instance]] = [[] for _ in self.model.statements]
        for instances in self.ranks.values():
            for each in instances:
                found[each.statement].append(each)
        return found


class _Run:
    """The program of one rank at one size."""

    def __init__(self, sample: Sample, size: Point, rank: int) -> None:
        self.sample, self.size = sample, size
        self.held, self.ends = sample.held[size, rank], sample.ends(size)
        self.next: Counter[tuple[str, int]] = Counter()
        self.waiting: defaultdict[tuple[str, int | None], deque[tuple[int, int, int]]] = defaultdict(deque)

    def of(self, instances: list[Instance]) -> list[Instance]:
        """Run the instances: assign a microbatch to each, and expand a drain into one W for each pending I."""
        done: list[Instance] = []
        for each in instances:
            statement = self.sample.model.statements[each.statement]
            if not statement.drain:
                self._take(each, statement)
                done.append(each)
                continue
            count = len(self._queue(statement))
            for k in range(count):
                point = (*each.point[: statement.loops], k, *each.point[statement.loops + 1 :])
                made = Instance(each.statement, each.size, point, each.floors)
                made.position = statement.position(point[1:])
                self._take(made, statement)
                done.append(made)
        return done

    def _queue(self, statement: Statement) -> deque[tuple[int, int, int]]:
        chunk = statement.chunk
        if chunk is None or len(self.held) == 1:
            both = [x for (op, _), queue in self.waiting.items() if op == statement.letter for x in queue]
            return deque(sorted(both))
        return self.waiting[statement.letter, chunk]

    def _take(self, each: Instance, statement: Statement) -> None:
        letter, chunk = statement.letter, statement.chunk
        if letter in OF and statement.microbatch is None:
            queue = self._queue(statement)
            if not queue:
                raise Stuck
            number, chunk, turn = queue[0]
            self.waiting[letter, chunk].remove((number, chunk, turn))
        else:
            kind = "G" if letter in "IB" else letter
            turn = (
                each.turn
                if statement.microbatch is not None
                else self.next[kind, chunk] + self.ends[self.held[chunk][0]][0]
            )
            self.next[kind, chunk] += 1
            if letter in "IB" and statement.microbatch is None and self.sample.model.slices > 1:
                turn = mirrored(turn, self.sample.model.slices)
        route, stage = self.held[chunk]
        if not self.ends[route][0] <= turn < self.ends[route][1]:
            raise Stuck
        each.key, each.turn = (stage, turn), turn
        for later, of in OF.items():
            if of == letter:
                self.next["", 0] += 1
                self.waiting[later, chunk].append((self.next["", 0], chunk, turn))


def sizes(model: Model, ranks: int = RANKS, microbatches: int = MICROBATCHES) -> tuple[Point, ...]:
    """Return small sizes that the file accepts: the smallest numbers of ranks, each with a few numbers of
    microbatches.
    """
    groups = inside = 0
    if model.digits:
        ranks, groups, inside = FEW if len(model.placing.chunks) <= FEW_CHUNKS else MANY
    most = {"p": 2 * RANKS, "m": microbatches, "g": groups, "h": 2 * RANKS}
    box = [*product(*(range(most[name] + 1) for name in model.parameters))]
    rows = np.array(box, dtype=np.int64).reshape(len(box), len(model.parameters))
    found = [tuple(row) for row in points(model.sizes, rows).tolist()]
    if "p" not in model.varying:
        return tuple(found[:20]) if found or microbatches == LARGER else sizes(model, ranks, LARGER)
    chosen: list[Point] = []
    for p in [*dict.fromkeys(size[0] for size in found)][:ranks]:
        own = [size for size in found if size[0] == p]
        chosen += [x for x in own if p * x[1] <= inside] if model.digits else own[: min(p, ranks) + ranks]
    return tuple(chosen)
