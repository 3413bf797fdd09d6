"""Asks engines: one looks for a better schedule, another refutes objectives, and heuristics run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.candidates import Pool as Candidates
from pipesched.optimizer.solve.engines.worker_pool import Pool
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.portfolio import LATE
from pipesched.optimizer.solve.portfolio.late_start import late
from pipesched.optimizer.solve.problem import Answer, Orders
from pipesched.optimizer.solve.search.bound_schedule import BoundSchedule, Step, bound_schedule
from pipesched.optimizer.solve.search.lanes import Found, Lanes, Slice
from pipesched.optimizer.solve.search.state import Limits, Refutation, State

_SLICE = 20_000  # steps of heuristics per slice, between events of the engines
_WEIGHT = 1  # heuristics do as much work as an engine
_WORKER = 300_000  # steps to start a worker

Progress = Callable[[State], None]
Heuristics = Iterator[tuple[str, Orders] | None]


def ask_engines(state: State, limits: Limits, pool: Candidates, heuristics: Heuristics, progress: Progress) -> None:
    """Ask engines until the bounds meet, time is up, or no question is left."""
    questions = bound_schedule(state.problem, limits.engine, state.lower, state.value, limits.seed)
    running: dict[int, Step] = {}
    pool.meter.spend(_WORKER * limits.workers)

    def tick() -> None:
        state.doing = ", ".join(map(_named, running.values()))
        progress(state)

    with Pool(limits.workers) as workers:
        lanes = Lanes(workers, pool.meter, _slices(heuristics, pool.meter), _WEIGHT)
        while not state.proved:
            _ask(lanes, questions, running)
            event = lanes.next(tick)
            if event is None:
                return
            if isinstance(event, Found):
                if state.offer(event.name, event.orders) and state.value is not None:
                    questions.found(state.value)
            else:
                _take(state, questions, pool, running.pop(event.ticket), event.answer)
            _drop_stale(lanes, questions, running)
            tick()


def _slices(heuristics: Heuristics, meter: Meter) -> Iterator[Slice]:
    """Cut the heuristics into slices."""
    before = meter.spent
    for found in heuristics:
        if found is not None or meter.spent - before >= _SLICE:
            yield max(1, meter.spent - before), None if found is None else Found(*found)
            before = meter.spent


def _ask(lanes: Lanes, questions: BoundSchedule, running: dict[int, Step]) -> None:
    for role, next_step in (("find", questions.find), ("refute", questions.refute)):
        if lanes.free and all(step.role != role for step in running.values()):
            step = next_step()
            if step is None or step.loading > lanes.meter.left / (lanes.pool.size + 1):
                continue
            if not any(_same(step, other) for other in running.values()):
                running[lanes.ask(step.question)] = step


def _same(one: Step, two: Step) -> bool:
    a, b = one.question, two.question
    return (a.bound, a.engine, a.ranks) == (b.bound, b.engine, b.ranks)


def _take(state: State, questions: BoundSchedule, pool: Candidates, step: Step, answer: Answer) -> None:
    question = step.question
    questions.take(step, answer)
    if answer.verdict == "unsat":
        state.refute(Refutation(question.bound, answer.engine, question.ranks))
    if answer.start is not None:
        orders = convert.by_start(state.problem, answer.start)
        later, runs = late(state.problem, orders, answer.start)
        name = answer.engine + LATE * (runs > 0)
        pool.offer(name, later)
        if state.offer(name, later):
            assert state.value is not None
            questions.found(state.value)
        if state.value is None or state.value > question.bound:
            questions.unrealised(question.bound)
    note = f"{answer.engine} cannot decide: {answer.reason}"
    if answer.verdict == "unknown" and answer.reason and note not in state.notes:
        state.notes.append(note)


def _drop_stale(lanes: Lanes, questions: BoundSchedule, running: dict[int, Step]) -> None:
    """Cancel the questions whose answers are already known."""
    for ticket, step in list(running.items()):
        bound = step.question.bound
        if bound < questions.lower or (questions.value is not None and bound >= questions.value):
            lanes.cancel(ticket)
            lanes.meter.spend(_WORKER)
            del running[ticket]


def _named(step: Step) -> str:
    alone = f" on rank {step.question.ranks[0]}" if step.question.ranks else ""
    return f"{step.question.engine} at {step.question.problem.said(step.question.bound)}{alone}"
