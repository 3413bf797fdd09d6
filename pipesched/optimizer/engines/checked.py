"""Whether a table of starts is a schedule: every rule of `problem`, looked at directly.

It shares nothing with the clauses: order every rank by start, then look at neighbours and at a running sum.
"""

from __future__ import annotations

import numpy as np

from pipesched.model.columns import Ints
from pipesched.optimizer.convert import by_start
from pipesched.optimizer.encoding.cnf import Window
from pipesched.optimizer.problem import Problem


def fault(problem: Problem, start: Ints, bound: int) -> str:
    """What is wrong with it, empty if nothing is.

    Args:
        problem: the instance.
        start: in ticks, shape (operations,).
        bound: the objective may be so many ticks.
    """
    if start.shape != (problem.operations,) or bool((start < 0).any()):
        return "a start is missing"
    later, earlier, delay = problem.precedence
    if bool((start[later] < start[earlier] + delay).any()):
        return "an operation starts before its input is there"
    if problem.value(start) > bound:
        return f"the objective is {problem.value(start)} ticks"
    change = (problem.takes - problem.frees)[problem.sequence]
    end = start + problem.duration[problem.sequence]
    for rank, order in enumerate(by_start(problem, start)):
        x = np.asarray(order, dtype=np.int64)
        if bool((start[x[1:]] < end[x[:-1]]).any()):
            return f"two operations of rank {rank} overlap"
        if int(np.cumsum(change[x]).max(initial=0)) > problem.cap[rank]:
            return f"rank {rank} holds more than its cap"
    return ""


def unperiodic(problem: Problem, start: Ints, window: Window | None) -> str:
    """What is wrong with the periodic part, empty if nothing is or there is none."""
    if window is None:
        return ""
    first, last, n, period = window
    t = np.arange(first, last + 1)
    for q in range(problem.sequences):
        mine = start[problem.first[q] : problem.first[q + 1]]
        now, then = (np.searchsorted(mine, at, side="right") for at in (t, t + period))
        if bool((then != now + n).any()):
            return f"sequence {q} is not periodic"
    return ""
