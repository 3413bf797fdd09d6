"""The bound schedule, which chooses the objective of the next question to an engine.

    value ─┬─ find     value - step; the step halves if no answer comes in time
           │
           ├─ alone    one rank at value - 1: "unsat" ends the search, "sat" is quick
           │
    lower ─┴─ refute   all ranks at the bound itself: "sat" ends the search too

One engine searches downward from the best known objective, and the other raises the bound. A question that is not
answered within its limit is asked again later with three times the limit. Limits are steps, which engines count, not
seconds, which depend on the load of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipesched.optimizer.solve.bounds.longest_paths import within
from pipesched.optimizer.solve.bounds.lower_bound import rank_bounds
from pipesched.optimizer.solve.problem import Answer, Problem, Question

FIRST_LIMIT = 2_000_000  # steps of the first limit
LOADING = 20  # steps per variable, for building the clauses and passing them to the engine
MOST_TRIES = 12  # most tries of one kind of question, each with three times the limit of the previous try
DECLINED = 4  # tries charged for a refusal by the engine
MOST_VARIABLES = 6_000_000  # most variables of one encoding: more exceed the memory of a small machine


@dataclass(frozen=True)
class Step:
    """A question and its limit of steps, of which `loading` steps are for building the clauses. role: find or refute;
    key: the kind of question, by which attempts are counted.
    """

    question: Question
    limit: int
    role: str
    key: object
    loading: int


@dataclass(eq=False)
class BoundSchedule:
    """The questions about a problem, and the state that determines the next one.

    lower: the lower bound; value: the objective of the best known schedule, None before the first schedule. reached:
    the least objective for which an engine found starts that no known order attains; later questions aim lower.
    """

    problem: Problem
    slack: int  # sum of the operations' heads, tails and durations: variables = operations * C - slack
    engine: str
    lower: int
    value: int | None
    horizon: int
    ranks: tuple[int, ...]  # ranks for refutations by one rank, the most promising first
    step: int = 0
    guess: int = 0
    ahead: int | None = None  # ticks above the bound at which to refute all ranks; None at first: a third of the gap
    seed: int = 0
    reached: int | None = None
    tried: dict[object, int] = field(default_factory=dict)
    alone: dict[int, int] = field(default_factory=dict)  # by rank, the least objective that the rank alone can reach

    def _variables(self, bound: int, ranks: tuple[int, ...] | None = None) -> int:
        """Return the estimated number of variables in the clauses."""
        part = len(ranks) if ranks else len(self.ranks)
        return max(0, self.problem.operations * bound - self.slack) * part // len(self.ranks)

    def _engine(self, bound: int, ranks: tuple[int, ...] | None = None) -> str | None:
        """Return the engine to ask, or None if the question is too large."""
        if self._variables(bound, ranks) > MOST_VARIABLES:
            return None
        return "z3" if self.engine == "z3" else "cadical"

    def find(self) -> Step | None:
        """Return the next question: whether there is a better schedule or, if none is known yet, any schedule within a
        growing bound; None if no question is left.
        """
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
        return replace(
            step, question=replace(step.question, limit=None)
        )  # just below the best: an answer ends the search

    @property
    def _top(self) -> int:
        """The largest objective worth asking about."""
        top = self.horizon if self.value is None else self.value - 1
        return top if self.reached is None else min(top, self.reached - 1)

    def refute(self) -> Step | None:
        """Return the next question for a better bound: the one with the smallest limit, where the limit of a question
        about all ranks counts half. Return None if no question is left.
        """
        if self._top < self.lower:
            return None
        open_ = [(q, key) for q, key in self._refutations(self._top) if self.tried.get(key, 0) < MOST_TRIES]
        steps = [self._step(question, "refute", key) for question, key in open_]
        return min(steps, key=lambda step: step.limit // (1 + (step.key == "all")), default=None)

    def _refutations(self, top: int) -> list[tuple[Question, object]]:
        found: list[tuple[Question, object]] = []
        if self.ahead is None and self.value is not None:
            self.ahead = (top - self.lower) // 3
        bound = min(self.lower + (self.ahead or 0), top)
        engine = self._engine(bound)
        if engine is not None:
            found.append((Question(self.problem, bound, engine), "all"))
        if self.value is not None:
            for rank in self.ranks:
                engine = self._engine(top, (rank,))
                if engine is not None and self.alone.get(rank, top + 1) > top:
                    found.append((Question(self.problem, top, engine, ranks=(rank,)), rank))
        return found

    def _step(self, question: Question, role: str, key: object) -> Step:
        size = self._variables(question.bound, question.ranks)
        limit = (FIRST_LIMIT + LOADING * size) * 3 ** self.tried.get(key, 0)
        return Step(replace(question, limit=limit, seed=self.seed), limit, role, key, LOADING * size)

    def take(self, step: Step, answer: Answer) -> None:
        """Process an answer; `unknown` includes a reached limit. Given a schedule, the caller also calls `found`."""
        question = step.question
        if answer.verdict == "unsat":
            self.lower = max(self.lower, question.bound + 1)
            if step.key == "all" and self.ahead is not None:
                self.ahead = 2 * self.ahead + 1
            self.guess = max(self.guess, self.lower + (self.lower - question.bound) * 2)
        elif answer.verdict == "sat" and question.ranks:
            self.alone[question.ranks[0]] = question.bound
        elif answer.verdict == "unknown":
            self.tried[step.key] = self.tried.get(step.key, 0) + (DECLINED if answer.reason else 1)
            if step.key == "all":
                self.ahead = (self.ahead or 0) // 4
            elif question.ranks is None:
                self.step = max(1, self.step // 2)
                self.guess += self.guess // 4

    def found(self, value: int) -> None:
        """Record the objective of a better schedule."""
        self.value = value if self.value is None else min(self.value, value)
        self.step = 0

    def unrealised(self, bound: int) -> None:
        """Record that starts exist for the bound, but that no known order attains it."""
        self.reached = bound if self.reached is None else min(self.reached, bound)


def bound_schedule(problem: Problem, engine: str, lower: int, value: int | None, seed: int = 0) -> BoundSchedule:
    """Build the bound schedule of a problem. The horizon is the time that all operations take one after another."""
    low, high = within(problem, lower)
    slack = problem.operations * lower - int((high - low).sum())
    horizon = int((problem.length * problem.duration).sum() + (problem.length[problem.after] * problem.lag).sum())
    best = [max((b.value for b in rank_bounds(problem, r)), default=0) for r in range(problem.ranks)]
    ranks = sorted(range(problem.ranks), key=lambda r: (-best[r], -r))
    return BoundSchedule(problem, slack, engine, lower, value, horizon=horizon, ranks=tuple(ranks), seed=seed)
