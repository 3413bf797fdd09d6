"""The optimization problem, in integers.

    Find a start for every operation, so that
      chain     F(s) before F(s+1), ..., I(s+1) before I(s), I before W         end + lag <= start
      machine   a rank runs one operation at a time
      memory    on every rank, at every time: taken by started operations - freed by ended operations <= cap

    makespan  every operation has ended by C
    span      on every rank, the time from its first start to its last end is at most C

All microbatches of a route are alike, so some best schedule runs operations of the same kind and stage in microbatch
order (the FIFO lemma: sort the starts of each kind and stage; every inequality above still holds). What remains is to
decide how the *sequences* (one kind, one stage, one route) interleave on each rank:

    sequence q   F of stage 0   x0 x1 x2 ...       operation i of sequence q is number first[q] + i

A rank can begin later than necessary, which shortens its span. Starts express such a delay directly. A schedule is an
order that is run as early as possible, and expresses a delay by the microbatch that goes first on a rank
(`late_start`); only there does the order of microbatches matter. So the objective of an order is never below the
minimum over all starts, to which bounds and engines refer; an order that reaches the minimum is optimal.

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
from pipesched.model.columns import Bools, Ints
from pipesched.model.ops import Op, Result
from pipesched.model.placement import Placement
from pipesched.model.units import NO_UNIT, Unit
from pipesched.optimizer.codes import OptimizerCode

Orders: TypeAlias = Sequence[Sequence[int]]
"""A schedule: the operations of each rank, in order."""

COLUMNS = ("op", "route", "stage", "rank", "length", "duration", "takes", "frees")
"""The columns of a problem that have one entry per sequence."""
_SPAN_HELP = "use --objective makespan"
_NEVER = np.int64(2**60)


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem. Times are in ticks of 1 / scale, and memory is in parts, whose size in the unit of peaks is `part`.

    op, route, stage, rank, length, duration, takes, frees: int64, shape (sequences,). takes: memory taken at the start;
    frees: memory freed at the end, negative if memory is taken. before, after, lag: int64, shape (edges,): operation i
    of sequence `after` starts at least lag after the end of operation i of `before`. cap: int64, shape (ranks,). unit:
    the unit of times.
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
        """Return only the fields; a receiving process derives the other values again."""
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
        """The index of every operation in its sequence."""
        return np.arange(self.operations) - self.first[self.sequence]

    @cached_property
    def on(self) -> tuple[tuple[int, ...], ...]:
        """The sequences on every rank."""
        return tuple(tuple(np.flatnonzero(self.rank == r).tolist()) for r in range(self.ranks))

    @cached_property
    def absent(self) -> Bools:
        """The sequences that no schedule runs, because the stage lacks a backward or W; they take no time."""
        kept, trained = (self.placement.wants[x][self.stage] for x in (Result.GRADIENT, Result.WEIGHTS))
        return np.where(self.op == Op.W, ~trained, (self.op != Op.F) & ~kept)

    @cached_property
    def work(self) -> Ints:
        """The compute time of every rank, in ticks."""
        return np.bincount(self.rank, self.length * self.duration, self.ranks).astype(np.int64)

    @cached_property
    def durations(self) -> list[int]:
        """The duration of every operation, in ticks."""
        durations: list[int] = self.duration[self.sequence].tolist()
        return durations

    @cached_property
    def producers(self) -> tuple[list[int], list[int]]:
        """The operation that each operation waits for (-1 for none), and the least time between the two starts."""
        first, delay = np.full(self.operations, -1), np.zeros(self.operations, dtype=np.int64)
        for b, a, lag in zip(self.before.tolist(), self.after.tolist(), self.lag.tolist(), strict=True):
            i = np.arange(int(self.length[a]))
            first[self.first[a] + i] = self.first[b] + i
            delay[self.first[a] + i] = self.duration[b] + lag
        return first.tolist(), delay.tolist()

    @cached_property
    def precedence(self) -> tuple[Ints, Ints, Ints]:
        """(later, earlier, delay): start of later >= start of earlier + delay, for chains and FIFO order."""
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
        """Return the ticks in the user's unit."""
        return int(ticks) / self.scale

    def said(self, ticks: int) -> str:
        """Return the ticks in the user's unit, as text."""
        return self.unit.text(self.time(ticks))

    def value(self, start: Ints) -> int:
        """Return the objective of a table of starts, in ticks."""
        end = start + self.duration[self.sequence]
        return int(self.spans(start).max(initial=0) if self.objective == "span" else end.max(initial=0))

    def spans(self, start: Ints) -> Ints:
        """Return the time from the first start to the last end of every rank; 0 without stages."""
        rank = self.rank[self.sequence]
        first, last = np.full(self.ranks, _NEVER), np.full(self.ranks, -_NEVER)
        np.minimum.at(first, rank, start)
        np.maximum.at(last, rank, start + self.duration[self.sequence])
        lengths: Ints = np.maximum(last - first, 0)
        return lengths


@dataclass(frozen=True)
class Sizes:
    """The costs and caps of a problem: the ticks of operations and messages, and memory in parts, by stage.

    ticks: the ticks of each kind; takes, frees: the memory that each kind takes or frees, if any. answered: the stages
    to which a gradient is sent, None for all.
    """

    scale: Fraction
    ticks: Mapping[Op, Ints]
    message: Ints
    part: Fraction
    takes: Mapping[Op, Ints]
    frees: Mapping[Op, Ints]
    cap: Ints
    answered: Bools | None = None


def _require_searched(placement: Placement, objective: str) -> None:
    """Raise PipeschedError, PS702 or PS225, for a placement whose orders are not searched under this objective."""
    if not placement.chain:
        message = f"{placement.skip}: orders are searched only if every stage reads the previous stage"
        raise fail(OptimizerCode.NOT_OPTIMIZED, message, help="give the placement of a chain with --placement")
    if objective == "span" and placement.routes > 1:
        raise fail(Code.USAGE, "with two routes the span depends on which route begins", help=_SPAN_HELP)


def build(placement: Placement, sizes: Sizes, *, fused: bool, objective: str = "makespan") -> Problem:
    """Build the problem of a placement in which every stage of every route has a rank.

    Raises:
        PipeschedError: PS225: the objective is the span of two routes. PS702: a stage reads a stage other than the
            previous one.
    """
    _require_searched(placement, objective)
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
            sent = crosses and (sizes.answered is None or sizes.answered[s])
            edges.append((backward + s + 1, backward + s, lag[s + 1] if sent else 0))
        edges.append((backward - 1, backward + stages - 1, 0))
        edges += [] if fused else [(backward + s, weight + s, 0) for s in range(stages)]
    held = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS)).T.copy()
    links = np.array(edges, dtype=np.int64).reshape(-1, 3).T.copy()
    arrays = [*held, *links, sizes.cap]
    return Problem(placement, fused, objective, sizes.scale, sizes.part, *arrays)


class Repeat(NamedTuple):
    """A part that repeats: for t in first .. last, `microbatches` of each sequence start in t + 1 .. t + period."""

    first: int
    last: int
    microbatches: int
    period: int


@dataclass(frozen=True, eq=False)
class Question:
    """The question whether there is a schedule with objective at most `bound` ticks.

    engine: cadical or z3. ranks: the only ranks to consider (see `reductions`), None for all. repeat: the
    periodicity to require, None for none. limit: the number of steps after which an engine stops, None for no limit;
    seed: the seed for random choices.
    """

    problem: Problem
    bound: int
    engine: str = "cadical"
    ranks: tuple[int, ...] | None = None
    repeat: Repeat | None = None
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to a question. verdict: sat, unsat, or unknown (which never counts as unsat; `reason` explains it).

    start: starts in a sat answer to a question about all ranks, int64, shape (operations,), otherwise None. steps: the
    work done, the same on every machine.
    """

    verdict: str
    start: Ints | None = None
    steps: int = 0
    engine: str = ""
    reason: str = ""
