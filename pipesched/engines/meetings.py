"""Collective calls as meetings: all members must make the same calls, and no call may wait for itself.

    rank 0, comm    I.combine   F.dispatch
    rank 1, comm    F.dispatch  I.combine

Calls agree if call k of a group is the same on every member. They are acyclic if the graph in which all calls of a
meeting are one node has no cycle. A call may begin when the call before it on its engine and the calls that it names
have ended; a meeting begins when the call of every member may begin. Messages follow a communication model:

    strict:         A send and its receive are a meeting of two calls, each on its own engine.
    buffered(k):    A receive waits for its send, and a send waits for the receive k messages before it.
    one-stream:     A send and its receive meet, on a separate engine per rank and communicator.
    pair-stream:    A send and its receive meet, on a separate engine per rank, communicator and peer.
    async:          A send and its receive meet on no engine: each waits only for the calls it names and its partner.

The messages of a batch begin when the prerequisites of all of them are met, and the engine continues when all of them
have ended.

The i-th send from one rank to another is received by the i-th receive. A call needs all of its prerequisites, so calls
hang if and only if this graph has a cycle, whatever the timing. The size of the graph is linear in the number of calls.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from pipesched.analysis.communication import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT, UNBOUNDED, Model, buffered
from pipesched.diagnostics import Diagnostic
from pipesched.engines.calls import Call, Calls
from pipesched.engines.codes import EngineCode
from pipesched.report.parts import Communication

_NOTE = "a member receives wrong data or waits forever"
_SEARCHED = 64  # nodes of a cycle from which a shorter one is searched
MODELS = (STRICT, buffered(1), UNBOUNDED, ONE_STREAM, PAIR_STREAM, ASYNC)


@dataclass(frozen=True)
class Meetings:
    """The checks of calls on engines. The index of a call is its position in `at`, over the calls of all ranks."""

    calls: Calls

    @cached_property
    def at(self) -> list[tuple[int, int]]:
        """The rank of every call, and the position of the call in the rank's list, from 0."""
        return [(rank, k) for rank, calls in enumerate(self.calls.ranks) for k in range(len(calls))]

    def call(self, i: int) -> Call:
        """Return a call by its index."""
        rank, k = self.at[i]
        return self.calls.ranks[rank][k]

    @cached_property
    def collective(self) -> dict[str, list[list[int]]]:
        """For each group, the indices of each member's calls, in order."""
        found: dict[str, dict[int, list[int]]] = {
            group: {rank: [] for rank in members} for group, members in self.calls.groups.items()
        }
        for i, (rank, k) in enumerate(self.at):
            if group := self.calls.ranks[rank][k].meets:
                found[group][rank].append(i)
        return {group: list(of.values()) for group, of in found.items()}

    @cached_property
    def channels(self) -> dict[tuple[int, int, str], tuple[list[int], list[int]]]:
        """For each sender, receiver and communicator, the indices of the sends and of the receives, in order."""
        found: dict[tuple[int, int, str], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for i, (rank, k) in enumerate(self.at):
            call = self.calls.ranks[rank][k]
            if call.way == ">":
                found[rank, call.peer, call.group][0].append(i)
            elif call.way:
                found[call.peer, rank, call.group][1].append(i)
        return dict(found)

    @cached_property
    def uneven(self) -> bool:
        """True if a call of a group, or a message, lacks a partner."""
        collective = any(len(set(map(len, of))) > 1 for of in self.collective.values())
        return collective or any(len(sends) != len(receives) for sends, receives in self.channels.values())

    def apart(self) -> Iterator[Diagnostic]:
        """Yield, for each group, the first call that differs between members or is missing on one member."""
        for group, of in self.collective.items():
            members = [f"rank {rank}" for rank in self.calls.groups[group]]
            yield from self._differing(f"group {group}: call", members, of)

    def differing(self) -> Iterator[Diagnostic]:
        """Yield the first call of each group, and the first message of each channel, that differs or is missing."""
        yield from self.apart()
        for (source, target, _), (sends, receives) in self.channels.items():
            ends = [f"the sends of rank {source}", f"the receives of rank {target}"]
            yield from self._differing(f"rank {source} to {target}: message", ends, [sends, receives])

    def _differing(self, what: str, members: Sequence[str], of: Sequence[Sequence[int]]) -> Iterator[Diagnostic]:
        for k in range(max(map(len, of))):
            names = [self.call(row[k]).name if k < len(row) else "" for row in of]
            if len(set(names)) > 1:
                said = ", ".join(f"{name or 'nothing'} by {who}" for name, who in zip(names, members, strict=True))
                there = [(self.at[row[k]], name) for row, name in zip(of, names, strict=True) if k < len(row)]
                labels = [x for at, name in there for x in self.calls.label(*at, f"call {k} of this rank is {name}")]
                help = "issue the calls of a group in the same order on all of its members"
                yield Diagnostic(EngineCode.MEETING_DIFFERS, f"{what} {k} is {said}", tuple(labels), (_NOTE,), help)
                return

    def holds(self, model: Model) -> bool:
        """Return True if every call completes under a model, whatever the timing."""
        if model not in self._held:
            self._held[model] = not self._stuck(model)
        return self._held[model]

    @cached_property
    def _held(self) -> dict[Model, bool]:
        """For each model that was tried, whether every call completes under it."""
        return {}

    def capacity(self) -> int | None:
        """Return the least number of buffered messages per channel with which all calls complete; None if no number
        suffices.
        """
        if self.holds(STRICT):
            return 0
        if not self.holds(UNBOUNDED):
            return None
        low, high = 0, max((len(sends) for sends, _ in self.channels.values()), default=0)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.holds(buffered(middle)) else (middle, high)
        return high

    def verdict(self, model: Model) -> Communication:
        """Return the models under which every call completes, among `MODELS` and the requested one."""
        models = dict.fromkeys([*MODELS, model])
        holds = () if self.uneven else tuple(str(x) for x in models if self.holds(x))
        fails = tuple(str(x) for x in models if str(x) not in holds)
        return Communication(str(model), holds, fails, None if self.uneven else self.capacity())

    # The graph of a model: nodes are calls, those of a meeting one node; edges lead to what waits.

    def _graph(self, model: Model) -> tuple[list[int], list[list[tuple[int, int]]]]:
        """Return the node of every call, and for every node its waits: pairs of a call in the node and a call that it
        needs.
        """
        node = list(range(len(self.at)))
        for of in self.collective.values():
            for together in zip(*of, strict=False):
                node = _joined(node, together)
        before: list[list[tuple[int, int]]] = [[] for _ in node]
        buffers = model.kind == "buffered"
        for sends, receives in self.channels.values():
            for i, (send, receive) in enumerate(zip(sends, receives, strict=False)):
                if not buffers:
                    node = _joined(node, (send, receive))
                else:
                    before[receive].append((receive, send))
                    if model.capacity is not None and i >= model.capacity:
                        before[send].append((send, receives[i - model.capacity]))
        for i, needed in self._queued(model):
            before[i].append((i, needed))
        waits: list[list[tuple[int, int]]] = [[] for _ in node]
        for i, of_call in enumerate(before):
            waits[node[i]] += of_call
        return node, waits

    def _queued(self, model: Model) -> Iterator[tuple[int, int]]:
        """Yield pairs of a call and a call that it waits for: a predecessor on its engine, or a call that its batch
        names.
        """
        start = 0
        for calls in self.calls.ranks:
            named = {str(call): start + k for k, call in enumerate(calls)}
            heads = [*accumulate((0 if call.joined else k for k, call in enumerate(calls)), max)]
            needs: dict[int, list[int]] = defaultdict(list)
            for call, head in zip(calls, heads, strict=True):
                needs[head] += (named[need] for need in call.needs)
            last: dict[str, tuple[int, list[int], list[int]]] = {}  # a batch on an engine, those before it, and its own
            for k, (call, head) in enumerate(zip(calls, heads, strict=True)):
                before: list[int] = []
                if engine := _engine(call, model):
                    at, before, own = last.get(engine, (-1, [], []))
                    before, own = (before, own) if at == head else (own, [])
                    last[engine] = head, before, [*own, start + k]
                yield from ((start + k, other) for other in [*before, *needs[head]])
            start += len(calls)

    def _stuck(self, model: Model) -> dict[int, list[tuple[int, int]]]:
        """Return the nodes that never finish, each with its waits for other nodes that never finish."""
        node, waits = self._graph(model)
        count = [len(of) for of in waits]
        after: list[list[int]] = [[] for _ in node]
        for n, of in enumerate(waits):
            for _, other in of:
                after[node[other]].append(n)
        ready = deque(n for n in set(node) if not count[n])
        ended = [False] * len(node)
        while ready:
            n = ready.popleft()
            ended[n] = True
            for later in after[n]:
                count[later] -= 1
                if not count[later]:
                    ready.append(later)
        return {n: [(i, x) for i, x in waits[n] if not ended[node[x]]] for n in set(node) if not ended[n]}

    def cycle(self, model: Model) -> list[tuple[int, int]]:
        """Return a short cycle, as pairs of a waiting call and the call that it needs, which belongs to the next pair's
        node.
        """
        stuck, node = self._stuck(model), self._graph(model)[0]
        at, seen = min(stuck), dict[int, int]()
        path: list[int] = []
        while at not in seen:
            seen[at] = len(path)
            path.append(at)
            at = node[stuck[at][0][1]]
        around = path[seen[at] :]
        found = (_shortest(n, stuck, node) for n in around[:_SEARCHED])
        return min(found, key=len)

    def deadlock(self, model: Model) -> Iterator[Diagnostic]:
        """Yield a finding with the shortest cycle that was found, if calls wait for each other under a model."""
        if self.holds(model):
            return
        cycle = self.cycle(model)
        ranks = sorted({self.at[i][0] for i, _ in cycle})
        holds = [str(other) for other in MODELS if self.holds(other)]
        notes = [self._said(i, needed, model, cycle[(at + 1) % len(cycle)][0]) for at, (i, needed) in enumerate(cycle)]
        labels = tuple(
            label for (i, _), note in zip(cycle, notes, strict=True) for label in self.calls.label(*self.at[i], note)
        )
        who = (
            f"rank {ranks[0]} waits for itself"
            if len(ranks) == 1
            else f"ranks {', '.join(map(str, ranks))} wait in a cycle"
        )
        under = (f"holds under: {', '.join(holds)}" if holds else "fails under every model",)
        yield Diagnostic(
            EngineCode.MEETING_CYCLE,
            f"deadlock: {who} under {model} communication",
            labels,
            (*(() if labels else notes), *under),
            "issue calls that wait for each other in the same order on all ranks, or on separate engines",
        )

    def _said(self, i: int, needed: int, model: Model, joined: int) -> str:
        """Describe what a call waits for. joined: the call of the meeting of `needed` that waits in turn."""
        (rank, k), call, other = self.at[i], self.call(i), self.call(needed)
        if self.at[needed][0] != rank:
            why = f"waits for {other} on rank {self.at[needed][0]}"
        elif str(other) not in call.needs and (queue := _engine(call, model)) == _engine(other, model):
            why = f"is behind {other} on {queue}"
        else:
            why = f"waits for {other}"
        meets = f", which meets {self.call(joined)} on rank {self.at[joined][0]}" if joined != needed else ""
        return f"rank {rank}, call {k}: {call} {why}{meets}"


def _engine(call: Call, model: Model) -> str:
    """Return the queue in which a call waits under a model; empty if it waits in none."""
    if not call.way or not model.posted:
        return call.engine
    of = f" of group {call.group}" * bool(call.group)
    queues = {"one-stream": f"the stream for messages{of}", "pair-stream": f"the stream for rank {call.peer}{of}"}
    return queues.get(model.kind, "")


def _joined(node: list[int], together: Sequence[int]) -> list[int]:
    """Assign the node of the first of these calls to all of them, since they are one meeting."""
    for i in together:
        node[i] = together[0]
    return node


def _shortest(start: int, stuck: dict[int, list[tuple[int, int]]], node: Sequence[int]) -> list[tuple[int, int]]:
    """Return the shortest cycle through a node, by breadth-first search."""
    came: dict[int, tuple[int, tuple[int, int]]] = {}
    queue = deque([start])
    while queue:
        n = queue.popleft()
        for wait in stuck[n]:
            then = node[wait[1]]
            if then == start:
                path = [wait]
                while n != start:
                    n, before = came[n]
                    path.append(before)
                return path[::-1]
            if then not in came:
                came[then] = n, wait
                queue.append(then)
    raise AssertionError("the node is on a cycle")
