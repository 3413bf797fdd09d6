"""Writes a schedule as Chrome's trace events, for Perfetto, chrome://tracing and TensorBoard.

    process  one per rank, in the order of ranks
    thread 0 compute    a complete slice (X) per slot; an overlap pair is one slice, since slices of a thread must nest
    thread 1 messages   a slice for each message in transit, and one at its arrival; more threads if they overlap:

        rank 0   F0.0 |=== SEND ====|           a message leaves when its producer ends,
        rank 1                      |RECV| F1.0      and arrives tC later, whenever its consumer starts

    thread 10000, 10001 copies out, copies in: a slice for each, if activations are offloaded
    flow     s, f       an arrow from every SEND to its RECV, with an id of its own
    counter  C          live activations of each rank, after every operation
    instant  i          operations that take no time; if a run gets stuck, the wait of each blocked rank

A rank that stops for good has a last slice up to the end of the picture, in red if the rank is in the cycle. Arrows
between these slices show the messages of the cycle.

Times are microseconds. A tick of the schedule is a whole number of microseconds, so no time is rounded; a unit of time
is about a millisecond, see `otherData.microseconds_per_unit`. A message that takes no time, and every arrival, is drawn
1 microsecond long, which is less than a tick. Source: the importer of Perfetto, `json_trace_parser.cc`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush

import numpy as np

from pipesched.model.ops import COPIED, Op
from pipesched.support.safe import safe
from pipesched.views import marks
from pipesched.views.causes import critical_path
from pipesched.views.chart.caption import cost
from pipesched.views.chart.chart import Chart
from pipesched.views.columns import amounts, causes_of, delays, producers

COMPUTE, MESSAGES, COPIES = 0, 1, 10_000


def render(chart: Chart) -> str:
    """Return the trace of a chart as JSON, one event per line."""
    return "".join(pieces(chart))


def pieces(chart: Chart) -> Iterator[str]:
    """Yield the trace, one rank at a time."""
    trace = _Trace(chart)
    about: dict[str, object] = {"name": chart.identifier, "parameters": dict(chart.sizes), "cost": cost(chart)}
    about["microseconds_per_unit"] = trace.tick * chart.scale
    yield f'{{"displayTimeUnit":"ms",\n"otherData":{_json(about)},\n"traceEvents":[\n'
    separator = ""
    for rank in range(chart.schedule.ranks):
        events = ",\n".join(trace.rank(rank))
        yield separator + events
        separator = ",\n"
    yield "\n]}\n"


def microseconds(chart: Chart) -> int:
    """Return the microseconds per tick: an integer, longer than an arrival; a unit of time is about a millisecond."""
    return max(2 * ARRIVAL, -(-1000 // chart.scale))


class _Trace:
    """The columns of a chart as lists, and the messages by rank. tick: the length of a tick, in microseconds.

    names: labels such as ``F0.3``. about: op, stage and microbatch as members of a JSON object. held: the memory while
    each F runs, and after every other operation. kept: the memory after every operation, less than `held` for an F that
    frees memory at its end. Both as JSON numbers.
    """

    def __init__(self, chart: Chart) -> None:
        schedule, times = chart.schedule, chart.times
        letters = [Op(x).name for x in schedule.op.tolist()]
        columns = list(zip(letters, schedule.stage.tolist(), schedule.microbatch.tolist(), strict=True))
        self.chart, self.tick = chart, microseconds(chart)
        self.start, self.end = ([self.tick * x for x in ticks.tolist()] for ticks in (times.start, times.end))
        self.names = [f"{op}{stage}.{microbatch}" for op, stage, microbatch in columns]
        self.about = [f'"op":"{op}","stage":{stage},"microbatch":{microbatch}' for op, stage, microbatch in columns]
        self.held = amounts(chart, chart.analysis.memory.held, _number)
        self.kept = amounts(chart, chart.analysis.memory.kept, _number)
        self.needs = producers(chart)
        self.critical = frozenset(critical_path(times, causes_of(chart)))
        self.messages = messages(chart, self.tick)

    def rank(self, rank: int) -> Iterator[str]:
        """Yield all events of a rank."""
        schedule = self.chart.schedule
        low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
        ran = low + int(np.count_nonzero(self.chart.times.start[low:high] >= 0))
        sent = list(self._of_messages(rank))
        yield from _names(rank, max((lane for lane, _ in sent), default=0) + 1)
        yield from self._computes(rank, low, ran)
        yield from (event for _, event in sent)
        yield from self._copies(rank)
        yield from self._memory(rank, low, ran)
        yield from self._stop(rank, self.end[ran - 1] if ran > low else 0)

    def _computes(self, rank: int, low: int, ran: int) -> Iterator[str]:
        joined = self.chart.schedule.joined[low:ran].tolist()
        pairs = self.chart.schedule.paired[low:ran].tolist()
        for i in range(low, ran):
            if joined[i - low]:
                continue
            name, args = self.names[i], self._args(i)
            if pairs[i - low]:
                name, args = f"{name}+{self.names[i + 1]}", f'{args},"with":{{{self._args(i + 1)}}}'
            if i in self.critical or (pairs[i - low] and i + 1 in self.critical):
                args += ',"critical":true'
            length = self.end[i] - self.start[i]
            kind = f'"X","dur":{length}' if length else '"i","s":"t"'
            yield (
                f'{{"ph":{kind},"pid":{rank},"tid":{COMPUTE},"ts":{self.start[i]},"name":"{name}",'
                f'"cat":"{name[0]}","args":{{{args}}}}}'
            )

    def _args(self, i: int) -> str:
        names = " ".join(self.names[x] for x in self.needs[i])
        needs = f',"needs":"{names}"' if names else ""
        return f'{self.about[i]},"held":{self.held[i]}{needs}'

    def _of_messages(self, rank: int) -> Iterator[tuple[int, str]]:
        """Yield (lane, event) for the slice of each message, and for the arrow that starts or ends in it."""
        for lane, message in lanes(self.messages[rank]):
            yield lane, self._slice(rank, lane, message)
            yield lane, _flow(rank, lane, message)

    def _slice(self, rank: int, lane: int, message: Message) -> str:
        producer, consumer = message.producer, message.consumer
        kind = "F" if self.names[consumer][0] == "F" else "B"
        sent = message.flow == "s"
        other = int(self.chart.schedule.rank[consumer if sent else producer])
        word, end = ("SEND", "to") if sent else ("RECV", "from")
        return (
            f'{{"ph":"X","dur":{message.length},"pid":{rank},"tid":{MESSAGES + lane},"ts":{message.begin},'
            f'"name":"{word}_{kind} {self.names[producer]}","cat":"{word}_{kind}",'
            f'"args":{{"message":{message.number},"{end}":{other},"for":"{self.names[consumer]}"}}}}'
        )

    def _copies(self, rank: int) -> Iterator[str]:
        """Yield two threads with one slice per copy; nothing on a rank without copies."""
        found, schedule = self.chart.times.copies, self.chart.schedule
        if found is None or not (mine := np.flatnonzero((schedule.rank[found.op] == rank) & (found.start >= 0))).size:
            return
        for way, name in enumerate(("copies out", "copies in")):
            yield _metadata(rank, COPIES + way, "thread_name", "name", name)
            yield _metadata(rank, COPIES + way, "thread_sort_index", "sort_index", COPIES + way)
        for i, begin, end in zip(*(x[mine].tolist() for x in (found.op, found.start, found.end)), strict=True):
            way = Op(int(schedule.op[i])) not in COPIED
            yield (
                f'{{"ph":"X","dur":{self.tick * (end - begin)},"pid":{rank},"tid":{COPIES + way},'
                f'"ts":{self.tick * begin},"name":"copy {self.names[i]}","cat":"copy","args":{{}}}}'
            )

    def _memory(self, rank: int, low: int, ran: int) -> Iterator[str]:
        yield _counter(rank, 0, "0")
        for i in range(low, ran):
            yield _counter(rank, self.start[i] if Op[self.names[i][0]].takes else self.end[i], self.held[i])
            if self.kept[i] != self.held[i]:
                yield _counter(rank, self.end[i], self.kept[i])

    def _stop(self, rank: int, when: int) -> Iterator[str]:
        """Yield the events of a rank that stops for good: an instant, a slice to the end of the picture, arrow ends."""
        stop = self.chart.analysis.standstill
        mark = next((x for x in marks.marks(stop) if x.rank == rank), None)
        if stop is None or mark is None:
            return
        about = {"pid": rank, "tid": COMPUTE, "ts": when, "name": mark.sentence, "cat": "deadlock"}
        yield _json({"ph": "i", "s": "g", **about})
        last = self.tick * self.chart.times.makespan
        looks = {"cname": "terrible"} if mark.cycle else {}
        args = {"waits": mark.sentence, "cycle": mark.cycle}
        name = f"stops at {mark.blocked.at}"
        length = last + self.tick * self.chart.scale - when
        yield _json({"ph": "X", "dur": length, **about, "name": name, **looks, "args": args})
        first = sum(map(len, self.messages)) + 1
        for number, x in enumerate(stop.cycle, first):
            sender, receiver = x.ends
            if sender != receiver and rank in (sender, receiver):
                ends = {"ph": "s"} if rank == sender else {"ph": "f", "bp": "e"}
                arrow = {"pid": rank, "tid": COMPUTE, "ts": last, "name": "never", "cat": "deadlock", "id": number}
                yield _json({**ends, **arrow})


def _flow(rank: int, lane: int, message: Message) -> str:
    bound = ',"bp":"e"' if message.flow == "f" else ""
    return (
        f'{{"ph":"{message.flow}"{bound},"pid":{rank},"tid":{MESSAGES + lane},"ts":{message.begin},'
        f'"name":"message","cat":"message","id":{message.number}}}'
    )


def _counter(rank: int, when: int, value: str) -> str:
    return f'{{"ph":"C","pid":{rank},"tid":{COMPUTE},"ts":{when},"name":"live activations","args":{{"units":{value}}}}}'


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


def _names(rank: int, lanes: int) -> Iterator[str]:
    """Yield the names of a rank and of its threads, and their order."""
    yield _metadata(rank, COMPUTE, "process_name", "name", f"rank {rank}")
    yield _metadata(rank, COMPUTE, "process_sort_index", "sort_index", rank)
    for thread in range(MESSAGES + lanes):
        name = "compute" if thread == COMPUTE else "messages" if thread == MESSAGES else f"messages {thread}"
        yield _metadata(rank, thread, "thread_name", "name", name)
        yield _metadata(rank, thread, "thread_sort_index", "sort_index", thread)


def _metadata(rank: int, thread: int, kind: str, key: str, value: str | int) -> str:
    return _json({"ph": "M", "pid": rank, "tid": thread, "ts": 0, "name": kind, "args": {key: value}})


def _json(value: object) -> str:
    return safe(json.dumps(value, separators=(",", ":"), ensure_ascii=False), "ascii-json")


ARRIVAL = 1
"""The drawn length of an arrival, and of a message that takes no time, in microseconds."""


@dataclass(frozen=True)
class Message:
    """A slice of a message on one of its two ranks; flow: ``s`` where it is sent, ``f`` where it arrives."""

    begin: int
    length: int
    flow: str
    number: int
    producer: int
    consumer: int


def messages(chart: Chart, tick: int) -> list[list[Message]]:
    """Return the slices of every rank, sorted by begin. A message is sent when its producer ends."""
    found, schedule = chart.analysis.dependencies.messages(), chart.schedule
    sent = chart.times.end[found.producer] >= 0
    makers, takers = found.producer[sent], found.consumer[sent]
    ranks = schedule.rank[makers], schedule.rank[takers]
    columns = (makers, takers, *ranks, chart.times.end[makers], delays(chart, makers))
    by_rank: list[list[Message]] = [[] for _ in range(schedule.ranks)]
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True), 1):
        producer, consumer, source, target, begin, length = *row[:4], tick * row[4], tick * row[5]
        by_rank[source].append(Message(begin, max(length, ARRIVAL), "s", number, producer, consumer))
        by_rank[target].append(Message(begin + length, ARRIVAL, "f", number, producer, consumer))
    return [sorted(of, key=lambda message: (message.begin, message.number)) for of in by_rank]


def lanes(slices: Iterable[Message]) -> Iterator[tuple[int, Message]]:
    """Yield the lowest free lane for each slice; slices are sorted by begin."""
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    for message in slices:
        while busy and busy[0][0] <= message.begin:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (message.begin + message.length, lane))
        yield lane, message
