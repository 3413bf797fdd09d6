"""CaDiCaL and Glucose, through python-sat: they read the clauses and say sat with a model, or unsat with a proof.

CaDiCaL finds best, in its stable mode: what is asked after `tighten` most often has a model, and many restarts lose it.
Glucose often refutes sooner where C is far below what can be done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesched.model.columns import Bools
from pipesched.optimize.encoding.clauses import Clauses


@dataclass(frozen=True, eq=False)
class Outcome:
    """true: by variable, shape (variables + 1,), None for unsat. proof: the lines of a DRAT proof, where asked for."""

    true: Bools | None
    proof: Sequence[str] = ()


def solve(clauses: Clauses, engine: str, *, proof: bool = False) -> Outcome:
    """Decided by CaDiCaL 1.9.5 or Glucose 4; as long as it takes."""
    from pysat.solvers import Cadical195, Glucose4  # type: ignore[import-untyped]

    solver: Any = {"cadical": Cadical195, "glucose": Glucose4}[engine](with_proof=proof)
    try:
        if engine == "cadical":
            solver.configure({"stabilizeonly": 1})
        deque(map(solver.add_clause, clauses.lists()), maxlen=0)
        if solver.solve():
            return Outcome(truth(clauses.variables, solver.get_model()))
        return Outcome(None, solver.get_proof() or () if proof else ())
    finally:
        solver.delete()


def truth(variables: int, model: Sequence[int]) -> Bools:
    """By variable; what a model does not name is false."""
    true = np.zeros(variables + 1, dtype=np.bool_)
    named = np.asarray(model, dtype=np.int64)
    true[named[(named > 0) & (named <= variables)]] = True
    return true
