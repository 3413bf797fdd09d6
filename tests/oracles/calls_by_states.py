"""All interleavings of calls on engines, state by state: whether all can end, and whether calls that meet have one name

Shares no code with pipesched. A call is a tuple (name, engine, group, way, peer, needs), as in `engines.calls`.

The state is how many calls of each engine have ended, and how many posted messages: each step lets one call end, or all
of a meeting. A list of all engines of a rank in which calls wait is a queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Called(NamedTuple):
    """A call. way: ``>`` a send to `peer`, ``<`` a receive from it, else empty."""

    name: str
    engine: str = "compute"
    group: str = ""
    way: str = ""
    peer: int = -1
    needs: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the call as pipesched reads it."""
        head = f"{self.name}{self.way}{self.peer}" if self.way else self.name
        needs = "".join(f"+{need}" for need in self.needs)
        group = f"*{self.group}" if self.group else ""
        return head + (f"@{self.engine}" if self.engine != "compute" else "") + group + needs

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
        lists = [[x.name for x in ranks[r] if x.group == group] for r in members]
        if any(row != lists[0] for row in lists):
            return False
    for a in range(len(ranks)):
        for b in range(len(ranks)):
            sends = [x.name for x in ranks[a] if x.way == ">" and x.peer == b]
            receives = [x.name for x in ranks[b] if x.way == "<" and x.peer == a]
            if sends != receives:
                return False
    return True


class Machine:
    """The ranks under a model: strict, buffered with a capacity (None: any number), one-stream, pair-stream, async."""

    def __init__(self, ranks: Ranks, groups: Groups, model: str, capacity: int | None) -> None:
        self.ranks, self.groups, self.model, self.capacity = ranks, groups, model, capacity
        self.queues: list[list[tuple[int, int]]] = []
        for r, row in enumerate(ranks):
            of: dict[object, list[tuple[int, int]]] = {}
            for k, x in enumerate(row):
                queue: object = x.engine
                if x.way and model == "one-stream":
                    queue = ("posted",)
                elif x.way and model == "pair-stream":
                    queue = ("posted", x.peer)
                elif x.way and model == "async":
                    queue = ("posted", k)
                of.setdefault(queue, []).append((r, k))
            self.queues += of.values()
        self.queue_of = {call: (q, at) for q, row in enumerate(self.queues) for at, call in enumerate(row)}
        self.partners: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for group, members in groups.items():
            lists = [[(r, k) for k, x in enumerate(ranks[r]) if x.group == group] for r in members]
            for k in range(max(map(len, lists))):
                together = [row[k] for row in lists if k < len(row)]
                for call in together:
                    self.partners[call] = together if len(together) == len(lists) else []
        self.messages: dict[tuple[int, int], tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
        for r, row in enumerate(ranks):
            for k, x in enumerate(row):
                if x.way:
                    ends = (r, x.peer) if x.way == ">" else (x.peer, r)
                    self.messages.setdefault(ends, ([], []))[x.way == "<"].append((r, k))

    def next(self, state: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield every state after one step."""
        ended = {call for q, row in enumerate(self.queues) for call in row[: state[q]]}
        heads = {row[at] for row, at in zip(self.queues, state, strict=True) if at < len(row)}

        def begins(call: tuple[int, int]) -> bool:
            r, k = call
            names = {self.ranks[r][j].key for j in range(len(self.ranks[r])) if (r, j) in ended}
            return call in heads and set(self.ranks[r][k].needs) <= names

        def after(calls: Sequence[tuple[int, int]]) -> tuple[int, ...]:
            later = list(state)
            for call in calls:
                later[self.queue_of[call][0]] += 1
            return tuple(later)

        for call in sorted(heads):
            r, k = call
            x = self.ranks[r][k]
            if x.group:
                together = self.partners[call]
                if together and call == together[0] and all(map(begins, together)):
                    yield after(together)
            elif x.way:
                ends = (r, x.peer) if x.way == ">" else (x.peer, r)
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
        first = (0,) * len(self.queues)
        last = tuple(map(len, self.queues))
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
