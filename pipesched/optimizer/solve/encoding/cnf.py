"""The encoding of "there is a schedule with objective at most C" as clauses over unary counters.

    y[x, t]   operation x has started by t       t from head to latest start; false before, true from then
    a[q, t]   sequence q is running at t

    counter   y[x, t]  ->  y[x, t + 1]
    chain     y[x, t]  ->  y[e, t - delay]                      e is the operation before; FIFO and memory edges too
    running   y[x, t] and not y[x, t - d]  ->  a[q, t]
    machine   not a[q, t] or not a[q', t]                       two sequences of one rank
    span      first start on a rank by t ->  last end by t + C           if the objective is the span
    instant   an operation without duration starts at t  ->  no operation of its rank starts before t and ends after t

A sequence in FIFO order is a single counter, so no variable represents a pair of operations: there are O(operations x
time window) variables in all. Memory constraints that are not precedences compare two sums of counters
(`memory_counters`). Clauses are built as arrays; no Python loop runs over operations. This is the order encoding of
Crawford and Baker, AAAI 1994, with one counter per sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve.bounds.longest_paths import Link
from pipesched.optimizer.solve.encoding.clauses import TRUE, Encoding, Joins, over
from pipesched.optimizer.solve.encoding.memory_counters import join, memory
from pipesched.optimizer.solve.problem import Problem, Repeat

Edges = tuple[Ints, Ints, Ints]
"""(later, earlier, delay): start of later >= start of earlier + delay; int64, one entry per edge."""


def encode(
    problem: Problem,
    low: Ints,
    high: Ints,
    precedences: Edges,
    linked: tuple[int, ...],
    joins: Joins = (),
    repeat: Repeat | None = None,
    span: int | None = None,
) -> Encoding:
    """Encode the schedules within low .. high: the models of the clauses are exactly their starts.

    Args:
        problem: every F has a duration above 0.
        low: the earliest start of every operation.
        high: the latest start of every operation.
        precedences: chains, the orders of sequences, and memory links.
        linked: the ranks whose memory constraints the precedences express in full.
        joins: the sequences that wait for several other sequences together.
        repeat: a part that must repeat itself, or None.
        span: a limit on the span of every rank, or None.
    """
    made = Encoding(problem, low, high, joins)
    made.clauses.impossible = bool((high < low).any())
    x, t = over(low, high - 1)
    made.clauses.add(-made.started(x, low[x] + t), made.started(x, low[x] + t + 1))
    _chains(made, precedences)
    for held in problem.on:
        _machine(made, held)
    for rank, held in enumerate(problem.on):
        if held and rank not in linked:
            memory(made, rank)
    for q, inputs in joins:
        join(made, q, inputs)
    if repeat is not None:
        _periodic(made, repeat)
    if span is not None:
        for held in problem.on:
            _span(made, held, span)
    return made


def ends(problem: Problem, held: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the operations that can be the first of a rank, and the operations that can be the last."""
    used = [q for q in held if problem.length[q]]
    first = [int(problem.first[q]) for q in used if problem.op[q] == Op.F]
    return first, [int(problem.first[q + 1]) - 1 for q in used if problem.op[q] in (Op.W, Op.B)]


def _span(made: Encoding, held: tuple[int, ...], span: int) -> None:
    for x, z in product(*ends(made.problem, held)):
        late = span - int(made.problem.duration[made.problem.sequence[z]])
        t = np.arange(int(made.low[x]), max(int(made.high[x]), int(made.high[z]) - late) + 1)
        made.clauses.add(-made.started(np.full(len(t), x), t), made.started(np.full(len(t), z), t + late))


def edges(problem: Problem, links: Iterable[Link]) -> Edges:
    """Expand links between sequences to edges between operations."""
    none = np.zeros(0, dtype=np.int64)
    columns = [(none, none, none)]
    for link in links:
        i = np.arange(link.offset, int(problem.length[link.later]))
        earlier = problem.first[link.earlier] + i - link.offset
        columns.append((problem.first[link.later] + i, earlier, np.full(len(i), link.delay)))
    later, earlier, delay = (np.concatenate(column) for column in zip(*columns, strict=True))
    return later, earlier, delay


def _chains(made: Encoding, precedences: Edges) -> None:
    later, earlier, delay = precedences
    low = made.low[later]
    which, step = over(low, np.minimum(made.high[later], made.high[earlier] + delay))
    t = low[which] + step
    made.clauses.add(-made.started(later[which], t), made.started(earlier[which], t - delay[which]))


def _machine(made: Encoding, held: tuple[int, ...]) -> None:
    """Add clauses for: a rank runs one operation at a time, and operations without duration between two others."""
    duration = {q: int(made.problem.duration[q]) for q in held}
    running = [_during(made, q, 0, duration[q]) for q in held if duration[q]]
    for one, two in combinations(running, 2):
        _exclude(made, one, two)
    inside = [_during(made, q, 1, duration[q]) for q in held if duration[q] > 1]
    for instant in [_during(made, q, 0, 1) for q in held if not duration[q]] if inside else []:
        for other in inside:
            _exclude(made, instant, other)


def _during(made: Encoding, q: int, since: int, until: int) -> tuple[int, Ints]:
    """Return (t0, literals from t0 on): an operation of q has started by t - since, but not by t - until."""
    ops = made.of(q)
    low, high = made.low[ops] + since, made.high[ops] + until
    begin = int(low.min(initial=0))
    literals = made.clauses.new(int(high.max(initial=begin)) - begin)
    which, step = over(low, high)
    x, t = ops[which], low[which] + step
    made.clauses.add(-made.started(x, t - since), made.started(x, t - until), literals[t - begin])
    return begin, literals


def _exclude(made: Encoding, one: tuple[int, Ints], two: tuple[int, Ints]) -> None:
    (begin, first), (other, second) = one, two
    low, high = max(begin, other), min(begin + len(first), other + len(second))
    if low < high:
        made.clauses.add(-first[low - begin : high - begin], -second[low - other : high - other])


def _periodic(made: Encoding, repeat: Repeat) -> None:
    """Add clauses for: n more operations of each sequence have started by t + period than by t, for t in first .. last.

    Operations with an index below 0 count as started, and operations beyond the last index as not started.
    """
    first, last, n, period = repeat
    t = np.arange(first, last + 1)
    for q in range(made.problem.sequences):
        begin, length = int(made.problem.first[q]), int(made.problem.length[q])
        i = np.arange(-n, length)[:, None]
        now, then = (
            np.where(j < 0, TRUE, np.where(j >= length, -TRUE, made.started(begin + np.clip(j, 0, length - 1), at)))
            for j, at in ((i, t), (i + n, t + period))
        )
        made.clauses.add(-now, then)
        made.clauses.add(now, -then)
