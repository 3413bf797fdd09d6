"""One question, decided here and now.

    heads, tails ── a window is empty: unsat ── clauses or intervals ── an engine ── starts, looked at again

C bounds every start from above: it is at most C - tail - duration. An answer about some ranks alone has the heads and
tails of the whole problem.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimize import relax, windows
from pipesched.optimize.cnf import Edges, encode
from pipesched.optimize.counters import takes_before
from pipesched.optimize.engines import cp_sat, proof, sat, z3_engine
from pipesched.optimize.engines.checked import fault, unperiodic
from pipesched.optimize.problem import Problem
from pipesched.optimize.question import Answer, Question

ENGINES = ("cadical", "glucose", "z3", "cpsat")


@dataclass(frozen=True, eq=False)
class Task:
    """A question with its windows. kept: the operations of the whole problem that it is about."""

    problem: Problem
    low: Ints
    high: Ints
    edges: Edges
    told: tuple[int, ...]
    kept: Ints

    @property
    def empty(self) -> bool:
        """Whether some operation has no time left."""
        return bool((self.high < self.low).any())


def decide(question: Question) -> Answer:
    """Whether there is a schedule with objective at most `question.bound`.

    Everything that keeps an engine from knowing is an unknown with its reason, running out of memory included.

    Raises:
        PipeschedError: PS820, the engine is not installed.
        ValueError: there is no such engine.
    """
    if question.engine not in ENGINES:
        raise ValueError(f"no engine is called {question.engine!r}")
    began = time.monotonic()
    try:
        answer = _decide(question)
    except MemoryError:
        answer = Answer("unknown", reason="out of memory")
    return replace(answer, seconds=time.monotonic() - began, engine=question.engine)


def task(question: Question) -> Task:
    """The windows, and the precedences that make them."""
    whole = question.problem
    paths = windows.paths(whole)
    low, high = paths.head, question.bound - paths.tail - whole.duration[whole.sequence]
    if question.ranks is None:
        told = windows.memory_edges(whole)[3]
        return Task(whole, low, high, paths.edges, told, np.arange(whole.operations))
    part, kept = relax.restrict(whole, question.ranks)
    *memory, told = windows.memory_edges(part)
    later, earlier, delay = (np.concatenate(pair) for pair in zip(part.precedence, memory, strict=True))
    return Task(part, low[kept], high[kept], (later, earlier, delay), told, kept)


def beyond(problem: Problem) -> str:
    """Why no engine takes the problem, empty if it does."""
    if bool((problem.duration[problem.op == Op.F] == 0).any()):
        return "a forward takes no time"
    for rank, held in enumerate(problem.on):
        if takes_before(problem, rank) and any(problem.frees[q] < 0 and not problem.duration[q] for q in held):
            return "I takes memory and neither I nor W takes time"
    return ""


def _decide(question: Question) -> Answer:
    if reason := beyond(question.problem):
        return Answer("unknown", reason=reason)
    if bool((question.problem.takes > question.problem.cap[question.problem.rank]).any()):
        return Answer("unsat", reason="a forward alone takes more than a cap")
    made = task(question)
    if made.empty and question.proof is None:
        return Answer("unsat", reason="a longest path is longer")
    try:
        start = _by_intervals(question, made) if question.engine == "cpsat" else _by_clauses(question, made)
    except (z3_engine.UnknownError, cp_sat.UnknownError) as unknown:
        return Answer("unknown", reason=str(unknown))
    return Answer("unsat") if start is None else _believed(question, made, start)


def _by_intervals(question: Question, made: Task) -> Ints | None:
    if made.empty:
        return None
    hint = None if question.hint is None else question.hint[made.kept]
    return cp_sat.solve(made.problem, made.low, made.high, made.edges, made.told, question.window, hint)


def _by_clauses(question: Question, made: Task) -> Ints | None:
    encoding = encode(made.problem, made.low, made.high, made.edges, made.told, question.window)
    clauses = encoding.clauses
    if clauses.impossible:
        outcome = sat.Outcome(None, ["0"])
    elif question.engine == "z3":
        outcome = z3_engine.solve(clauses)
    else:
        outcome = sat.solve(clauses, question.engine, proof=question.proof is not None)
    if outcome.true is None and question.proof is not None:
        proof.write(question, encoding, outcome.proof)
    return None if outcome.true is None else encoding.starts(outcome.true)


def _believed(question: Question, made: Task, start: Ints) -> Answer:
    """A model is an answer only if it is a schedule."""
    wrong = fault(made.problem, start, question.bound) or unperiodic(made.problem, start, question.window)
    if wrong:
        return Answer("unknown", reason=f"internal error: the model of {question.engine} is no schedule: {wrong}")
    return Answer("sat", start if question.ranks is None else None)
