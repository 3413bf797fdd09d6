"""What an engine is asked, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

from pipesched.model.columns import Ints
from pipesched.optimizer.problem import Problem


@dataclass(frozen=True, eq=False)
class Question:
    """Is there a schedule with objective at most `bound` ticks?

    engine: cadical, glucose, z3 or cpsat. ranks: only these (see `relax`), None for all. window: a periodic part, as
    (first tick, last tick, microbatches, ticks): n starts by t + ticks = starts by t + n, for t in first .. last.
    hint: starts of a known schedule, int64, shape (operations,). proof: where to write PATH.cnf and PATH.drat of a
    refutation. limit: steps after which an engine is to give up, None for never; seed: where its choices begin.
    """

    problem: Problem
    bound: int
    engine: str = "cadical"
    ranks: tuple[int, ...] | None = None
    window: tuple[int, int, int, int] | None = None
    hint: Ints | None = None
    proof: str | None = None
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Answer:
    """verdict: sat, unsat or unknown (never taken for unsat; `reason` says why). start: of a sat answer to a question
    about all ranks, int64, shape (operations,), else None. steps: what it took, the same on every machine.
    """

    verdict: str
    start: Ints | None = None
    steps: int = 0
    engine: str = ""
    reason: str = ""
