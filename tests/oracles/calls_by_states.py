"""Explores all interleavings of calls on engines, state by state, to find whether all calls can finish and whether
calls that meet have the same name.

Shares no code with pipesched. A call is a tuple (name, engine, group, way, peer, needs, joined), as in `engines.calls`.

A queue is a list of batches; most have one call. The state has for each queue the number of batches that have ended,
and the calls of the next one that have: each step lets one call end, or all of a meeting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Called(NamedTuple):
    """A call. way: ``>`` a send to `peer`, ``<`` a receive from it, else empty. joined: to the message before it."""

    name: str
    engine: str = "compute"
    group: str = ""
    way: str = ""
    peer: int = -1
    needs: tuple[str, ...] = ()
    joined: bool = False

    def text(self) -> str:
        """Return the call as pipesched reads it."""
        head = f"{self.name}{self.way}{self.peer}" if self.way else self.name
        needs = "".join(f"+{need}" for need in self.needs)
        group = f"*{self.group}" if self.group else ""
        return "&" * self.joined + head + (f"@{self.engine}" if self.engine != "compute" else "") + group + needs

    @property
    def key(self) -> str:
        """The text by which others wait for it."""
        return f"{self.name}{self.way}{self.peer}" if self.way else self.name


Ranks = Sequence[Sequence[Called]]
Groups = Mapping[str, Sequence[int]]


def written(ranks: Ranks, groups: Groups) -> str:
    """Return the file of these calls."""
    lines = [f"group {name}: {' '.join(map(str, members))}" for name, members in groups.items()]
    return "\n".join([*lines, *(f"rank {r}: {' '.join(x.text() for x in row)}" for r, row in enumerate(ranks))]) + "\n"


def agree(ranks: Ranks, groups: Groups) -> bool:
    """Return True if the k-th calls of a group, and the k-th message and its receive, have one name."""
    for group, members in groups.items():
        lists = [[x.name for x in ranks[r] if x.group == group and not x.way] for r in members]
        if any(row != lists[0] for row in lists):
            return False
    for a in range(len(ranks)):
        for b in range(len(ranks)):
            for group in ("", *groups):
                sends = [x.name for x in ranks[a] if (x.way, x.peer, x.group) == (">", b, group)]
                receives = [x.name for x in ranks[b] if (x.way, x.peer, x.group) == ("<", a, group)]
                if sends != receives:
                    return False
    return True


State = tuple[tuple[int, frozenset[tuple[int, int]]], ...]


class Machine:
    """The ranks under a model: strict, buffered with a capacity (None: any number), one-stream, pair-stream, async."""

    def __init__(self, ranks: Ranks, groups: Groups, model: str, capacity: int | None) -> None:
        self.ranks, self.groups, self.model, self.capacity = ranks, groups, model, capacity
        self.queues: list[list[list[tuple[int, int]]]] = []
        self.batch: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for r, row in enumerate(ranks):
            of: dict[object, list[list[tuple[int, int]]]] = {}
            batches: dict[object, int] = {}
            number = 0
            for k, x in enumerate(row):
                number += not x.joined
                self.batch[r, k] = [*self.batch[r, k - 1], (r, k)] if x.joined else [(r, k)]
                queue: object = x.engine
                if x.way and model == "one-stream":
                    queue = ("posted", x.group)
                elif x.way and model == "pair-stream":
                    queue = ("posted", x.group, x.peer)
                elif x.way and model == "async":
                    queue = ("posted", k)
                if batches.get(queue) == number:
                    of[queue][-1].append((r, k))
                else:
                    of.setdefault(queue, []).append([(r, k)])
                batches[queue] = number
            for k in range(len(row) - 1, 0, -1):
                if row[k].joined:
                    self.batch[r, k - 1] = self.batch[r, k]
            self.queues += of.values()
        self.queue_of = {call: q for q, row in enumerate(self.queues) for batch in row for call in batch}
        self.partners: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for group, members in groups.items():
            lists = [[(r, k) for k, x in enumerate(ranks[r]) if x.group == group and not x.way] for r in members]
            for k in range(max(map(len, lists))):
                together = [row[k] for row in lists if k < len(row)]
                for call in together:
                    self.partners[call] = together if len(together) == len(lists) else []
        self.messages: dict[tuple[int, int, str], tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
        for r, row in enumerate(ranks):
            for k, x in enumerate(row):
                if x.way:
                    ends = (r, x.peer, x.group) if x.way == ">" else (x.peer, r, x.group)
                    self.messages.setdefault(ends, ([], []))[x.way == "<"].append((r, k))

    def next(self, state: State) -> Iterator[State]:
        """Yield every state after one step."""
        queued = list(zip(self.queues, state, strict=True))
        ended = {call for row, (at, some) in queued for batch in row[:at] for call in batch} | {
            call for _, (_, some) in queued for call in some
        }
        heads = {call for row, (at, some) in queued if at < len(row) for call in row[at]} - ended

        def begins(call: tuple[int, int]) -> bool:
            r = call[0]
            names = {self.ranks[r][j].key for j in range(len(self.ranks[r])) if (r, j) in ended}
            return call in heads and all(set(self.ranks[r][k].needs) <= names for _, k in self.batch[call])

        def after(calls: Sequence[tuple[int, int]]) -> State:
            later = list(state)
            for call in calls:
                q = self.queue_of[call]
                at, some = later[q]
                some = some | {call}
                later[q] = (at + 1, frozenset()) if len(some) == len(self.queues[q][at]) else (at, some)
            return tuple(later)

        for call in sorted(heads):
            r, k = call
            x = self.ranks[r][k]
            if x.group and not x.way:
                together = self.partners[call]
                if together and call == together[0] and all(map(begins, together)):
                    yield after(together)
            elif x.way:
                ends = (r, x.peer, x.group) if x.way == ">" else (x.peer, r, x.group)
                sends, receives = self.messages[ends]
                i = (receives if x.way == "<" else sends).index(call)
                if self.model == "buffered":
                    fits = self.capacity is None or i < self.capacity or receives[i - self.capacity] in ended
                    there = fits if x.way == ">" else i < len(sends) and sends[i] in ended
                    if there and begins(call):
                        yield after([call])
                elif x.way == ">" and i < len(receives) and begins(call) and begins(receives[i]):
                    yield after([call, receives[i]])
            elif begins(call):
                yield after([call])

    def ends(self) -> bool:
        """Return True if no interleaving stops before all calls have ended."""
        first: State = ((0, frozenset()),) * len(self.queues)
        last = tuple((len(row), frozenset[tuple[int, int]]()) for row in self.queues)
        seen, left = {first}, [first]
        while left:
            state = left.pop()
            after = list(self.next(state))
            if not after and state != last:
                return False
            for other in after:
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        return True
