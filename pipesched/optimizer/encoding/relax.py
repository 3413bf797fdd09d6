"""A relaxation: some ranks only. The others are as fast as their operations, and run any number at a time.

What holds for it holds for the whole: an objective that some ranks alone cannot reach cannot be reached. With heads
and tails of the whole problem one rank, its memory and its round trips often tell the optimum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.problem import Problem

_COLUMNS = ("op", "route", "stage", "rank", "length", "duration", "takes", "frees")


def restrict(problem: Problem, ranks: Iterable[int]) -> tuple[Problem, Ints]:
    """The sequences of these ranks, with the paths between them as lags; and the operations that are kept."""
    kept = np.flatnonzero(np.isin(problem.rank, list(ranks)))
    number = {int(q): i for i, q in enumerate(kept)}
    follow: dict[int, list[tuple[int, int]]] = {}
    for b, a, lag in zip(problem.before.tolist(), problem.after.tolist(), problem.lag.tolist(), strict=True):
        follow.setdefault(b, []).append((a, lag))
    edges = []
    for q in kept.tolist():
        longest: dict[int, int] = {}
        open_paths = list(follow.get(q, ()))
        while open_paths:
            a, lag = open_paths.pop()
            if a in number:
                longest[a] = max(longest.get(a, 0), lag)
            else:
                open_paths += [(b, lag + int(problem.duration[a]) + more) for b, more in follow.get(a, ())]
        edges += [(number[q], number[a], lag) for a, lag in longest.items()]
    links = np.array(edges, dtype=np.int64).reshape(-1, 3).T.copy()
    columns = {name: getattr(problem, name)[kept] for name in _COLUMNS}
    part = replace(problem, **columns, before=links[0], after=links[1], lag=links[2])
    operations = np.concatenate(
        [np.arange(problem.first[q], problem.first[q + 1]) for q in kept] or [np.zeros(0, dtype=np.int64)]
    )
    return part, operations
