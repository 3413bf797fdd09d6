"""Decides in this process whether there is a schedule with an objective of at most C.

    heads, tails ──> each rank alone ──> clauses or intervals ──> an engine ──> starts, checked again
         └── a time window is empty: unsat ──┘

C bounds every start from above by C - tail - duration. A question about some of the ranks uses the heads and tails of
the whole problem. If time windows become empty before an engine is asked, the answer states the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve.bounds.lattice import merged_links, tighten
from pipesched.optimizer.solve.bounds.longest_paths import Link, linked_ranks, within
from pipesched.optimizer.solve.convert import fault
from pipesched.optimizer.solve.encoding.clauses import Encoding
from pipesched.optimizer.solve.encoding.cnf import edges, encode
from pipesched.optimizer.solve.encoding.memory_counters import takes_before
from pipesched.optimizer.solve.engines import sat_engines
from pipesched.optimizer.solve.problem import Answer, Problem, Question
from pipesched.optimizer.solve.reductions import Merged, merge, restrict, unmerged

_PREPARED, _WRITTEN, _LINKED = 100, 6, 2  # steps per operation; per clause, and of a problem without counters

ENGINES = ("cadical", "z3")


@dataclass(frozen=True, eq=False)
class Task:
    """A question and its problem, restricted to the ranks that the question is about. merged: the problem with merged
    W.

    links: the links of `merged`. kept: the numbers that the operations have in the whole problem; low, high: the time
    windows.
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
        """True if the time window of some operation is empty."""
        return bool((self.merged.high < self.merged.low).any())


def decide(question: Question, report: Callable[[int], None] = lambda steps: None) -> Answer:
    """Decide whether there is a schedule with an objective of at most `question.bound`.

    If an engine cannot decide, the answer is `unknown` with a reason, such as lack of memory, or without a reason if
    the engine reached its limit. report: function that is called at intervals with the number of steps so far.

    Raises:
        PipeschedError: PS820: the engine is not installed.
        ValueError: there is no such engine.
    """
    if question.engine not in ENGINES:
        raise ValueError(f"unknown engine {question.engine!r}")
    try:
        answer = _prepared(question, report)
    except MemoryError:
        answer = Answer("unknown", reason="out of memory")
    steps = answer.steps + _PREPARED * question.problem.operations
    return replace(answer, engine=answer.engine or question.engine, steps=steps)


def task(question: Question) -> Task:
    """Build the task of a question; its time windows follow from the longest paths in the whole problem.

    The W are not merged if a part must repeat. Time windows express the span of one rank exactly; the spans of several
    ranks need clauses (`spanned`).
    """
    whole = question.problem
    low, high = within(whole, question.bound, question.ranks)
    problem, kept = whole, np.arange(whole.operations)
    if question.ranks is not None:
        problem, kept = restrict(whole, question.ranks)
    low, high = low[kept], high[kept]
    merged = (unmerged if question.repeat else merge)(problem, low, high)
    return Task(question, problem, kept, low, high, merged=merged, links=merged_links(problem, merged))


def beyond(problem: Problem) -> str:
    """Return the reason why no engine supports the problem, or an empty string."""
    if bool((problem.duration[problem.op == Op.F] == 0).any()):
        return "a forward takes no time"
    for rank, held in enumerate(problem.on):
        if takes_before(problem, rank) and any(problem.frees[q] < 0 and not problem.duration[q] for q in held):
            return "I takes memory and neither I nor W takes time"
    return ""


def _prepared(question: Question, report: Callable[[int], None]) -> Answer:
    if reason := beyond(question.problem):
        return Answer("unknown", reason=reason)
    if bool((question.problem.takes > question.problem.cap[question.problem.rank]).any()):
        return Answer("unsat", engine="ranks", reason="a single forward exceeds the cap of its rank")
    made = task(question)
    if made.empty:
        return Answer("unsat", engine="ranks", reason="a path is longer")
    merged = tighten(made.merged, made.links, question.bound)
    if merged is None:
        return Answer("unsat", engine="ranks", reason="a single rank has no time for its work")
    made = replace(made, merged=merged)
    effort = sat_engines.Effort(question.limit, report, question.seed)
    try:
        start, steps = _by_clauses(made, effort)
    except sat_engines.UnknownError as unknown:
        return Answer("unknown", steps=unknown.steps, reason=unknown.reason)
    return replace(Answer("unsat") if start is None else _believed(made, start), steps=steps)


def spanned(question: Question) -> int | None:
    """Return the limit on the span of every rank if time windows do not express it; otherwise None."""
    alone = question.ranks is not None and len(question.ranks) == 1
    return question.bound if question.problem.objective == "span" and not alone else None


def clauses(made: Task) -> Encoding:
    """Encode the merged problem of a task."""
    merged = made.merged
    precedences, linked = edges(merged.problem, made.links), linked_ranks(merged.problem)
    most = spanned(made.question)
    return encode(
        merged.problem,
        merged.low,
        merged.high,
        precedences,
        linked,
        joins=merged.joins,
        repeat=made.question.repeat,
        span=most,
    )


def _by_clauses(made: Task, effort: sat_engines.Effort) -> tuple[Ints | None, int]:
    encoding = clauses(made)
    question, simple = made.question, len(linked_ranks(made.problem)) == made.problem.ranks
    written = (_LINKED if simple else _WRITTEN) * encoding.clauses.count()
    report = effort.report
    report(written)
    effort = replace(effort, report=lambda steps: report(written + steps))
    engine = sat_engines.by_z3 if question.engine == "z3" else sat_engines.by_cadical
    try:
        outcome = sat_engines.Outcome(None) if encoding.clauses.impossible else engine(encoding.clauses, effort)
    except sat_engines.UnknownError as unknown:
        raise sat_engines.UnknownError(unknown.reason, unknown.steps + written) from None
    steps = outcome.steps + written
    start = None if outcome.true is None else made.merged.expanded(made.problem, encoding.starts(outcome.true))
    return start, steps


def _believed(made: Task, start: Ints) -> Answer:
    """Return the answer for a model: sat if its starts form a schedule, otherwise unknown."""
    question = made.question
    if wrong := fault(made.problem, start, question.bound):
        return Answer("unknown", reason=f"internal error: the model of {question.engine} is not a schedule: {wrong}")
    return Answer("sat", start if question.ranks is None else None)
