"""Z3's SAT core on the same clauses, read as DIMACS text: building them one by one as Z3 terms takes far longer."""

from __future__ import annotations

import re
from itertools import count

from pipesched.optimizer.encoding.clauses import Clauses
from pipesched.optimizer.engines.sat import NO_LIMIT, Effort, GaveUpError, Outcome, truth

_SLICE, _RESOURCES = 2_000_000, 8  # steps of the first slice; what Z3 counts in a step
_OVER = ("sat.canceled", "canceled", "max. resource limit exceeded")
_TRUE = re.compile(r"k!(\d+)\|? \(\) Bool\s+true")


class UnknownError(Exception):
    """Z3 gave up, and says why."""


def solve(clauses: Clauses, effort: Effort = NO_LIMIT) -> Outcome:
    """Decided by Z3, in slices of its own count of resources, each twice as large as the one before.

    Raises:
        UnknownError: Z3 does not know.
        GaveUpError: the limit is reached.
    """
    import z3  # type: ignore[import-untyped]

    solver = z3.SolverFor("QF_FD")
    solver.from_string("".join(clauses.dimacs()))
    solver.set("random_seed", effort.seed)
    steps = 0
    for slice_ in count():
        share = _SLICE << slice_
        if effort.limit is not None:
            share = min(share, max(effort.limit - steps, 1))
        solver.set("rlimit", share * _RESOURCES)
        verdict = solver.check()
        if verdict != z3.unknown or solver.reason_unknown() not in _OVER:
            break
        steps += share
        if effort.limit is not None and steps >= effort.limit:
            raise GaveUpError(steps)
        effort.tell(steps)
    if verdict == z3.unsat:
        return Outcome(None, steps=steps)
    if verdict != z3.sat:
        raise UnknownError(solver.reason_unknown())
    named = [int(name) for name in _TRUE.findall(solver.model().sexpr())]
    return Outcome(truth(clauses.variables, named), steps=steps)
