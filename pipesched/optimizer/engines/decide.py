"""One question, decided here and now.

    heads, tails ──> each rank alone ──> clauses or intervals ──> an engine ──> starts, looked at again
         └── a window is empty: unsat ──┘

C bounds every start from above: it is at most C - tail - duration. A question about some ranks alone has the heads
and tails of the whole problem. Where windows become empty before an engine is asked, the answer names what did it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.bounds import memory_links, tighten, windows
from pipesched.optimizer.bounds.memory_links import Link
from pipesched.optimizer.encoding import relax
from pipesched.optimizer.encoding.cnf import edges, encode
from pipesched.optimizer.encoding.counters import takes_before
from pipesched.optimizer.encoding.merge import Merged, merge, unmerged
from pipesched.optimizer.encoding.variables import Encoding
from pipesched.optimizer.engines import cp_sat, proof, sat, z3_engine
from pipesched.optimizer.engines.checked import fault, unperiodic
from pipesched.optimizer.problem import Problem
from pipesched.optimizer.question import Answer, Question

_PREPARED, _WRITTEN = 100, 3  # steps for each operation, and for each clause

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


def decide(question: Question, tell: Callable[[int], None] = lambda steps: None) -> Answer:
    """Whether there is a schedule with objective at most `question.bound`.

    Everything that keeps an engine from knowing is an unknown with its reason, running out of memory included; reaching
    its limit has none. tell: takes the steps so far, now and then.

    Raises:
        PipeschedError: PS820, the engine is not installed.
        ValueError: there is no such engine.
    """
    if question.engine not in ENGINES:
        raise ValueError(f"no engine is called {question.engine!r}")
    try:
        answer = _decide(question, tell)
    except MemoryError:
        answer = Answer("unknown", reason="out of memory")
    return replace(answer, engine=answer.engine or question.engine)


def task(question: Question) -> Task:
    """The windows by longest paths, in the whole problem. A periodic part does not allow to merge.

    Those of the span of one rank hold exactly if the span does; for several ranks it is said beside them.
    """
    whole = question.problem
    low, high = windows.within(whole, question.bound, question.ranks)
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


def _decide(question: Question, tell: Callable[[int], None]) -> Answer:
    """The answer, with its steps: those of the engine, and what the question is told in."""
    answer = _prepared(question, tell)
    return replace(answer, steps=answer.steps + _PREPARED * question.problem.operations)


def _prepared(question: Question, tell: Callable[[int], None]) -> Answer:
    if reason := beyond(question.problem):
        return Answer("unknown", reason=reason)
    if bool((question.problem.takes > question.problem.cap[question.problem.rank]).any()):
        return Answer("unsat", engine="cap", reason="a forward alone takes more than a cap")
    if question.problem.objective == "span" and question.ranks is None and (alone := _alone(question)) is not None:
        return alone
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
    effort = sat.Effort(question.limit, tell, question.seed)
    try:
        start, steps = (_by_intervals if question.engine == "cpsat" else _by_clauses)(made, effort)
    except (z3_engine.UnknownError, cp_sat.UnknownError) as unknown:
        return Answer("unknown", reason=str(unknown))
    except sat.GaveUpError as limit:
        return Answer("unknown", steps=limit.steps)
    return replace(Answer("unsat") if start is None else _believed(made, start), steps=steps)


def _alone(question: Question) -> Answer | None:
    """A rank that has no time for its own work within the span, counted from its first start; None if each has."""
    if question.proof is not None or question.window is not None:
        return None
    for rank in reversed(range(question.problem.ranks)):
        answer = _prepared(replace(question, engine="lattice", ranks=(rank,)), lambda steps: None)
        if answer.verdict == "unsat":
            return answer
    return None


def _by_intervals(made: Task, effort: sat.Effort) -> tuple[Ints | None, int]:
    if made.empty:
        return None, 0
    question, problem = made.question, made.problem
    low, high = made.merged.narrowed(problem, made.low, made.high)
    hint = None if question.hint is None else question.hint[made.kept]
    precedences = edges(problem, windows.links(problem))
    told, most = memory_links.told(problem), spanned(question)
    return cp_sat.solve(problem, low, high, precedences, told, question.window, hint, most, effort)


def spanned(question: Question) -> int | None:
    """What the span of every rank is at most, where windows do not say it."""
    alone = question.ranks is not None and len(question.ranks) == 1
    return question.bound if question.problem.objective == "span" and not alone else None


def clauses(made: Task) -> Encoding:
    """The clauses of a question."""
    merged = made.merged
    precedences, told = edges(merged.problem, made.links), memory_links.told(merged.problem)
    most = spanned(made.question)
    return encode(merged.problem, merged.low, merged.high, precedences, told, merged.joins, made.question.window, most)


def _by_clauses(made: Task, effort: sat.Effort) -> tuple[Ints | None, int]:
    encoding = clauses(made)
    outcome = _asked(made.question, encoding, effort)
    steps = outcome.steps + _WRITTEN * encoding.clauses.count()
    if outcome.true is None and made.question.proof is not None:
        proof.write(made.question, encoding, outcome.proof)
    start = None if outcome.true is None else made.merged.expanded(made.problem, encoding.starts(outcome.true))
    return start, steps


def _asked(question: Question, encoding: Encoding, effort: sat.Effort) -> sat.Outcome:
    if encoding.clauses.impossible:
        return sat.Outcome(None, ["0"])
    if question.engine == "z3":
        return z3_engine.solve(encoding.clauses, effort)
    return sat.solve(encoding.clauses, question.engine, effort, proof=question.proof is not None)


def _believed(made: Task, start: Ints) -> Answer:
    """A model is an answer only if it is a schedule."""
    question = made.question
    wrong = fault(made.problem, start, question.bound) or unperiodic(made.problem, start, question.window)
    if wrong:
        return Answer("unknown", reason=f"internal error: the model of {question.engine} is no schedule: {wrong}")
    return Answer("sat", start if question.ranks is None else None)
