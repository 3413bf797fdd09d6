"""One machine: jobs with heads and tails, one at a time.

    value of a set = its least head + its work + its least tail        no schedule ends sooner

The largest value over all sets is what Jackson's preemptive schedule takes: always run the job with the largest tail
among those whose head has passed. (Jackson 1955; Carlier, EJOR 11, 1982: "the one-machine sequencing problem".) A best
set is all jobs with at least its head and at least its tail, so two numbers tell it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from pipesched.model.columns import Ints


@dataclass(frozen=True)
class Busy:
    """All jobs with head >= head and tail >= tail; work is their sum."""

    head: int
    work: int
    tail: int

    @property
    def value(self) -> int:
        return self.head + self.work + self.tail


def busiest(head: Ints, work: Ints, tail: Ints) -> Busy:
    """The set of largest value, all jobs if theirs is as large; O(n log n). Jobs of no work count too: a path is a set
    of one job.
    """
    if not len(head):
        return Busy(0, 0, 0)
    most, everything = _largest(head, work, tail), Busy(int(head.min()), int(work.sum()), int(tail.min()))
    return everything if everything.value == most.value else most


def _largest(head: Ints, work: Ints, tail: Ints) -> Busy:
    least = _critical_tail(head, work, tail)
    within = tail >= least
    order = np.flatnonzero(within)[np.argsort(-head[within], kind="stable")]
    total = np.cumsum(work[order])
    values = head[order] + total
    best = int(np.argmax(values))
    value = int(values[best])
    return Busy(int(head[order[best]]), value - int(head[order[best]]), least)


def _critical_tail(head: Ints, work: Ints, tail: Ints) -> int:
    """The tail of the job that decides Jackson's preemptive schedule."""
    order = np.argsort(head, kind="stable")
    heads, left, tails = head[order].tolist(), work[order].tolist(), tail[order].tolist()
    count, at, now = len(heads), 0, 0
    most, least = -(2**62), 0
    waiting: list[tuple[int, int]] = []
    while at < count or waiting:
        if not waiting:
            now = max(now, heads[at])
        while at < count and heads[at] <= now:
            heappush(waiting, (-tails[at], at))
            at += 1
        rest, job = waiting[0]
        until = heads[at] if at < count else now + left[job]
        if now + left[job] <= until:
            now += left[job]
            heappop(waiting)
            if now - rest > most:
                most, least = now - rest, -rest
        else:
            left[job] -= until - now
            now = until
    return least
