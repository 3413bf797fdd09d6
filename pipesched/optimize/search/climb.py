"""From both sides until they meet: what is reached falls, what is out of reach rises.

    found    ─ known orders, list scheduling, local search ─ an engine says sat at C ──────────> best
    refuted  ─ bounds ─ an engine says unsat at C, for all ranks or for some of them alone ────> lower

    best == lower: proved optimal.   Out of time: best, lower and the gap between them.

Two engines run side by side. One is asked to find, below the best by a step that shrinks when it does not answer;
the other to refute, first at the bound, then just below the best, where a single rank with its memory and its round
trips often cannot do what is asked, and says so far sooner than all ranks together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pipesched.model.numbers import shown
from pipesched.optimize import convert
from pipesched.optimize.bounds.lower import lower_bound
from pipesched.optimize.bounds.windows import paths
from pipesched.optimize.engines.pool import Pool
from pipesched.optimize.problem import Orders, Problem
from pipesched.optimize.question import Answer
from pipesched.optimize.search.ladder import Ladder, Step, ladder
from pipesched.optimize.search.state import INTERRUPTED, Limits, Refutation, State

_FINE = 400_000  # variables of one encoding from which durations are rounded first
_COARSE = 20.0  # seconds for each rounding
_ENGINES_END = 50_000  # operations: the clauses of more do not fit the memory of a small machine
_LOOK, _MOST_LOOK = 0.4, 5.0  # seconds of heuristics before the engines start; more for large problems


def search(
    problem: Problem,
    limits: Limits,
    known: Iterable[tuple[str, Orders]] = (),
    progress: Callable[[State], None] = lambda state: None,
    pool: Pool | None = None,
) -> State:
    """The best schedule and the best bound that can be had in the time; `progress` is called when either moves, and
    about every second. KeyboardInterrupt ends the search with what it has.

    The caller has made sure that some schedule exists (`least_cap.infeasible`).
    """
    state = State(problem, lower_bound(problem), time.monotonic())
    try:
        progress(state)
        _offer_all(state, _orders(state, limits, known), limits, progress)
        if not state.proved and state.seconds < limits.seconds:
            _on_a_coarse_grid(state, limits, progress)
            _climb(state, limits, progress)
    except KeyboardInterrupt:
        state.stopped = INTERRUPTED
    if not state.proved and not state.stopped:
        state.stopped = (
            f"time limit of {limits.seconds:g} s" if state.seconds >= limits.seconds else "no engine can go on"
        )
    return state


def _orders(state: State, limits: Limits, known: Iterable[tuple[str, Orders]]) -> Iterator[tuple[str, Orders]]:
    yield from known
    if limits.portfolio:
        from pipesched.optimize.portfolio import orders

        yield from orders(state.problem, _look(state, limits))


def _look(state: State, limits: Limits) -> float:
    """Seconds for heuristics before the engines start; half of all where the engines cannot."""
    if state.problem.operations > _ENGINES_END:
        return limits.seconds / 2
    return min(_LOOK + state.problem.operations / 1500, _MOST_LOOK, limits.seconds / 4)


def _offer_all(
    state: State, candidates: Iterable[tuple[str, Orders]], limits: Limits, progress: Callable[[State], None]
) -> None:
    for name, orders in candidates:
        if state.offer(name, orders):
            progress(state)
        if state.proved or state.seconds >= limits.seconds:
            return


def _on_a_coarse_grid(state: State, limits: Limits, progress: Callable[[State], None]) -> None:
    """Orders for rounded durations, which are few ticks, evaluated at the true ones."""
    if state.value is None or limits.engine == "cpsat":
        return
    found = paths(state.problem)
    slack = int((found.head + found.tail + state.problem.duration[state.problem.sequence]).sum())
    variables = state.problem.operations * state.value - slack
    if variables < _FINE:
        return
    seconds = min(_COARSE, (limits.seconds - state.seconds) / 3)
    finest = int(state.problem.duration.max()) // 2
    for ticks in sorted({variables // 150_000, variables // 600_000} & set(range(2, finest + 1)), reverse=True):
        _offer_rounded(state, ticks, replace(limits, seconds=seconds, portfolio=False, proof=None), progress)


def _offer_rounded(state: State, ticks: int, limits: Limits, progress: Callable[[State], None]) -> None:
    """What the search finds for durations in so many ticks."""
    from pipesched.optimize.portfolio.coarse import coarsened

    def offered(coarse: State) -> None:
        if coarse.best is not None:
            state.offer(f"{coarse.source}, durations rounded", coarse.best)
        state.doing = f"durations rounded to {shown(state.problem.time(ticks))}: {coarse.doing}"
        progress(state)

    if not state.proved and state.best is not None:
        coarse = search(coarsened(state.problem, ticks), limits, [(state.source, state.best)], offered)
        if coarse.stopped == INTERRUPTED:
            raise KeyboardInterrupt


@dataclass(eq=False)
class Running:
    """A question that an engine works on."""

    step: Step
    role: str
    since: float


def _climb(state: State, limits: Limits, progress: Callable[[State], None]) -> None:
    """Ask until the bounds meet, time is up or nothing is left to ask."""
    rungs = ladder(state.problem, paths(state.problem), limits.engine, state.lower, state.value)
    running: dict[int, Running] = {}
    with Pool(limits.workers) as pool:
        while not state.proved and state.seconds < limits.seconds:
            _ask(pool, rungs, running)
            if not running:
                return
            arrived = pool.wait(min(0.5, max(0.01, limits.seconds - state.seconds)))
            if arrived is not None:
                job = running.pop(arrived[0])
                _take(state, rungs, job.step, arrived[1])
                _drop_stale(pool, rungs, running)
            _drop_late(pool, rungs, running)
            state.doing = ", ".join(_named(job.step) for job in running.values())
            progress(state)


def _ask(pool: Pool, rungs: Ladder, running: dict[int, Running]) -> None:
    for role in ("find", "refute"):
        if pool.idle and all(job.role != role for job in running.values()):
            step = rungs.find() if role == "find" else rungs.refute()
            if step is not None and all(_same(step, job.step) is False for job in running.values()):
                running[pool.submit(step.question)] = Running(step, role, time.monotonic())


def _same(one: Step, two: Step) -> bool:
    a, b = one.question, two.question
    return (a.bound, a.engine, a.ranks) == (b.bound, b.engine, b.ranks)


def _take(state: State, rungs: Ladder, step: Step, answer: Answer) -> None:
    question = step.question
    rungs.told(step, answer)
    if answer.verdict == "unsat" and question.bound + 1 > state.lower:
        state.refuted = Refutation(question.bound, answer.engine, question.ranks)
    if answer.start is not None and state.offer(answer.engine, convert.by_start(state.problem, answer.start)):
        assert state.value is not None
        rungs.found(state.value)
    note = f"{answer.engine} does not know: {answer.reason}"
    if answer.verdict == "unknown" and answer.reason and note not in state.notes:
        state.notes.append(note)


def _drop_stale(pool: Pool, rungs: Ladder, running: dict[int, Running]) -> None:
    """Questions whose answer is known by now."""
    for ticket, job in list(running.items()):
        bound = job.step.question.bound
        if bound < rungs.lower or (rungs.value is not None and bound >= rungs.value):
            pool.cancel(ticket)
            del running[ticket]


def _drop_late(pool: Pool, rungs: Ladder, running: dict[int, Running]) -> None:
    """Questions that have had their time; the last one standing may go on."""
    for ticket, job in list(running.items()):
        if time.monotonic() - job.since > job.step.limit and not _last(rungs, job):
            pool.cancel(ticket)
            del running[ticket]
            rungs.told(job.step, Answer("unknown"))


def _last(rungs: Ladder, job: Running) -> bool:
    """Whether the question decides all: all ranks, just below the best."""
    return job.role == "find" and rungs.step == 1


def _named(step: Step) -> str:
    alone = f" on rank {step.question.ranks[0]}" if step.question.ranks else ""
    return f"{step.question.engine} at {step.question.problem.time(step.question.bound)}{alone}"
