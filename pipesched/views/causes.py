"""Finds the cause of each operation's start, and splits idle time exactly by cause.

    start(x) = the end of the slot before it        its cause is that slot
             = the end of its input + tC            its cause is the input's producer, by a message
             = the end of a copy (O, L)             its cause is the operation that began the engine's busy time
             = 0                                    it has no cause

A start is the maximum of these, so it equals at least one of them, which is called tight. If the previous slot is
tight, it is the cause: without the message, x would not start earlier. The critical path follows the causes back from
the last end to 0 without a gap: its operations and messages add up to the makespan.

    rank 2   ...... F0 F1 ... B0 .. F2 B1 .....          idle(r) = makespan - work(r)
             warm-up      waits           cool-down              = the sum of the five parts

    warm-up     before the first operation of the rank
    cool-down   after its last one; all of the idle time if the rank has no operations
    waits       between two operations. Such a gap ends with an operation whose input comes from another rank. The
                chain of causes is followed back from there to the start of the gap. It covers the gap completely with
                operations of other ranks (`compute`) and messages in transit (`message`); copies to host memory and
                back count as messages.
    imbalance   max over ranks of work - work(r). No order of operations removes it, since another rank, with larger or
                more stages, is busy for that much longer. It is subtracted from the other four parts: first from the
                waits for compute and then from the waits for messages, since it arises with every microbatch; then
                from cool-down and warm-up.

If ranks have equal work there is no imbalance, and the total idle time is the same on every rank. All values are in
ticks, shape (ranks,) or (gaps,). If a run gets stuck, idle time is counted up to the time at which it stops.
"""

from __future__ import annotations

import numpy as np

from pipesched.analysis.copies import Copies
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import Timeline, slot_costs
from pipesched.model.columns import Bools, Ints
from pipesched.model.costs import Ticks
from pipesched.model.schedule import Schedule
from pipesched.support.record import Record


class Causes(Record):
    """The tight predecessor of every operation; both parts of a pair have the same predecessor. Shape (operations,).

    cause: the operation that causes the start, -1 if there is none or the operation never runs. lag: the ticks that the
    message or copies between the cause and the operation take, 0 without any. crosses: whether the cause acts through a
    message or copy.
    """

    cause: Ints
    lag: Ints
    crosses: Bools


def causes(schedule: Schedule, dependencies: Dependencies, times: Timeline, ticks: Ticks) -> Causes:
    """Return the cause of every start; O(operations)."""
    source = np.where(dependencies.crosses, dependencies.producer, -1)
    lag = _lag(schedule, ticks, source)
    ran = times.start >= 0
    tight = (source >= 0) & ran & (times.end[source] + lag == times.start)
    also = dependencies.further
    arrives = times.end[also.producer] + _lag(schedule, ticks, also.producer)
    late = also.crosses & ran[also.consumer] & (arrives == times.start[also.consumer]) & ~tight[also.consumer]
    at = also.consumer[late]
    source[at], lag[at], tight[at] = also.producer[late], _lag(schedule, ticks, also.producer[late]), True
    if (copies := times.copies) is not None:
        begins = _run_from(copies, times.end)
        late = (copies.waits >= 0) & (begins >= 0) & (copies.end >= 0) & (copies.end == times.start[copies.waits])
        at = copies.waits[late]
        source[at], tight[at] = begins[late], True
        lag[at] = copies.end[late] - times.end[begins[late]]
    second = np.flatnonzero(schedule.joined)
    heir = second[tight[second] & ~tight[second - 1]]  # the second part's input arrived last
    source[heir - 1], lag[heir - 1], tight[heir - 1] = source[heir], lag[heir], True
    before = np.arange(len(schedule)) - 1
    first = schedule.start[:-1][schedule.start[:-1] < schedule.start[1:]]
    follows = ran.copy()
    follows[first] = False
    follows &= times.end[before] == times.start
    cause = np.where(follows, before, np.where(tight, source, -1))
    lag = np.where(tight & ~follows, lag, 0)
    crosses = tight & ~follows
    cause[second], lag[second], crosses[second] = cause[second - 1], lag[second - 1], crosses[second - 1]
    return Causes(cause, np.asarray(lag, dtype=np.int64), crosses)


def _lag(schedule: Schedule, ticks: Ticks, producer: Ints) -> Ints:
    """Return the latency of a message from each producer."""
    return ticks.delays(schedule.stage[producer], schedule.microbatch[producer])


def _run_from(copies: Copies, end: Ints) -> Ints:
    """Return, for each copy, the operation whose end began the busy period of the engine, or -1.

    end: the end time of every operation.
    """
    follows = ~copies.first & (end[copies.after] != copies.start)
    follows[1:] &= (copies.start[1:] == copies.end[:-1]) & (copies.start[1:] >= 0)
    at = np.arange(len(copies.op))
    return np.asarray(copies.after[np.maximum.accumulate(np.where(follows, 0, at))])


def critical_path(times: Timeline, why: Causes) -> list[int]:
    """Return the operations of a longest chain in chronological order, one part of each pair; [] if nothing ran.

    If several operations end last, the chain ends with the operation of the lowest rank.
    """
    if not len(times.end) or times.end.max() < 0:
        return []
    at = int(np.argmax(times.end))
    cause = why.cause.tolist()
    path = [at]
    while cause[at] >= 0:
        at = cause[at]
        path.append(at)
    return path[::-1]


PARTS = ("warm_up", "cool_down", "compute", "message", "imbalance")


class Gaps(Record):
    """Every interval in which a rank idles, sorted by rank and then by time.

    begin, end: times in ticks. before: the operation that ends the gap, -1 if the rank has run its last one. first:
    whether the rank has run no operation before the gap. message: ticks during which the awaited input is in transit.
    """

    rank: Ints
    begin: Ints
    end: Ints
    before: Ints
    first: Bools
    message: Ints

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def length(self) -> Ints:
        return self.end - self.begin


class Split(Record):
    """The parts of each rank's idle time. They add up to makespan - work, for the operations that ran."""

    warm_up: Ints
    cool_down: Ints
    compute: Ints
    message: Ints
    imbalance: Ints

    @property
    def idle(self) -> Ints:
        return self.warm_up + self.cool_down + self.compute + self.message + self.imbalance


def gaps(schedule: Schedule, times: Timeline, why: Causes) -> Gaps:
    """Return every interval of idle time; O(operations + longest chain in a gap)."""
    head = np.flatnonzero(~schedule.joined & (times.start >= 0))
    rank = schedule.rank[head].astype(np.int64)
    first = np.flatnonzero(schedule.start[:-1] < schedule.start[1:])
    opens = np.isin(head, schedule.start[:-1][first])
    begin = np.where(opens, 0, times.end[head - 1])
    inner = times.start[head] > begin
    last = np.zeros(schedule.ranks, dtype=np.int64)
    np.maximum.at(last, schedule.rank, np.maximum(times.end, 0))
    ends = np.flatnonzero(last < times.makespan)
    none = np.full(len(ends), -1, dtype=np.int64)
    joined = np.concatenate([rank[inner], ends])
    order = np.argsort(joined, kind="stable")
    message = _messages(begin[inner], head[inner], times, why)

    def both(a: Ints, b: Ints) -> Ints:
        return np.concatenate([a, b])[order]

    before = both(head[inner], none)
    return Gaps(
        joined[order],
        both(begin[inner], last[ends]),
        both(times.start[head[inner]], np.full(len(ends), times.makespan)),
        before,
        np.isin(before, schedule.start[:-1][first]),
        both(message, np.zeros(len(ends), dtype=np.int64)),
    )


def split(schedule: Schedule, times: Timeline, ticks: Ticks, found: Gaps) -> Split:
    """Return the idle time of every rank, by cause."""
    done = work(schedule, times, ticks)
    inner = (found.before >= 0) & ~found.first

    def total(amount: Ints, which: Bools) -> Ints:
        sums = np.zeros(schedule.ranks, dtype=np.int64)
        np.add.at(sums, found.rank[which], amount[which])
        return sums

    waits = total(found.length - found.message, inner)
    rest = {  # in the order in which imbalance is subtracted
        "compute": waits,
        "message": total(found.message, inner),
        "cool_down": total(found.length, found.before < 0),
        "warm_up": total(found.length, found.first),
    }
    imbalance = done.max(initial=0) - done
    left = imbalance.copy()
    for part, amount in rest.items():
        taken = np.minimum(left, amount)
        rest[part], left = amount - taken, left - taken
    return Split(rest["warm_up"], rest["cool_down"], rest["compute"], rest["message"], imbalance)


def chain(gap: int, found: Gaps, times: Timeline, why: Causes) -> list[int]:
    """Return the operations that run or send during a gap, latest first."""
    at, begin = int(found.before[gap]), int(found.begin[gap])
    steps: list[int] = []
    while at >= 0 and times.start[at] > begin and why.cause[at] >= 0:
        at = int(why.cause[at])
        steps.append(at)
    return steps


def _messages(begin: Ints, before: Ints, times: Timeline, why: Causes) -> Ints:
    """Return the ticks of each gap during which a message is in transit; all chains are followed in parallel."""
    total = np.zeros(len(begin), dtype=np.int64)
    at = before.copy()
    live = np.flatnonzero(why.cause[at] >= 0) if why.lag.any() else np.zeros(0, dtype=np.int64)
    while len(live):
        here = at[live]
        total[live] += np.minimum(why.lag[here], times.start[here] - begin[live])
        at[live] = here = why.cause[here]
        live = live[(times.start[here] > begin[live]) & (why.cause[here] >= 0)]
    return total


def work(schedule: Schedule, times: Timeline, ticks: Ticks) -> Ints:
    """Return the work of each rank in ticks, over the operations that ran."""
    done = np.zeros(schedule.ranks, dtype=np.int64)
    np.add.at(done, schedule.rank, np.where(times.start >= 0, slot_costs(schedule, ticks), 0))
    return done
