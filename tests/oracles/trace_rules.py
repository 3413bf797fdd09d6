"""The rules for Chrome's trace events as importers read them, without knowledge of schedules.

    every event   ph, pid, tid, name, and but for metadata a finite time from 0 up, in microseconds
    M             names and sort indices of processes and threads, each once, before anybody asks
    X             longer than nothing; the slices of a thread nest, and no two begin at one time
    s, f          one of each to an id, of one category and name, inside a slice of their thread, and never back in time
    C             numbers, in the order of time
    i             of a thread, a process or all

Sources: the importer of Perfetto, `json_trace_parser.cc`; google/perfetto issues 423 and 686; catapult issue 2394.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Event: TypeAlias = Mapping[str, Any]
Thread: TypeAlias = tuple[int, int]

_NAMES = {"process_name": "name", "thread_name": "name"}
_INDICES = {"process_sort_index": "sort_index", "thread_sort_index": "sort_index"}
_KNOWN = {"M", "X", "s", "f", "C", "i"}


def violations(trace: Mapping[str, Any]) -> list[str]:
    """Return every rule that a trace breaks, in words; [] if it is right."""
    events = trace.get("traceEvents")
    if not isinstance(events, list) or not events:
        return ["there is no list of events"]
    found = [told for event in events for told in _shape(event)]
    if found:
        return found
    return [*_metadata(events), *_slices(events), *_arrows(events), *_counters(events)]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shape(event: Event) -> Iterator[str]:
    """Yield the broken rules of one event by itself."""
    kind = event.get("ph")
    if kind not in _KNOWN:
        yield f"no kind of event: {kind!r}"
        return
    for key in ("pid", "tid"):
        if not isinstance(event.get(key), int):
            yield f"{key} is no integer: {event}"
    if not isinstance(event.get("name"), str) or not event["name"]:
        yield f"no name: {event}"
    if kind != "M" and (not _number(event.get("ts")) or event["ts"] < 0):
        yield f"no time: {event}"
    if kind == "X" and (not _number(event.get("dur")) or event["dur"] <= 0):
        yield f"a slice that lasts no time: {event}"
    if kind == "C" and not (event.get("args") and all(_number(x) for x in event["args"].values())):
        yield f"a counter that does not count: {event}"
    if kind in "sf" and not isinstance(event.get("id"), int):
        yield f"an arrow without an id: {event}"
    if kind == "f" and event.get("bp") != "e":
        yield f"an arrow that ends at the next slice instead of its own: {event}"
    if kind == "i" and event.get("s") not in ("t", "p", "g"):
        yield f"an instant of nobody: {event}"
    if kind == "M" and event["name"] not in {**_NAMES, **_INDICES}:
        yield f"metadata that nobody reads: {event}"


def _metadata(events: list[Event]) -> Iterator[str]:
    """Yield the broken rules of names: each process and each thread has one name and one place."""
    told: dict[tuple[str, int, int], int] = defaultdict(int)
    for event in events:
        if event["ph"] != "M":
            continue
        key = {**_NAMES, **_INDICES}[event["name"]]
        value = event.get("args", {}).get(key)
        if not isinstance(value, str if key == "name" else int):
            yield f"metadata without its value: {event}"
        thread = event["tid"] if event["name"].startswith("thread") else 0
        told[event["name"], event["pid"], thread] += 1
    threads = {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xi"}
    wanted = {(f"process_{what}", pid, 0) for pid in {e["pid"] for e in events} for what in ("name", "sort_index")}
    wanted |= {(f"thread_{what}", pid, tid) for pid, tid in threads for what in ("name", "sort_index")}
    yield from (f"missing: {key}" for key in sorted(wanted - set(told)))
    yield from (f"told {count} times: {key}" for key, count in told.items() if count > 1)


def _by_thread(events: list[Event]) -> dict[Thread, list[Event]]:
    """Return the slices of each thread, by time, the longer one first."""
    threads: dict[Thread, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    return {key: sorted(slices, key=lambda x: (x["ts"], -x["dur"])) for key, slices in threads.items()}


def _slices(events: list[Event]) -> Iterator[str]:
    for thread, slices in _by_thread(events).items():
        open_until: list[float] = []
        before = None
        for event in slices:
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            if open_until and event["ts"] + event["dur"] > open_until[-1]:
                yield f"slices of thread {thread} overlap at {event['ts']}"
            if event["ts"] == before:
                yield f"two slices of thread {thread} begin at {before}"
            open_until.append(event["ts"] + event["dur"])
            before = event["ts"]


def _arrows(events: list[Event]) -> Iterator[str]:
    ends: dict[int, dict[str, list[Event]]] = defaultdict(lambda: {"s": [], "f": []})
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]].append(event)
    inside = _by_thread(events)
    for number, both in ends.items():
        if (len(both["s"]), len(both["f"])) != (1, 1):
            yield f"arrow {number} has {len(both['s'])} beginnings and {len(both['f'])} ends"
            continue
        (begin,), (end,) = both["s"], both["f"]
        if (begin["name"], begin.get("cat")) != (end["name"], end.get("cat")) or not begin.get("cat"):
            yield f"the ends of arrow {number} are of two kinds"
        if begin["ts"] > end["ts"]:
            yield f"arrow {number} goes back in time"
        for event in (begin, end):
            slices = inside.get((event["pid"], event["tid"]), [])
            if not any(x["ts"] <= event["ts"] < x["ts"] + x["dur"] for x in slices):
                yield f"arrow {number} has an end outside all slices"


def _counters(events: list[Event]) -> Iterator[str]:
    now: dict[tuple[int, str], float] = {}
    for event in events:
        if event["ph"] == "C":
            key = (event["pid"], event["name"])
            if event["ts"] < now.get(key, 0):
                yield f"counter {key} goes back in time at {event['ts']}"
            now[key] = event["ts"]
