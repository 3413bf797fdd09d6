"""The shortest cycle of nodes that wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

STARTS = 32


def shortest_cycle(nodes: Iterable[int], needs: Callable[[int], list[int]]) -> list[int]:
    """Return a shortest cycle reachable from `nodes`, or an empty list.

    Each node of the cycle needs the next one, and the last node needs the first. If every node needs only one other
    node, as ranks do under strict, no other cycle is shorter. Otherwise no shorter cycle passes through the nodes of
    the cycle that the search finds first.
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
