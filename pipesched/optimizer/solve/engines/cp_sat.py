"""CP-SAT of OR-Tools: intervals instead of a grid of time, so that long durations cost no more than short ones.

machine   no two intervals of a rank overlap; an interval of length 0 lies between two others
chain     start of later >= start of earlier + delay; FIFO and memory edges too
memory    a reservoir: F takes at its start, the others free (or take) at their end
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints
from pipesched.optimizer.solve.encoding.cnf import Edges, ends
from pipesched.optimizer.solve.engines.sat_engines import NO_LIMIT, Effort, UnknownError
from pipesched.optimizer.solve.problem import Problem, Repeat

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntVar

WORKERS = 2  # search strategies, run in turn by one thread: the result does not depend on which is faster
STEPS = 5_000_000  # steps per unit of CP-SAT's deterministic time


def require() -> None:
    """Check that CP-SAT is installed.

    Raises:
        PipeschedError: PS820, OR-Tools is not installed.
    """
    if find_spec("ortools") is None:
        message = "the engine cpsat needs OR-Tools, which is not installed"
        raise fail(Code.NEEDS, message, help="pip install 'pipesched[optimizer]'")


def solve(
    problem: Problem,
    low: Ints,
    high: Ints,
    edges: Edges,
    linked: tuple[int, ...],
    repeat: Repeat | None = None,
    span: int | None = None,
    effort: Effort = NO_LIMIT,
) -> tuple[Ints | None, int]:
    """Return (starts of a schedule within low .. high and the span, as for `cnf.encode`, or None; steps that CP-SAT
    took).

    Raises:
        PipeschedError: PS820, OR-Tools is not installed.
        UnknownError: CP-SAT cannot decide, or the limit is reached.
    """
    require()
    from ortools.sat.python import cp_model

    if repeat is not None:
        raise UnknownError("cpsat does not support a part that repeats")
    model = cp_model.CpModel()
    starts = _starts(model, problem, low, high, edges, linked=linked, span=span)
    solver = _solver(effort)
    status = solver.solve(model)
    steps = int(solver.response_proto.deterministic_time * STEPS)
    if status == cp_model.INFEASIBLE:
        return None, steps
    if status == cp_model.UNKNOWN and effort.limit is not None:
        raise UnknownError(steps=max(steps, effort.limit))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise UnknownError(f"cpsat: {solver.status_name(status)}")
    return np.array([solver.value(x) for x in starts], dtype=np.int64), steps


def _starts(
    model: CpModel, problem: Problem, low: Ints, high: Ints, edges: Edges, linked: tuple[int, ...], span: int | None
) -> list[IntVar]:
    """Create a variable for every start, and add its constraints to the model."""
    starts = [model.new_int_var(a, b, "") for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    for later, earlier, delay in zip(*(column.tolist() for column in edges), strict=True):
        model.add(starts[later] >= starts[earlier] + delay)
    duration = problem.duration[problem.sequence].tolist()
    for rank, held in enumerate(problem.on):
        ops = [x for q in held for x in range(int(problem.first[q]), int(problem.first[q + 1]))]
        model.add_no_overlap([model.new_fixed_size_interval_var(starts[x], duration[x], "") for x in ops])
        if ops and rank not in linked:
            _memory(model, problem, rank, ops, [starts[x] for x in ops])
        if span is not None:
            for x, z in product(*ends(problem, held)):
                model.add(starts[z] + duration[z] <= starts[x] + span)
    return starts


def _solver(effort: Effort) -> CpSolver:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = WORKERS
    solver.parameters.catch_sigint_signal = False  # otherwise CP-SAT replaces Python's handler in the calling process
    solver.parameters.interleave_search = True
    solver.parameters.random_seed = effort.seed
    if effort.limit is not None:
        solver.parameters.max_deterministic_time = effort.limit / STEPS
    return solver


def _memory(model: CpModel, problem: Problem, rank: int, ops: list[int], starts: list[IntVar]) -> None:
    """Add the memory of a rank. Every tick has three moments: ends of operations that took time, then operations
    without duration, then F start and take memory.
    """
    times, changes = [], []
    for x, start in zip(ops, starts, strict=True):
        q = int(problem.sequence[x])
        d = int(problem.duration[q])
        if problem.takes[q]:
            times.append(3 * start + 2)
            changes.append(int(problem.takes[q]))
        if problem.frees[q]:
            times.append(3 * (start + d) + (d == 0))
            changes.append(-int(problem.frees[q]))
    model.add_reservoir_constraint(times, changes, sum(c for c in changes if c < 0), int(problem.cap[rank]))
