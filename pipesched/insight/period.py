"""Finds the period of an order: the time that each further microbatch adds if its kernel repeats without end.

    rank 0   F F F | F B | F B | F B | B B B
    rank 1   F F   | F B | F B | F B | B B

The kernel of K microbatches (here 1) is between two bars. The n-th copies of the kernel's slots are the nodes of a
graph with an edge from x to every y that follows x in a list or receives a message from x: y of copy n starts at
least w after the start of x of copy n - d. The period of K microbatches is the maximum, over all cycles, of the sum of
w divided by the sum of d. Two facts prove a period: a cycle with that ratio, along which every edge is tight in the
timeline; and a start time x(c) for each slot c of the kernel such that x(y) >= x(x) + w - period * d on every edge, so
that no cycle has a larger ratio (Cuninghame-Green, Minimax Algebra, 1979). Both are found in the timeline of enough
copies. The difference between two makespans is not the period: if the cycle spans several copies, makespans grow
unevenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipesched.analysis.timeline import slot_costs
from pipesched.model.columns import Bools, Ints, makes
from pipesched.model.ops import Result
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from pipesched.support.record import Record
from pipesched.views.causes import causes

_COPIES = 3  # least copies of a kernel in an order that has one
_LARGEST = 2.0**62


@dataclass(frozen=True)
class Period:
    """The time that the kernel adds, and the cycle that proves it. microbatches: the number of microbatches in a
    kernel. length: the time that a kernel adds, in the user's unit. work: the work of a kernel, by rank. ranks: the
    ranks of the cycle that sets the period; spans: the copies of the kernel that this cycle spans.
    """

    microbatches: int
    length: Fraction
    work: tuple[Fraction, ...]
    ranks: tuple[int, ...]
    spans: int

    @property
    def each(self) -> Fraction:
        """The time that each microbatch adds."""
        return self.length / self.microbatches

    @property
    def idle(self) -> tuple[Fraction, ...]:
        """The idle time that a microbatch adds, by rank."""
        return tuple((self.length - work) / self.microbatches for work in self.work)

    @property
    def imbalance(self) -> tuple[Fraction, ...]:
        """The part of `idle` that is due to uneven work, by rank: the difference from the work of the busiest rank."""
        return tuple((max(self.work) - work) / self.microbatches for work in self.work)

    @property
    def bubble(self) -> Fraction:
        """The idle share of all ranks in the long run."""
        total = len(self.work) * self.length
        return 1 - sum(self.work, Fraction(0)) / total if total else Fraction(0)


class _Kernel(Record):
    """The copies of a kernel in an order.

    node, copy: for each operation, the operation of the kernel that it repeats, and the index of its copy; -1 outside
    the copies. The second part of an overlap pair has the node of the first part. begin: the first node of every rank,
    shape (ranks + 1,). slots: the nodes without second parts, by rank.
    """

    microbatches: int
    node: Ints
    copy: Ints
    begin: Ints
    slots: Ints


class _Edges(Record):
    """Edges: in each, node `later` of copy n starts at least `lag` after node `earlier` of copy n - `span`."""

    earlier: Ints
    later: Ints
    lag: Ints
    span: Ints


def period(made: Analysis) -> Period | None:
    """Return the period of an order; None if the timeline shows no kernel or no proof.

    Orders with costs that differ between microbatches, or with copies to host memory, are not covered.
    """
    schedule, ticks, times = made.schedule, made.ticks, made.timeline
    alike = ticks.compute.ndim == 2 and ticks.message.ndim == 1 and all(each.ndim == 1 for each in ticks.pair.values())
    if not (made.finished and len(schedule) and alike) or times.copies is not None:
        return None
    cost = slot_costs(schedule, ticks)
    if (kernel := _kernel(schedule)) is None or (edges := _edges(made, kernel, cost)) is None:
        return None
    cycle = _cycle(kernel, causes(schedule, made.dependencies, times, ticks).cause, times.start)
    if cycle is None or not _holds(kernel, edges, times.start, cycle[0]):
        return None
    length, spans, nodes = cycle
    work = np.add.reduceat(_of_nodes(kernel, cost), kernel.begin[:-1])
    ranks = np.unique(np.searchsorted(kernel.begin, nodes, side="right") - 1)
    return Period(
        kernel.microbatches, length / ticks.scale, tuple(map(made.time, work.tolist())), tuple(ranks.tolist()), spans
    )


def _kernel(schedule: Schedule) -> _Kernel | None:
    """Return the smallest kernel, in microbatches, that an order repeats at least three times; None without one."""
    placement, m, route = schedule.placement, schedule.microbatches, schedule.placement.route_of
    if not np.diff(schedule.start).all() or int(schedule.microbatch.min()) < 0 or int(schedule.microbatch.max()) >= m:
        return None
    size = np.bincount(route, minlength=placement.routes)
    number = np.empty(m, dtype=np.int64)  # of a microbatch in its route
    number[np.argsort(route, kind="stable")] = np.concatenate([np.arange(n) for n in size])
    way, number = route[schedule.microbatch], number[schedule.microbatch]
    name = (schedule.op.astype(np.int64) * schedule.stages + schedule.stage) * placement.routes + way
    name = 2 * name + schedule.joined
    for every in range(schedule.slices, m // _COPIES + 1, schedule.slices):
        if not (size * every % m).any():
            found = _copies(schedule, every, name, number, (size * every // m)[way])
            if found is not None and _whole(schedule, found):
                return found
    return None


def _whole(schedule: Schedule, kernel: _Kernel) -> bool:
    """Return True if a kernel makes every result of every stage for all of its microbatches."""
    key = schedule.rank.astype(np.int64) * schedule.stages + schedule.stage
    key, one = key * schedule.placement.routes + schedule.placement.route_of[schedule.microbatch], kernel.copy == 1
    for result in Result:
        made = makes(schedule.op, result)
        all_of_it, in_one = (np.unique(key[made & which], return_counts=True) for which in (True, one))
        if not (
            np.array_equal(all_of_it[0], in_one[0])
            and np.array_equal(all_of_it[1] * kernel.microbatches, in_one[1] * schedule.microbatches)
        ):
            return False
    return True


def _copies(schedule: Schedule, every: int, name: Ints, number: Ints, ahead: Ints) -> _Kernel | None:
    """Return the copies of a kernel of `every` microbatches; None if a rank has too few copies.

    number: the number of each operation's microbatch within its route. ahead: how much larger this number is in the
    next copy.
    """
    node, copy = np.full(len(schedule), -1), np.full(len(schedule), -1)
    begin = [0]
    for rank in range(schedule.ranks):
        low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
        middle = (low + high) // 2
        again = np.flatnonzero(
            (name[middle:high] == name[middle]) & (number[middle:high] == number[middle] + ahead[middle])
        )
        n = int(again[0]) if len(again) else high - low
        a, b = slice(low, high - n), slice(low + n, high)
        first, most = _longest((name[a] == name[b]) & (number[a] + ahead[a] == number[b]))
        if most and schedule.joined[low + first]:
            first, most = first + 1, most - 1
        if most < (_COPIES - 1) * n:
            return None
        at = np.arange(most + n)
        node[low + first + at], copy[low + first + at] = begin[-1] + at % n, at // n
        begin.append(begin[-1] + n)
    second = np.flatnonzero(schedule.joined)
    node[second], copy[second] = node[second - 1], copy[second - 1]
    return _Kernel(every, node, copy, np.array(begin), np.unique(node[node >= 0]))


def _longest(flags: Bools) -> tuple[int, int]:
    """Return the start and the length of the longest run of True."""
    edge = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    low, high = edge[::2], edge[1::2]
    best = int(np.argmax(high - low)) if len(low) else -1
    return (int(low[best]), int(high[best] - low[best])) if best >= 0 else (0, 0)


def _of_nodes(kernel: _Kernel, column: Ints) -> Ints:
    """Return, for each node, the largest value among its copies; 0 for second parts."""
    values = np.zeros(int(kernel.begin[-1]), dtype=np.int64)
    inside = kernel.node >= 0
    np.maximum.at(values, kernel.node[inside], column[inside])
    return values


def _edges(made: Analysis, kernel: _Kernel, cost: Ints) -> _Edges | None:
    """Return the edges of the kernel; None if the messages of its copies differ, or come from before the first copy."""
    found, schedule = made.dependencies.messages(), made.schedule
    u, v = (np.asarray(at - schedule.joined[at]) for at in (found.producer, found.consumer))
    lag = cost[u] + made.ticks.delays(schedule.stage[found.producer], schedule.microbatch[found.producer])
    into = np.bincount(v, minlength=len(schedule))
    degree, there = _of_nodes(kernel, into), (kernel.node >= 0) & ~schedule.joined
    node, copy, joined = kernel.node, kernel.copy, schedule.joined
    rows = np.column_stack([node[u], node[v], lag, copy[v] - copy[u], joined[found.producer], joined[found.consumer]])
    rows = np.unique(rows[(node[u] >= 0) & (node[v] >= 0)], axis=0)
    if (into[there] != degree[kernel.node[there]]).any():
        return None
    if (np.bincount(rows[:, 1], minlength=len(degree)) != degree).any():
        return None
    after, wraps = np.roll(kernel.slots, -1), np.zeros(len(kernel.slots), dtype=np.int64)
    last = np.searchsorted(kernel.slots, kernel.begin[1:]) - 1
    after[last], wraps[last] = kernel.begin[:-1], 1
    lists = np.column_stack([kernel.slots, after, _of_nodes(kernel, cost)[kernel.slots], wraps])
    return _Edges(*np.concatenate([rows[:, :4], lists]).T)


def _cycle(kernel: _Kernel, cause: Ints, start: Ints) -> tuple[Fraction, int, list[int]] | None:
    """Return the time, the number of spanned copies and the nodes of the cycle of tight edges with the largest time per
    copy.

    The chain of causes that ends last is followed back; when a node recurs, the part in between is a cycle and is
    removed.
    """
    best: tuple[Fraction, int, list[int]] | None = None
    chain: list[int] = []
    place: dict[int, int] = {}
    for at in _back(kernel, cause, start):
        node = int(kernel.node[at])
        if node in place:
            ring = chain[place[node] :]
            spans = int(kernel.copy[ring[0]] - kernel.copy[at])
            ratio = Fraction(int(start[ring[0]] - start[at]), spans) if spans > 0 else Fraction(-1)
            nodes = [int(kernel.node[x]) for x in ring]
            if best is None or ratio > best[0]:
                best = ratio, spans, nodes
            for x in nodes:
                del place[x]
            del chain[len(chain) - len(ring) :]
        place[node] = len(chain)
        chain.append(at)
    return best


def _back(kernel: _Kernel, cause: Ints, start: Ints) -> Iterator[int]:
    """Yield the chain of causes back from the last-starting operation in a copy, until it leaves the copies."""
    inside = np.flatnonzero(kernel.node >= 0)
    at = int(inside[np.argmax(start[inside])])
    while at >= 0 and kernel.node[at] >= 0:
        yield at
        at = int(cause[at])


def _holds(kernel: _Kernel, edges: _Edges, start: Ints, length: Fraction) -> bool:
    """Return True if start times for this period exist, trying the latest start times in the second half of the
    copies.
    """
    top, bottom = length.numerator, length.denominator
    inside = np.flatnonzero(kernel.node >= 0)
    most = _of_nodes(kernel, kernel.copy)
    if float(start.max()) * bottom + float(top) * float(most.max() + 1) >= _LARGEST:
        return False
    late = inside[2 * kernel.copy[inside] >= most[kernel.node[inside]]]
    x = np.full(len(most), -(2**62), dtype=np.int64)
    np.maximum.at(x, kernel.node[late], start[late] * bottom - kernel.copy[late] * top)
    return bool((x[edges.later] >= x[edges.earlier] + edges.lag * bottom - edges.span * top).all())
