"""Z3's SAT core on the same clauses, read as DIMACS text: building them one by one as Z3 terms takes far longer."""

from __future__ import annotations

import re

from pipesched.optimize.encoding.clauses import Clauses
from pipesched.optimize.engines.sat import Outcome, truth

_TRUE = re.compile(r"k!(\d+)\|? \(\) Bool\s+true")


class UnknownError(Exception):
    """Z3 gave up, and says why."""


def solve(clauses: Clauses) -> Outcome:
    """Decided by Z3.

    Raises:
        UnknownError: Z3 does not know.
    """
    import z3  # type: ignore[import-untyped]

    solver = z3.SolverFor("QF_FD")
    solver.from_string("".join(clauses.dimacs()))
    verdict = solver.check()
    if verdict == z3.unsat:
        return Outcome(None)
    if verdict != z3.sat:
        raise UnknownError(solver.reason_unknown())
    named = [int(name) for name in _TRUE.findall(solver.model().sexpr())]
    return Outcome(truth(clauses.variables, named))
