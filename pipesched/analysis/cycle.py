"""The shortest cycle of waits in a stopped program, contracted to its steps from rank to rank.

The cycle in the event graph may pass hundreds of events; only its steps across ranks are shown:

    rank 0 waits at 2SEND_F1   until rank 1 reaches 3RECV_F1     which is behind 3SEND_B0
    rank 1 waits at 3SEND_B0   until rank 0 reaches 2RECV_B0     which is behind 2SEND_F1

Nodes are those of `analysis.events` that never fire. Later instructions of a list are behind the one at which it
stopped, so they are contracted into that one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from pipesched.analysis.events import EventGraph

STARTS = 32


@dataclass(frozen=True, slots=True)
class Hop:
    """A step of the cycle, as instruction indices.

    Rank `rank` waits at `at` with its end `here` of a message, until rank `other` reaches `there`. behind: the entry
    behind which `there` is queued on that rank, -1 if the list decides. queue: the rank waits at the end of its list,
    or only its queue waits and not the rank; `at` is then `here`.
    """

    rank: int
    at: int
    here: int
    other: int
    there: int
    behind: int
    queue: bool


def shortest_cycle(nodes: Iterable[int], needs: Callable[[int], list[int]]) -> list[int]:
    """Return a shortest cycle among the things that `nodes` need, or nothing.

    Each node of the cycle needs the next one, and the last the first. If every node needs one other, as ranks do under
    strict, no cycle is shorter; otherwise no shorter one leads through the first nodes that the search found.
    """
    found = _some_cycle(nodes, needs)
    best = found
    for start in found[:STARTS]:
        cycle = _from(start, needs, len(best))
        if cycle and len(cycle) < len(best):
            best = cycle
    return best


def _some_cycle(nodes: Iterable[int], needs: Callable[[int], list[int]]) -> list[int]:
    """Return the shortest cycle that one depth-first search finds, without recursion."""
    best: list[int] = []
    place: dict[int, int] = {}  # index on the path, or -1 once it is finished
    for root in nodes:
        if root in place:
            continue
        path, rest = [root], [iter(needs(root))]
        place[root] = 0
        while path:
            after = next(rest[-1], None)
            if after is None:
                place[path.pop()] = -1
                rest.pop()
            elif after not in place:
                place[after] = len(path)
                path.append(after)
                rest.append(iter(needs(after)))
            elif place[after] >= 0 and not 0 < len(best) <= len(path) - place[after]:
                best = path[place[after] :]
    return best


def _from(start: int, needs: Callable[[int], list[int]], limit: int) -> list[int]:
    """Return the shortest cycle through `start`, by breadth-first search."""
    parent = {start: start}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for after in needs(node):
            if after == start:
                cycle = [node]
                while node != start:
                    node = parent[node]
                    cycle.append(node)
                return cycle[::-1] if len(cycle) <= limit else []
            if after not in parent:
                parent[after] = node
                queue.append(after)
    return []


class Cycle:
    """Converts a cycle of a stopped program to hops."""

    def __init__(self, graph: EventGraph) -> None:
        self.graph = graph
        self.size = len(graph.program)
        self.ranks = graph.program.ranks
        start = graph.program.start.tolist()
        self.standing = [
            -1 if stop < 0 else self.size + r if low + stop >= high else low + stop
            for r, (stop, low, high) in enumerate(zip(graph.stops, start[:-1], start[1:], strict=True))
        ]
        ends = np.flatnonzero(graph.done >= 0)
        ends = ends[~graph.fired[graph.done[ends]]]
        self._ends = ends[np.argsort(graph.done[ends], kind="stable")]
        self._nodes = graph.done[self._ends]

    def members(self, node: int) -> list[int]:
        """Return the ends of a message that never completes."""
        low, high = np.searchsorted(self._nodes, (node, node + 1))
        found: list[int] = self._ends[low:high].tolist()
        return found

    def needs(self, node: int) -> list[int]:
        """Return a node's prerequisites that never happen, contracted to the instructions where their ranks wait."""
        values, first = self.graph.predecessors
        missing = [x for x in values[first[node] : first[node + 1]] if not self.graph.fired[x]]
        return list(dict.fromkeys(self._contracted(x) for x in missing))

    def _contracted(self, node: int) -> int:
        return self.standing[self._rank(node)] if node < self.size + self.ranks else node

    def _rank(self, node: int) -> int:
        return int(self.graph.program.rank[node]) if node < self.size else node - self.size

    def hops(self) -> list[Hop]:
        """Return the shortest cycle from rank to rank.

        The result is empty if ranks stopped only for partners that do not exist, or for a message to themselves.
        """
        cycle = shortest_cycle([x for x in self.standing if x >= 0], self.needs)
        cycle = [x for x in cycle if x < self.graph.between]
        edges = self._edge_ranks(cycle)
        hops = []
        for i, node in enumerate(cycle):
            if node < self.size + self.ranks or edges[i - 1] == edges[i]:
                continue
            hops.append(self._hop(cycle[i - 1], node, cycle[(i + 1) % len(cycle)], edges[i - 1], edges[i]))
        first = min(range(len(hops)), key=lambda i: hops[i].rank, default=0)
        return hops[first:] + hops[:first]

    def _edge_ranks(self, cycle: list[int]) -> list[int]:
        """Return the rank on which each node waits for the next one."""
        ranks: list[int] = []
        for i, node in enumerate(cycle):
            after = cycle[(i + 1) % len(cycle)]
            if node < self.size + self.ranks:
                ranks.append(self._rank(node))
            elif after < self.size + self.ranks:
                ranks.append(self._rank(after))
            else:
                ranks.append(self._queue_rank(node, after, ranks[-1] if ranks else -1))
        return ranks

    def _queue_rank(self, node: int, after: int, stay: int) -> int:
        """Return the rank in whose queue `after` is before `node`; `stay` if it is one of them."""
        rank, head = self.graph.program.rank, self.graph.head
        mine = {int(rank[i]): int(head[i]) for i in self.members(node)}
        before = {int(rank[i]) for i in self.members(after) if head[i] < mine.get(int(rank[i]), 0)}
        if not before:
            return int(rank[self.members(after)[0]])
        return stay if stay in before else min(before)

    def _hop(self, before: int, node: int, after: int, rank: int, other: int) -> Hop:
        here = self._end(node, rank)
        there = self._end(node, other)
        if there < 0:
            there = self._end(after, other)
        queued = after >= self.size + self.ranks and self._end(node, other) >= 0
        behind = self._end(after, other) if queued else -1
        queue = before >= self.size
        at = here if queue or self.graph.program.sends[before] or self.graph.program.receives[before] else before
        return Hop(rank, at, here, other, there, behind=behind, queue=queue)

    def _end(self, node: int, rank: int) -> int:
        if node < self.size + self.ranks:
            return -1
        return next((i for i in self.members(node) if int(self.graph.program.rank[i]) == rank), -1)
