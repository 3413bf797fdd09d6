"""SAT solvers, which read the clauses and answer `sat` with a model, or `unsat`.

CaDiCaL finds models best in its stable mode: after `tighten`, most questions have a model, which frequent restarts
miss. Z3's SAT core is a second, independent solver; it reads DIMACS text, because building the clauses one by one as Z3
terms takes far longer.

Solvers run in slices, measured in conflicts or in Z3's own resource count. They count work, not time, so the same
question has the same answer after the same number of steps, however busy the machine is.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pipesched.model.columns import Bools

if TYPE_CHECKING:
    pass

_SLICE = 50_000_000  # variables times conflicts of a slice: some tenths of a second
_PROPAGATIONS, _CONFLICT = 6, 10  # propagations per step; steps per conflict
_Z3_SLICE, _Z3_RESOURCES = 2_000_000, 8  # steps of the first slice; Z3's resources per step
_Z3_OVER = ("sat.canceled", "canceled", "max. resource limit exceeded")
_Z3_TRUE = re.compile(r"k!(\d+)\|? \(\) Bool\s+true")


class Solver(Protocol):
    """The methods of a python-sat solver that are used here."""

    def configure(self, options: Mapping[str, int]) -> None: ...
    def add_clause(self, literals: list[int]) -> None: ...
    def conf_budget(self, conflicts: int) -> None: ...
    def solve_limited(self) -> bool | None: ...
    def accum_stats(self) -> dict[str, int]: ...
    def get_status(self) -> bool | None: ...
    def get_model(self) -> list[int]: ...
    def delete(self) -> None: ...


class Dimacs(Protocol):
    """A value that can be written as DIMACS."""

    variables: int

    def dimacs(self) -> Iterator[str]: ...


class Listed(Protocol):
    """The clauses of a question, passed to a solver one by one."""

    variables: int

    def lists(self) -> Iterable[list[int]]: ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result that a solver returns. true: the value of each variable, shape (variables + 1,), None for unsat.

    steps: the solver's work.
    """

    true: Bools | None
    steps: int = 0


class UnknownError(Exception):
    """Raised if an engine cannot decide. reason: empty if the engine reached its limit after `steps`."""

    def __init__(self, reason: str = "", steps: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.steps = reason, steps


@dataclass(frozen=True)
class Effort:
    """limit: the most steps, None for no limit; report: called with the steps so far; seed: random seed."""

    limit: int | None = None
    report: Callable[[int], None] = lambda steps: None
    seed: int = 0


NO_LIMIT = Effort()


def by_cadical(clauses: Listed, effort: Effort = NO_LIMIT) -> Outcome:
    """Decide the clauses with CaDiCaL 1.9.5.

    Raises:
        UnknownError: the limit was reached.
    """
    from pysat.solvers import Cadical195

    solver: Solver = Cadical195()
    try:
        solver.configure({"stabilizeonly": 1, "seed": effort.seed})
        deque(map(solver.add_clause, clauses.lists()), maxlen=0)
        steps = _sliced(solver, min(max(_SLICE // (clauses.variables + 1), 100), 5000), effort)
        if solver.get_status():
            return Outcome(truth(clauses.variables, solver.get_model()), steps=steps)
        return Outcome(None, steps)
    finally:
        solver.delete()


def taken(solver: Solver) -> int:
    """Return the steps that a solver has taken."""
    done = solver.accum_stats()
    return done["propagations"] // _PROPAGATIONS + done["conflicts"] * _CONFLICT


def _sliced(solver: Solver, conflicts: int, effort: Effort) -> int:
    """Run the solver until it finishes; return the number of steps that it took."""
    while True:
        solver.conf_budget(conflicts)
        decided, steps = solver.solve_limited() is not None, taken(solver)
        if decided:
            return steps
        if effort.limit is not None and steps >= effort.limit:
            raise UnknownError(steps=steps)
        effort.report(steps)


def truth(variables: int, model: Sequence[int]) -> Bools:
    """Return the value of every variable in a model; variables that the model omits are false."""
    true = np.zeros(variables + 1, dtype=np.bool_)
    named = np.asarray(model, dtype=np.int64)
    true[named[(named > 0) & (named <= variables)]] = True
    return true


def by_z3(clauses: Dimacs, effort: Effort = NO_LIMIT) -> Outcome:
    """Decide the clauses with Z3, in slices measured by its `rlimit`, each twice as large as the previous one.

    Raises:
        UnknownError: Z3 cannot decide, or the limit was reached.
    """
    import z3

    solver = z3.SolverFor("QF_FD")
    solver.from_string("".join(clauses.dimacs()))
    solver.set("random_seed", effort.seed)
    steps = 0
    for slice_ in count():
        share = _Z3_SLICE << slice_
        if effort.limit is not None:
            share = min(share, max(effort.limit - steps, 1))
        solver.set("rlimit", share * _Z3_RESOURCES)
        verdict = solver.check()
        if verdict != z3.unknown or solver.reason_unknown() not in _Z3_OVER:
            break
        steps += share
        if effort.limit is not None and steps >= effort.limit:
            raise UnknownError(steps=steps)
        effort.report(steps)
    if verdict == z3.unsat:
        return Outcome(None, steps=steps)
    if verdict != z3.sat:
        raise UnknownError(solver.reason_unknown())
    named = [int(name) for name in _Z3_TRUE.findall(solver.model().sexpr())]
    return Outcome(truth(clauses.variables, named), steps=steps)
