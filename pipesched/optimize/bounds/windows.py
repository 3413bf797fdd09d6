"""The earliest and the latest start of every operation, if the objective is to be at most C.

    head   no schedule starts it sooner: the longest path to it
    tail   no schedule ends less than this after its end (less what its rank is due): the longest path from it

A path follows chains, the order of a sequence, and memory. All three are links between sequences, the same for every
microbatch: operation i of one waits for operation i - offset of the other.

    chain    offset 0            order    offset 1, of a sequence to itself            memory    `memory_links`
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimize.bounds.memory_links import Link, memory_links
from pipesched.optimize.problem import Problem


@dataclass(frozen=True, eq=False)
class Paths:
    """head, tail: int64, shape (operations,), in ticks."""

    head: Ints
    tail: Ints

    def least(self, problem: Problem) -> int:
        """The longest path: no objective is less."""
        return int((self.head + self.tail + problem.duration[problem.sequence]).max(initial=0))


def links(problem: Problem) -> list[Link]:
    """Chains, orders and memory between sequences."""
    table = zip(problem.before.tolist(), problem.after.tolist(), problem.lag.tolist(), strict=True)
    duration = problem.duration.tolist()
    made = [Link(a, b, 0, duration[b] + lag) for b, a, lag in table]
    made += [Link(q, q, 1, duration[q]) for q in range(problem.sequences)]
    return made + memory_links(problem)


def paths(problem: Problem) -> Paths:
    """Heads and tails by longest paths; O(edges)."""
    made = links(problem)
    duration = problem.duration[problem.sequence]
    head = longest(problem.length, made, np.zeros(problem.operations, dtype=np.int64))
    own = -problem.due[problem.rank[problem.sequence]]
    return Paths(head, longest_from(problem.length, made, own + duration) - duration)


def longest(length: Ints, links: list[Link], least: Ints) -> Ints:
    """value of later, i = max(least, value of earlier, i - offset, + delay) over the links; operations by sequence."""
    first = (np.cumsum(length) - length).tolist()
    inputs: dict[int, list[Link]] = {q: [] for q in range(len(length))}
    for link in links:
        inputs[link.later].append(link)
    order = TopologicalSorter({q: [x.earlier for x in given if not x.offset] for q, given in inputs.items()})
    rows = [
        (first[q], n, [(first[x.earlier] - x.offset, x.offset, x.delay) for x in inputs[q]])
        for q in order.static_order()
        if (n := int(length[q]))
    ]
    value = least.tolist()
    for i in range(int(length.max(initial=0))):
        for start, n, given in rows:
            if i < n:
                here = value[start + i]
                for source, offset, delay in given:
                    if i >= offset and (there := value[source + i] + delay) > here:
                        here = there
                value[start + i] = here
    return np.array(value, dtype=np.int64)


def longest_from(length: Ints, links: list[Link], least: Ints) -> Ints:
    """The same against the arrows: the mirror image, last microbatch first."""
    last = len(length) - 1
    mirrored = [Link(last - x.earlier, last - x.later, x.offset, x.delay) for x in links]
    return longest(length[::-1], mirrored, least[::-1])[::-1].copy()
