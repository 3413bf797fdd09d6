"""What is to be decided, in whole numbers.

    Find a start for every operation, so that
      chain     F(s) before F(s+1), ..., I(s+1) before I(s), I before W         end + lag <= start
      machine   a rank runs one operation at a time
      memory    on every rank, at every time: taken by what has started - freed by what has ended <= cap

    makespan  everything has ended by C
    span      on every rank, from its first start to its last end it is at most C

All microbatches of a route are alike, so some best schedule runs the operations of a kind and a stage in microbatch
order (the FIFO lemma: sort the starts of each kind and stage; every inequality above survives). What remains to be
decided is how the *sequences* (one kind, one stage, one route) interleave on their rank:

    sequence q   F of stage 0   x0 x1 x2 ...       operation i of sequence q is number first[q] + i

A rank may begin later than it could: that makes its span shorter. Starts express such a delay directly. A schedule is
an order, run as early as possible, and expresses it by the microbatch that goes first on a rank (`late_start`), which
is the one place where the order of microbatches matters. So no order has less than the least over starts, which is what
bounds and engines are about; where an order has no more, it is optimal.

`Question` asks for a schedule with an objective of at most C; an engine's `Answer` is sat, unsat or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.units import NO_UNIT, Unit

Orders: TypeAlias = Sequence[Sequence[int]]
"""A schedule: the operations of each rank, in order."""

_SPAN_HELP = "use --objective makespan"
_NEVER = np.int64(2**60)


@dataclass(frozen=True, eq=False)
class Problem:
    """One instance; times in ticks of 1 / scale, memory in parts of `part` of the unit of peaks.

    op, route, stage, rank, length, duration, takes, frees: int64, shape (sequences,). takes: at the start; frees: at
    the end, negative where more is taken. before, after, lag: int64, shape (edges,): operation i of sequence `after`
    starts at least lag after the end of operation i of `before`. cap: int64, shape (ranks,). unit: of times.
    """

    placement: Placement
    fused: bool
    objective: str
    scale: Fraction
    part: Fraction
    op: Ints
    route: Ints
    stage: Ints
    rank: Ints
    length: Ints
    duration: Ints
    takes: Ints
    frees: Ints
    before: Ints
    after: Ints
    lag: Ints
    cap: Ints
    unit: Unit = NO_UNIT

    def __getstate__(self) -> dict[str, object]:
        """Its fields: another process derives the rest anew."""
        return {x.name: getattr(self, x.name) for x in fields(self)}

    @property
    def ranks(self) -> int:
        return len(self.cap)

    @property
    def sequences(self) -> int:
        return len(self.op)

    @cached_property
    def first(self) -> Ints:
        """The number of the first operation of each sequence; shape (sequences + 1,)."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.length)])

    @property
    def operations(self) -> int:
        return int(self.first[-1])

    @cached_property
    def sequence(self) -> Ints:
        """The sequence of every operation."""
        return np.repeat(np.arange(self.sequences), self.length)

    @cached_property
    def index(self) -> Ints:
        """The place of every operation in its sequence."""
        return np.arange(self.operations) - self.first[self.sequence]

    @cached_property
    def on(self) -> tuple[tuple[int, ...], ...]:
        """The sequences of every rank."""
        return tuple(tuple(np.flatnonzero(self.rank == r).tolist()) for r in range(self.ranks))

    @cached_property
    def work(self) -> Ints:
        """By rank, in ticks."""
        return np.bincount(self.rank, self.length * self.duration, self.ranks).astype(np.int64)

    @cached_property
    def durations(self) -> list[int]:
        """Of every operation."""
        durations: list[int] = self.duration[self.sequence].tolist()
        return durations

    @cached_property
    def producers(self) -> tuple[list[int], list[int]]:
        """By operation: what it waits for, -1 if nothing, and the least time from that one's start to its own."""
        first, delay = np.full(self.operations, -1), np.zeros(self.operations, dtype=np.int64)
        for b, a, lag in zip(self.before.tolist(), self.after.tolist(), self.lag.tolist(), strict=True):
            i = np.arange(int(self.length[a]))
            first[self.first[a] + i] = self.first[b] + i
            delay[self.first[a] + i] = self.duration[b] + lag
        return first.tolist(), delay.tolist()

    @cached_property
    def precedence(self) -> tuple[Ints, Ints, Ints]:
        """(later, earlier, delay) between operations: start of later >= start of earlier + delay. Chains and FIFO."""
        counts = self.length[self.after]
        edge = np.repeat(np.arange(len(self.after)), counts)
        i = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
        later, earlier = self.first[self.after[edge]] + i, self.first[self.before[edge]] + i
        delay = self.duration[self.before[edge]] + self.lag[edge]
        fifo = np.flatnonzero(self.index > 0)
        return (
            np.concatenate([later, fifo]),
            np.concatenate([earlier, fifo - 1]),
            np.concatenate([delay, self.duration[self.sequence[fifo]]]),
        )

    def time(self, ticks: int) -> Fraction:
        """Ticks in the user's unit."""
        return int(ticks) / self.scale

    def said(self, ticks: int) -> str:
        """Ticks as people read them."""
        return self.unit.text(self.time(ticks))

    def value(self, start: Ints) -> int:
        """The objective of a schedule, in ticks."""
        end = start + self.duration[self.sequence]
        return int(self.spans(start).max(initial=0) if self.objective == "span" else end.max(initial=0))

    def spans(self, start: Ints) -> Ints:
        """By rank, from its first start to its last end; 0 without stages."""
        rank = self.rank[self.sequence]
        first, last = np.full(self.ranks, _NEVER), np.full(self.ranks, -_NEVER)
        np.minimum.at(first, rank, start)
        np.maximum.at(last, rank, start + self.duration[self.sequence])
        lengths: Ints = np.maximum(last - first, 0)
        return lengths


@dataclass(frozen=True)
class Sizes:
    """What a problem is built from: ticks of an operation and of a message by stage, memory in parts.

    ticks: by kind; takes, frees: by kind, where there is any.
    """

    scale: Fraction
    ticks: Mapping[Op, Ints]
    message: Ints
    part: Fraction
    takes: Mapping[Op, Ints]
    frees: Mapping[Op, Ints]
    cap: Ints


def build(placement: Placement, sizes: Sizes, *, fused: bool, objective: str = "makespan") -> Problem:
    """The instance of a placement; every stage of every route has a rank.

    Raises:
        PipeschedError: PS225, the span of two routes; PS702, a stage that reads others than the one before it.
    """
    if not placement.chain:
        message = f"{placement.skip}: orders are searched where every stage reads the one before it"
        raise fail(Code.NOT_OPTIMIZED, message, help="give the placement of a chain with --placement")
    if objective == "span" and placement.routes > 1:
        raise fail(Code.USAGE, "the span of a placement with two routes depends on which begins", help=_SPAN_HELP)
    rows: list[tuple[int, int, int, int, int, int, int, int]] = []
    edges: list[tuple[int, int, int]] = []
    counts = np.bincount(placement.route_of, minlength=placement.routes).tolist()
    none = np.zeros(placement.stages, dtype=np.int64)
    for route, ranks in enumerate(placement.rank_of.tolist()):
        stages, n = len(ranks), counts[route]
        if not n:
            continue
        forward = len(rows)
        backward, weight = forward + stages, forward + 2 * stages
        for kind in (Op.F, Op.B) if fused else (Op.F, Op.I, Op.W):
            columns = zip(sizes.ticks[kind], sizes.takes.get(kind, none), sizes.frees.get(kind, none), strict=True)
            rows += [(kind, route, s, ranks[s], n, *map(int, column)) for s, column in enumerate(columns)]
        lag = [int(x) for x in sizes.message]
        for s in range(stages - 1):
            crosses = ranks[s] != ranks[s + 1]
            edges.append((forward + s, forward + s + 1, lag[s] if crosses else 0))
            edges.append((backward + s + 1, backward + s, lag[s + 1] if crosses else 0))
        edges.append((backward - 1, backward + stages - 1, 0))
        edges += [] if fused else [(backward + s, weight + s, 0) for s in range(stages)]
    op, of_route, stage, rank, length, duration, takes, frees = np.array(rows, dtype=np.int64).reshape(-1, 8).T.copy()
    before, after, lags = np.array(edges, dtype=np.int64).reshape(-1, 3).T.copy()
    return Problem(
        placement=placement,
        fused=fused,
        objective=objective,
        scale=sizes.scale,
        part=sizes.part,
        op=op,
        route=of_route,
        stage=stage,
        rank=rank,
        length=length,
        duration=duration,
        takes=takes,
        frees=frees,
        before=before,
        after=after,
        lag=lags,
        cap=sizes.cap,
    )


class Repeat(NamedTuple):
    """A part that repeats: for t in first .. last, started by t + period = started by t + so many microbatches."""

    first: int
    last: int
    microbatches: int
    period: int


@dataclass(frozen=True, eq=False)
class Question:
    """Is there a schedule with objective at most `bound` ticks?

    engine: cadical, z3 or cpsat. ranks: these alone (see `reductions`), None for all. repeat: the schedule is
    to repeat itself there. proof: where to write PATH.cnf and PATH.drat of a refutation. limit: steps after which an
    engine is to give up, None for never; seed: where its choices begin.
    """

    problem: Problem
    bound: int
    engine: str = "cadical"
    ranks: tuple[int, ...] | None = None
    repeat: Repeat | None = None
    proof: str | None = None
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Answer:
    """verdict: sat, unsat or unknown (never taken for unsat; `reason` says why). start: of a sat answer to a question
    about all ranks, int64, shape (operations,), else None. steps: what it took, the same on every machine.
    """

    verdict: str
    start: Ints | None = None
    steps: int = 0
    engine: str = ""
    reason: str = ""
