"""CaDiCaL and Glucose, through python-sat: they read the clauses and say sat with a model, or unsat with a proof.

CaDiCaL finds best, in its stable mode: what is asked after `tighten` most often has a model, and many restarts lose it.
Glucose often refutes sooner where C is far below what can be done.

They work in slices of so many conflicts and count what they do, never the time: the same question has the same answer,
after the same number of steps, however busy the machine is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesched.model.columns import Bools
from pipesched.optimizer.encoding.clauses import Clauses

_SLICE = 50_000_000  # variables times conflicts: some tenths of a second
_PROPAGATIONS, _CONFLICT = 6, 10  # propagations in a step; steps of a conflict


@dataclass(frozen=True, eq=False)
class Outcome:
    """true: by variable, shape (variables + 1,), None for unsat. proof: the lines of a DRAT proof, where asked for.
    steps: what it took.
    """

    true: Bools | None
    proof: Sequence[str] = ()
    steps: int = 0


class GaveUpError(Exception):
    """The limit is reached."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


@dataclass(frozen=True)
class Effort:
    """How much an engine may do, in steps, and whom it tells how far it is; seed: where its choices begin."""

    limit: int | None = None
    tell: Callable[[int], None] = lambda steps: None
    seed: int = 0


NO_LIMIT = Effort()


def solve(clauses: Clauses, engine: str, effort: Effort = NO_LIMIT, *, proof: bool = False) -> Outcome:
    """Decided by CaDiCaL 1.9.5 or Glucose 4.

    Raises:
        GaveUpError: the limit is reached.
    """
    from pysat.solvers import Cadical195, Glucose4  # type: ignore[import-untyped]

    solver: Any = {"cadical": Cadical195, "glucose": Glucose4}[engine](with_proof=proof)
    try:
        if engine == "cadical":
            solver.configure({"stabilizeonly": 1, "seed": effort.seed})
        deque(map(solver.add_clause, clauses.lists()), maxlen=0)
        steps = _sliced(solver, min(max(_SLICE // (clauses.variables + 1), 100), 5000), effort)
        if solver.get_status():
            return Outcome(truth(clauses.variables, solver.get_model()), steps=steps)
        return Outcome(None, solver.get_proof() or () if proof else (), steps)
    finally:
        solver.delete()


def _sliced(solver: Any, conflicts: int, effort: Effort) -> int:
    """Runs the solver to its end; the steps that it took."""
    while True:
        solver.conf_budget(conflicts)
        decided = solver.solve_limited() is not None
        done = solver.accum_stats()
        steps = done["propagations"] // _PROPAGATIONS + done["conflicts"] * _CONFLICT
        if decided:
            return int(steps)
        if effort.limit is not None and steps >= effort.limit:
            raise GaveUpError(steps)
        effort.tell(steps)


def truth(variables: int, model: Sequence[int]) -> Bools:
    """By variable; what a model does not name is false."""
    true = np.zeros(variables + 1, dtype=np.bool_)
    named = np.asarray(model, dtype=np.int64)
    true[named[(named > 0) & (named <= variables)]] = True
    return true
