"""The messages of a trace: on the track of the sender from its end until it arrives, on the other's where it arrives.

    rank 0   F0.0 |=== SEND ====|           a message leaves when its producer ends,
    rank 1                      |RECV| F1.0      and is there tC later, whenever its consumer starts

Slices of one thread may not overlap, so that messages in flight together take lanes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from pipesched.views.chart import Chart

ARRIVAL = 1
"""Microseconds that an arrival is drawn long, and a message that takes no time."""


@dataclass(frozen=True)
class Message:
    """A slice of a message on one of its two ranks; flow: ``s`` where it is sent, ``f`` where it arrives."""

    begin: int
    length: int
    flow: str
    number: int
    consumer: int


def messages(chart: Chart, tick: int) -> list[list[Message]]:
    """The slices of every rank in the order of their begins. A message is sent when its producer ends."""
    dependencies, schedule = chart.dependencies, chart.schedule
    consumers = np.flatnonzero(dependencies.crosses & (chart.times.end[dependencies.producer] >= 0))
    producers = dependencies.producer[consumers]
    late = chart.message[np.clip(schedule.stage[producers], 0, schedule.stages - 1)]
    columns = (consumers, schedule.rank[producers], schedule.rank[consumers], chart.times.end[producers], late)
    by_rank: list[list[Message]] = [[] for _ in range(schedule.ranks)]
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True), 1):
        consumer, source, target, begin, length = *row[:3], tick * row[3], tick * row[4]
        by_rank[source].append(Message(begin, max(length, ARRIVAL), "s", number, consumer))
        by_rank[target].append(Message(begin + length, ARRIVAL, "f", number, consumer))
    return [sorted(of, key=lambda message: (message.begin, message.number)) for of in by_rank]


def lanes(slices: Iterable[Message]) -> Iterator[tuple[int, Message]]:
    """The lane of each slice, the lowest that is free; slices in the order of their begins."""
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    for message in slices:
        while busy and busy[0][0] <= message.begin:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (message.begin + message.length, lane))
        yield lane, message
