"""One question, decided here and now.

    heads, tails ──> each rank alone ──> clauses or intervals ──> an engine ──> starts, looked at again
         └── a window is empty: unsat ──┘

C bounds every start from above: it is at most C - tail - duration. A question about some ranks alone has the heads
and tails of the whole problem. Where windows become empty before an engine is asked, the answer names what did it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimize.bounds import memory_links, tighten, windows
from pipesched.optimize.bounds.memory_links import Link
from pipesched.optimize.encoding import relax
from pipesched.optimize.encoding.cnf import edges, encode
from pipesched.optimize.encoding.counters import takes_before
from pipesched.optimize.encoding.merge import Merged, merge, unmerged
from pipesched.optimize.encoding.variables import Encoding
from pipesched.optimize.engines import cp_sat, proof, sat, z3_engine
from pipesched.optimize.engines.checked import fault, unperiodic
from pipesched.optimize.problem import Problem
from pipesched.optimize.question import Answer, Question

ENGINES = ("cadical", "glucose", "z3", "cpsat", "lattice")
"""lattice asks no solver: it says unsat where each rank alone shows it, and else unknown."""


@dataclass(frozen=True, eq=False)
class Task:
    """A question, its problem, and the same with the W of a rank merged; links: of the merged one. kept: the operations
    in the whole problem; low, high: their windows.
    """

    question: Question
    problem: Problem
    kept: Ints
    low: Ints
    high: Ints
    merged: Merged
    links: list[Link]

    @property
    def empty(self) -> bool:
        """Whether some operation has no time left."""
        return bool((self.merged.high < self.merged.low).any())


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
    return replace(answer, seconds=time.monotonic() - began, engine=answer.engine or question.engine)


def task(question: Question) -> Task:
    """The windows by longest paths, in the whole problem. A periodic part does not allow to merge."""
    whole = question.problem
    paths = windows.paths(whole)
    low, high = paths.head, question.bound - paths.tail - whole.duration[whole.sequence]
    problem, kept = whole, np.arange(whole.operations)
    if question.ranks is not None:
        problem, kept = relax.restrict(whole, question.ranks)
    low, high = low[kept], high[kept]
    merged = (unmerged if question.window else merge)(problem, low, high)
    return Task(question, problem, kept, low, high, merged, tighten.links(problem, merged))


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
        return Answer("unsat", engine="cap", reason="a forward alone takes more than a cap")
    made = task(question)
    if question.proof is None:  # a proof is of the plain clauses
        if made.empty:
            return Answer("unsat", engine="paths", reason="a path is longer")
        merged = tighten.tighten(made.merged, made.links, question.bound)
        if merged is None:
            return Answer("unsat", engine="lattice", reason="ranks alone have no time for their work")
        made = replace(made, merged=merged)
    if question.engine == "lattice":
        return Answer("unknown", reason="ranks alone do not tell")
    try:
        start = _by_intervals(made) if question.engine == "cpsat" else _by_clauses(made)
    except (z3_engine.UnknownError, cp_sat.UnknownError) as unknown:
        return Answer("unknown", reason=str(unknown))
    return Answer("unsat") if start is None else _believed(made, start)


def _by_intervals(made: Task) -> Ints | None:
    if made.empty:
        return None
    question, problem = made.question, made.problem
    low, high = made.merged.narrowed(problem, made.low, made.high)
    hint = None if question.hint is None else question.hint[made.kept]
    precedences = edges(problem, windows.links(problem))
    return cp_sat.solve(problem, low, high, precedences, memory_links.told(problem), question.window, hint)


def clauses(made: Task) -> Encoding:
    """The clauses of a question."""
    merged = made.merged
    precedences, told = edges(merged.problem, made.links), memory_links.told(merged.problem)
    return encode(merged.problem, merged.low, merged.high, precedences, told, merged.joins, made.question.window)


def _by_clauses(made: Task) -> Ints | None:
    encoding = clauses(made)
    outcome = _asked(made.question, encoding)
    if outcome.true is None and made.question.proof is not None:
        proof.write(made.question, encoding, outcome.proof)
    return None if outcome.true is None else made.merged.expanded(made.problem, encoding.starts(outcome.true))


def _asked(question: Question, encoding: Encoding) -> sat.Outcome:
    if encoding.clauses.impossible:
        return sat.Outcome(None, ["0"])
    if question.engine == "z3":
        return z3_engine.solve(encoding.clauses)
    return sat.solve(encoding.clauses, question.engine, proof=question.proof is not None)


def _believed(made: Task, start: Ints) -> Answer:
    """A model is an answer only if it is a schedule."""
    question = made.question
    wrong = fault(made.problem, start, question.bound) or unperiodic(made.problem, start, question.window)
    if wrong:
        return Answer("unknown", reason=f"internal error: the model of {question.engine} is no schedule: {wrong}")
    return Answer("sat", start if question.ranks is None else None)
