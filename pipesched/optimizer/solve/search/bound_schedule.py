"""The bound schedule: which objective which engine is asked about next.

    value ─┬─ find     value - step; the step halves when there is no answer in time
           │
           ├─ alone    one rank at value - 1: "unsat" ends the search, "sat" is quick
           │
    lower ─┴─ refute   all ranks at the bound itself: "sat" ends the search too

One engine searches downward from the best known objective, one raises the bound. A question that is not answered
within its limit is asked again later, with three times as much. Limits are steps, which engines count, and not
seconds, which depend on what else the machine does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.util import find_spec

from pipesched.optimizer.solve.bounds.longest_paths import within
from pipesched.optimizer.solve.bounds.lower_bound import rank_bounds
from pipesched.optimizer.solve.problem import Answer, Problem, Question

FIRST_LIMIT = 2_000_000  # steps
LOADING = 20  # steps a variable: making the clauses and handing them over is not the engine's work
MOST_TRIES = 12  # of one kind of question: the last would be waited for 3^12 times as long as the first
DECLINED = 4  # tries that an engine's own refusal counts for
MOST_INTERVALS = 5_000  # operations up to which CP-SAT is of use
MOST_VARIABLES = 6_000_000  # of one encoding: more does not fit the memory of a small machine


@dataclass(frozen=True)
class Step:
    """A question, and how much may be done for it. role: find or refute; key: what it is about, for its next limit."""

    question: Question
    limit: int
    role: str
    key: object


@dataclass(eq=False)
class BoundSchedule:
    """lower, value: no schedule has less than lower; the best known has value, None if there is none yet. reached: an
    engine knows starts with this objective, and no order that begins as late: at and above it there is nothing to ask.
    """

    problem: Problem
    slack: int  # operations' heads, tails and durations, summed: variables = operations * C - slack
    engine: str
    lower: int
    value: int | None
    horizon: int
    ranks: tuple[int, ...]  # the most promising to refute alone first
    step: int = 0
    guess: int = 0
    seed: int = 0
    reached: int | None = None
    intervals: bool = False  # whether CP-SAT may be asked, where there are too many ticks for clauses
    tried: dict[object, int] = field(default_factory=dict)
    alone: dict[int, int] = field(default_factory=dict)  # least objective that the rank alone is known to reach

    def _variables(self, bound: int, ranks: tuple[int, ...] | None = None) -> int:
        """Of the clauses, about."""
        part = len(ranks) if ranks else len(self.ranks)
        return max(0, self.problem.operations * bound - self.slack) * part // len(self.ranks)

    def _engine(self, bound: int, ranks: tuple[int, ...] | None = None) -> str | None:
        """Who is to be asked, or None where the question is of unbearable size for all that may be."""
        if self.engine == "cpsat" or (self.intervals and self._variables(bound, ranks) > MOST_VARIABLES):
            return "cpsat" if self.problem.operations <= MOST_INTERVALS else None
        if self._variables(bound, ranks) > MOST_VARIABLES:
            return None
        return "z3" if self.engine == "z3" else "cadical"

    def find(self) -> Step | None:
        """A schedule better than the best; without one, a schedule at all, at ever larger guesses."""
        if self.value is None:
            self.guess = min(max(self.guess, self.lower + self.lower // 8 + 1), self.horizon)
            bound = self.guess
        else:
            gap = self.value - self.lower
            self.step = min(self.step or max(1, gap // 2), gap)
            bound = min(self.value - self.step, self._top)
        engine, key = self._engine(bound), ("find", self.step > 1)
        if engine is None or not self.lower <= bound <= self._top or self.tried.get(key, 0) >= MOST_TRIES:
            return None
        step = self._step(Question(self.problem, bound, engine), "find", key)
        if self.step > 1 or self.value is None:
            return step
        return replace(step, question=replace(step.question, limit=None))  # just below the best it decides all

    @property
    def _top(self) -> int:
        """The largest objective that is of interest."""
        top = self.horizon if self.value is None else self.value - 1
        return top if self.reached is None else min(top, self.reached - 1)

    def refute(self) -> Step | None:
        """A better bound: the cheapest of what has not been answered yet."""
        if self._top < self.lower:
            return None
        open_ = [(q, key) for q, key in self._refutations(self._top) if self.tried.get(key, 0) < MOST_TRIES]
        steps = [self._step(question, "refute", key) for question, key in open_]
        return min(steps, key=lambda step: step.limit, default=None)

    def _refutations(self, top: int) -> list[tuple[Question, object]]:
        found: list[tuple[Question, object]] = []
        engine = self._engine(self.lower)
        if engine is not None:
            found.append((Question(self.problem, self.lower, engine), "all"))
        if self.value is not None:
            for rank in self.ranks:
                reach = min(self.alone.get(rank, top + 1), top + 1)
                bound = top if reach > top else (self.lower + reach) // 2
                engine = self._engine(bound, (rank,))
                if engine is not None and self.lower <= bound < reach:
                    found.append((Question(self.problem, bound, engine, ranks=(rank,)), rank))
        return found

    def _step(self, question: Question, role: str, key: object) -> Step:
        size = 0 if question.engine == "cpsat" else self._variables(question.bound, question.ranks)
        limit = (FIRST_LIMIT + LOADING * size) * 3 ** self.tried.get(key, 0)
        return Step(replace(question, limit=limit, seed=self.seed), limit, role, key)

    def take(self, step: Step, answer: Answer) -> None:
        """An answer is here; `unknown` includes no answer in time. For a schedule that was found there is `found`."""
        question = step.question
        if answer.verdict == "unsat":
            self.lower = max(self.lower, question.bound + 1)
            self.guess = max(self.guess, self.lower + (self.lower - question.bound) * 2)
        elif answer.verdict == "sat" and question.ranks:
            self.alone[question.ranks[0]] = question.bound
        elif answer.verdict == "unknown":
            self.tried[step.key] = self.tried.get(step.key, 0) + (DECLINED if answer.reason else 1)
            if question.ranks is None and step.key != "all":
                self.step = max(1, self.step // 2)
                self.guess += self.guess // 4

    def found(self, value: int) -> None:
        """A better schedule."""
        self.value = value if self.value is None else min(self.value, value)
        self.step = 0

    def unrealised(self, bound: int) -> None:
        """There are starts for the bound, and no order was found that is as good."""
        self.reached = bound if self.reached is None else min(self.reached, bound)


def bound_schedule(problem: Problem, engine: str, lower: int, value: int | None, seed: int = 0) -> BoundSchedule:
    """The questions of a problem. Without a schedule yet, one operation after another is long enough for any."""
    low, high = within(problem, lower)
    slack = problem.operations * lower - int((high - low).sum())
    horizon = int((problem.length * problem.duration).sum() + (problem.length[problem.after] * problem.lag).sum())
    best = [max((b.value for b in rank_bounds(problem, r)), default=0) for r in range(problem.ranks)]
    ranks = sorted(range(problem.ranks), key=lambda r: (-best[r], -r))
    intervals = engine in ("auto", "cpsat") and find_spec("ortools") is not None
    return BoundSchedule(
        problem, slack, engine, lower, value, horizon=horizon, ranks=tuple(ranks), intervals=intervals, seed=seed
    )
