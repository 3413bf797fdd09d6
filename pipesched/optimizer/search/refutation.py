"""A refutation for others to check: no schedule has an objective of lower bound - 1 tick.

What shows the bound is often one rank, with its memory and its round trips; then that rank alone is refuted, which is
sooner done and shorter to read. Else all ranks are. The engines that write proofs are CaDiCaL and Glucose.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesched.model.numbers import shown
from pipesched.optimizer.engines.worker_pool import Pool
from pipesched.optimizer.problem import Question
from pipesched.optimizer.search.state import State


def write(state: State, path: str, seconds: float) -> str:
    """PATH.cnf and PATH.drat, and what came of it in one line; each question is given so many seconds.

    Files are there exactly if the line begins with ``refutation``.
    """
    told = shown(state.problem.time(state.lower - 1))
    reason = f"no refutation of {told} in {seconds:g} s"
    if state.lower < 1:
        return "nothing is below 0: there is no refutation to write"
    with Pool(1) as pool:
        for question in _questions(state, path):
            pool.submit(question)
            arrived = pool.wait(seconds)
            if arrived is not None and arrived[1].verdict == "unsat":
                alone = f" on rank {question.ranks[0]} alone" if question.ranks else ""
                return f"refutation of {told}{alone} in {path}.cnf and {path}.drat"
            if arrived is None:
                break
            reason = f"no refutation of {told}" + (f": {arrived[1].reason}" if arrived[1].reason else "")
    return f"{reason}; {path}.cnf and {path}.drat are not written"


def _questions(state: State, path: str) -> Iterator[Question]:
    """The one whose refutation shows the bound, then the one that is implied by it."""
    refuted, bound = state.refuted, state.lower - 1
    by_engine = refuted is not None and refuted.bound == bound
    ranks = refuted.ranks if refuted is not None and by_engine else (state.bound.rank,)
    if ranks is not None:
        yield Question(state.problem, bound, "cadical", ranks=ranks, proof=path)
    yield Question(state.problem, bound, "cadical", proof=path)
