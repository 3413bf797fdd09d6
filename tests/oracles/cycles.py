"""Finds the largest ratio of a cycle with Bellman-Ford: each cycle that exceeds the current ratio raises it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

Edge: TypeAlias = tuple[int, int, Fraction, int]
"""From, to, time, copies."""


def largest_ratio(nodes: int, edges: Sequence[Edge]) -> Fraction:
    """Return max over cycles of sum of times / sum of copies; every cycle spans at least one copy."""
    ratio = Fraction(0)
    while (cycle := _longer(nodes, edges, ratio)) is not None:
        ratio = sum((edge[2] for edge in cycle), Fraction(0)) / sum(edge[3] for edge in cycle)
    return ratio


def _longer(nodes: int, edges: Sequence[Edge], ratio: Fraction) -> list[Edge] | None:
    """Return a cycle whose ratio is larger, None if there is none."""
    far, way = [Fraction(0)] * nodes, dict[int, Edge]()
    last = -1
    for _ in range(nodes + 1):
        last = -1
        for edge in edges:
            u, v, time, copies = edge
            if (reached := far[u] + time - ratio * copies) > far[v]:
                far[v], way[v], last = reached, edge, v
        if last < 0:
            return None
    for _ in range(nodes):  # back until the walk is within a cycle
        last = way[last][0]
    cycle, at = [way[last]], way[last][0]
    while at != last:
        cycle.append(way[at])
        at = way[at][0]
    return cycle
