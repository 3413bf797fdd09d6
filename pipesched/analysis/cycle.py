"""The shortest cycle of waits in a stopped program, contracted to its steps from rank to rank.

The cycle may pass hundreds of messages; only its steps across ranks are shown:

    rank 0 waits at 2SEND_F1   until rank 1 reaches 3RECV_F1     which is behind 3SEND_B0
    rank 1 waits at 3SEND_B0   until rank 0 reaches 2RECV_B0     which is behind 2SEND_F1

Later instructions of a list are behind the one at which it stopped, so they are contracted into that one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from pipesched.analysis.events import Events, consumers, queues
from pipesched.model.columns import Ints, among
from pipesched.model.ops import SHAPES, Op

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
    """Converts a cycle of a stopped program to hops.

    Nodes are where ranks stand, an instruction or len(program) + the rank at the end of its list; and messages that
    are never over, len(program) + ranks + the first of their ends; under ``buffered`` each end is one. Those from
    `between` on are batches in queues.
    """

    def __init__(self, events: Events) -> None:
        self.events, self.program = events, events.program
        self.size, self.ranks = len(self.program), self.program.ranks
        self.between = 2 * self.size + self.ranks
        start = self.program.start.tolist()
        self.standing = [
            -1 if stop < 0 else self.size + r if low + stop >= high else low + stop
            for r, (stop, low, high) in enumerate(zip(events.stops, start[:-1], start[1:], strict=True))
        ]
        sync = self.program.op == Op.SYNC
        ends = np.flatnonzero(self.program.sends | self.program.receives | sync)
        late = ends[~events.over(ends)]
        other = np.where((events.model.kind == "buffered") & ~sync, -1, events.pairing.partner)[late]
        first = self.size + self.ranks + np.where(other < 0, late, np.minimum(late, other))
        node = dict(zip(late.tolist(), first.tolist(), strict=True))
        self._ends: dict[int, list[int]] = {}
        self._needs: dict[int, list[int]] = {}
        for end, own in node.items():
            self._ends.setdefault(own, []).append(end)
            if not events.ran[events.sources[0][end]]:
                self._needs.setdefault(own, []).append(self.standing[int(self.program.rank[end])])
        elements = self._elements()
        over = dict(node)
        for batch, element in enumerate(elements, self.between):
            if len(element) > 1 and (left := [node[end] for end in element if end in node]):
                over |= dict.fromkeys(element, batch)
                self._needs[batch] = left
        for end, before in self._behind(elements):
            if end in node and before in over:
                self._needs.setdefault(node[end], []).append(over[before])
        for place, end in self._awaited(ends):
            if end in over:
                self._needs.setdefault(place, []).append(over[end])

    def _elements(self) -> list[list[int]]:
        """Return the ends of each element of a queue, in order; an empty one before each queue."""
        if not self.events.model.queued:
            return []
        ends, begins, first = queues(self.program, self.events.model, self.events.head)
        bounds = pairwise([*first.tolist(), len(ends)])
        return [x for low, high in bounds for x in [[]] * int(begins[low]) + [ends[low:high].tolist()]]

    def _behind(self, elements: list[list[int]]) -> Iterator[tuple[int, int]]:
        """Yield the ends of messages that wait for others, in their queue or buffer, each with one of those."""
        pairing, model = self.events.pairing, self.events.model
        if model.kind == "buffered":
            sends = np.flatnonzero(self.program.sends & (pairing.partner >= 0))
            found = [(sends, pairing.partner[sends]), pairing.sends.apart(1), pairing.receives.apart(1)]
            if model.capacity is not None:
                freed, later = pairing.sends.apart(model.capacity)
                found.append((pairing.partner[freed], later))
            for earlier, later in found:
                yield from zip(later.tolist(), earlier.tolist(), strict=True)
        for before, element in pairwise(elements):
            yield from product(element, before[:1])

    def _awaited(self, ends: Ints) -> Iterator[tuple[int, int]]:
        """Yield each place at which a rank waits for a message to be over, with an end of that."""
        head, posted = self.events.head, self.events.model.posted
        blocking = ends[among(self.program.op[ends], (Op.SYNC, *SHAPES))] if posted else ends
        yield from zip(head[blocking].tolist(), blocking.tolist(), strict=True)
        if posted:
            receives, users = consumers(self.program)
            sends = np.flatnonzero(self.program.sends)
            yield from zip(head[users].tolist(), receives.tolist(), strict=True)
            yield from zip((self.size + self.program.rank[sends]).tolist(), sends.tolist(), strict=True)

    def members(self, node: int) -> list[int]:
        """Return the ends of a message that never completes."""
        return self._ends[node]

    def needs(self, node: int) -> list[int]:
        """Return a node's prerequisites that never happen, contracted to the instructions where their ranks wait."""
        return list(dict.fromkeys(self._needs.get(node, [])))

    def _rank(self, node: int) -> int:
        return int(self.program.rank[node]) if node < self.size else node - self.size

    def hops(self) -> list[Hop]:
        """Return the shortest cycle from rank to rank.

        The result is empty if ranks stopped only for partners that do not exist, or for a message to themselves.
        """
        cycle = shortest_cycle([x for x in self.standing if x >= 0], self.needs)
        cycle = [x for x in cycle if x < self.between]
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
        rank, head = self.program.rank, self.events.head
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
        at = here if queue or self.program.sends[before] or self.program.receives[before] else before
        return Hop(rank, at, here, other, there, behind=behind, queue=queue)

    def _end(self, node: int, rank: int) -> int:
        if node < self.size + self.ranks:
            return -1
        return next((i for i in self.members(node) if int(self.program.rank[i]) == rank), -1)
