"""Why each operation starts when it does, and the chain that makes the makespan.

    start(x) = the end of the slot before it        its cause is that slot
             = the end of its input + tC            its cause is that input, by a message
             = 0                                    it has no cause

A start is the largest of these, so one of them is tight. Where both are, the slot before it is the cause: without the
message x would start no sooner. The critical path follows causes from the last end down to 0 and has no holes: its
operations and its messages add up to the makespan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import Timeline
from pipesched.model.columns import Bools, Ints
from pipesched.model.costs import Ticks
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Causes:
    """The tight predecessor of every operation; both parts of a pair have the same. Shape (operations,).

    cause: an operation, -1 where there is none, or where the operation never runs. lag: ticks of the message from it, 0
    without one. crosses: whether the cause is on another rank.
    """

    cause: Ints
    lag: Ints
    crosses: Bools


def causes(schedule: Schedule, dependencies: Dependencies, times: Timeline, ticks: Ticks) -> Causes:
    """The cause of every start; O(operations)."""
    source = np.where(dependencies.crosses, dependencies.producer, -1)
    lag = ticks.message[np.clip(schedule.stage[source], 0, schedule.stages - 1)]
    ran = times.start >= 0
    tight = (source >= 0) & ran & (times.end[source] + lag == times.start)
    second = np.flatnonzero(schedule.joined)
    heir = second[tight[second] & ~tight[second - 1]]  # the second part's input is the one that came last
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


def critical_path(times: Timeline, why: Causes) -> list[int]:
    """The operations of a longest chain in the order of time, [] if nothing ran; either part of a pair stands for both.

    It ends with the first operation in the order of ranks that ends last.
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
