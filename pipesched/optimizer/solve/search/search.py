"""The search from both sides until they meet: the best objective falls, the lower bound rises.

    found    ─ known orders, list scheduling, local search ─ an engine says sat at C ──────────> best
    refuted  ─ bounds ─ an engine says unsat at C, for all ranks or for some of them alone ────> lower

    best == lower: proved optimal.   Out of time: best, lower and the gap between them.

Heuristics run first; then two engines run in parallel, while heuristics continue. One engine is asked to find a
schedule, below the best by a step that shrinks when it does not answer. The other is asked to refute: first at the
bound, then just below the best, where often a single rank with its memory and its round trips cannot do its work, which
is decided far sooner than for all ranks together. The result does not depend on the machine (`lanes`), unless the time
limit ends the search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf

from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.longest_paths import within
from pipesched.optimizer.solve.bounds.lower_bound import lower_bound
from pipesched.optimizer.solve.engines.worker_pool import Pool
from pipesched.optimizer.solve.portfolio import LATE
from pipesched.optimizer.solve.portfolio import search as heuristic_orders
from pipesched.optimizer.solve.portfolio.candidates import Meter
from pipesched.optimizer.solve.portfolio.late_start import late
from pipesched.optimizer.solve.problem import Answer, Orders, Problem, Question
from pipesched.optimizer.solve.reductions import coarsened
from pipesched.optimizer.solve.search.bound_schedule import BoundSchedule, Step, bound_schedule
from pipesched.optimizer.solve.search.lanes import Found, Lanes, Slice
from pipesched.optimizer.solve.search.state import INTERRUPTED, Limits, Refutation, State

_FINE = 400_000  # variables of one encoding above which durations are rounded first
_COARSE = 20_000_000  # steps per rounding
_LOOK, _LOOK_MORE, _MOST_LOOK = 400_000, 700, 5_000_000  # steps before the engines start: base, per operation, at most
_A_SECOND, _THOROUGH = 300_000, 10_000_000  # steps for single ranks: per second of the limit, at most
_SLICE = 20_000  # steps of heuristics per slice, between events of the engines
_WEIGHT = 4  # heuristics do a quarter of an engine's work

Progress = Callable[[State], None]
Heuristics = Iterator[tuple[str, Orders] | None]


def search(
    problem: Problem,
    limits: Limits,
    known: Iterable[tuple[str, Orders]] = (),
    progress: Progress = lambda state: None,
    until: float | None = None,
    floor: int = 0,
    refutes: Callable[[int, int], bool] = lambda bound, steps: False,
) -> State:
    """Search for the best schedule and the best bound; KeyboardInterrupt ends the search with the state so far.

    The caller has made sure that some schedule exists (`least_cap.infeasible`). progress: called when either improves,
    and about every second. until: deadline (monotonic); None for the seconds of the limits from now. floor: lower bound
    in ticks. refutes: called with ticks and a limit of steps; returns True if certainly, without an engine, no schedule
    has at most these ticks.
    """
    started = time.monotonic()
    meter = Meter(started + limits.seconds if until is None else until)
    state = State(problem, lower_bound(problem), started, floor)
    heuristics = heuristic_orders(problem, _look(problem), meter, limits.seed) if limits.portfolio else iter(())
    try:
        progress(state)
        _offer_all(state, () if state.proved else known, meter, progress)
        _first_look(state, heuristics, meter, progress)
        _ask_ranks(state, refutes, int(min(_THOROUGH, limits.seconds * _A_SECOND)))
        if not state.proved and not meter.late:
            _on_a_coarse_grid(state, limits, meter, progress)
            _ask_engines(state, limits, _slices(heuristics, meter), meter, progress)
    except KeyboardInterrupt:
        state.stopped = INTERRUPTED
    if not state.proved and not state.stopped:
        over = f"time limit of {limits.seconds:g} s; how far that goes depends on the machine"
        state.stopped = over if meter.late else "nothing is left to try"
    return state


def _look(problem: Problem) -> int:
    """Return the number of steps of heuristics before the engines start."""
    return min(_LOOK + _LOOK_MORE * problem.operations, _MOST_LOOK)


def _ask_ranks(state: State, refutes: Callable[[int, int], bool], steps: int) -> None:
    """Record a refutation if checks of one rank at a time prove that the best schedule is optimal."""
    if state.value is not None and not state.proved and refutes(state.value - 1, steps):
        state.refuted = Refutation(state.value - 1, "ranks", None)


def _offer_all(state: State, known: Iterable[tuple[str, Orders]], meter: Meter, progress: Progress) -> None:
    for name, orders in known:
        _offer(state, name, orders, progress)
        if state.proved or (state.best is not None and meter.late):
            return


def _first_look(state: State, heuristics: Heuristics, meter: Meter, progress: Progress) -> None:
    while not state.proved and meter.spent < _look(state.problem) and not (state.best is not None and meter.late):
        found = next(heuristics, ("", None))
        if found is not None and found[1] is None:
            return
        if found is not None:
            _offer(state, *found, progress)


def _offer(state: State, name: str, orders: Orders, progress: Progress) -> None:
    if state.offer(name, orders):
        progress(state)


def _slices(heuristics: Heuristics, meter: Meter) -> Iterator[Slice]:
    """Cut the heuristics into slices."""
    before = meter.spent
    for found in heuristics:
        if found is not None or meter.spent - before >= _SLICE:
            yield max(1, meter.spent - before), None if found is None else Found(*found)
            before = meter.spent


def _on_a_coarse_grid(state: State, limits: Limits, meter: Meter, progress: Progress) -> None:
    """Search for orders with durations rounded to few ticks, and measure them with the true ones."""
    if state.value is None or limits.engine == "cpsat":
        return
    low, high = within(state.problem, state.value)
    variables = int((high - low).sum())
    if variables < _FINE:
        return
    steps = int(min(_COARSE, limits.seconds * 1e6 / 3))
    inner = replace(limits, portfolio=False, proof=None, steps=steps)
    finest = int(state.problem.duration.max()) // 2
    for ticks in sorted({variables // 150_000, variables // 600_000} & set(range(2, finest + 1)), reverse=True):
        _offer_rounded(state, ticks, inner, meter, progress)


def _offer_rounded(state: State, ticks: int, limits: Limits, meter: Meter, progress: Progress) -> None:
    """Offer the best order for durations rounded to multiples of `ticks`."""

    def offered(coarse: State) -> None:
        if coarse.best is not None:
            state.offer(f"{coarse.source}, durations rounded", coarse.best)
        state.doing = f"durations rounded to {state.problem.said(ticks)}: {coarse.doing}"
        progress(state)

    if not state.proved and state.best is not None:
        problem = coarsened(state.problem, ticks)
        coarse = search(problem, limits, [(state.source, state.best)], offered, meter.until)
        offered(coarse)
        if coarse.stopped == INTERRUPTED:
            raise KeyboardInterrupt


def _ask_engines(state: State, limits: Limits, heuristics: Iterator[Slice], meter: Meter, progress: Progress) -> None:
    """Ask engines until the bounds meet, time is up or no question is left."""
    questions = bound_schedule(state.problem, limits.engine, state.lower, state.value, limits.seed)
    running: dict[int, Step] = {}

    def tick() -> None:
        state.doing = ", ".join(map(_named, running.values()))
        progress(state)

    with Pool(limits.workers) as pool:
        lanes = Lanes(pool, heuristics, _WEIGHT)
        while not state.proved and lanes.now < (limits.steps or inf):
            _ask(lanes, questions, running)
            event = lanes.next(meter.until, tick)
            if event is None:
                return
            if isinstance(event, Found):
                if state.offer(event.name, event.orders) and state.value is not None:
                    questions.found(state.value)
            else:
                _take(state, questions, running.pop(event.ticket), event.answer)
            _drop_stale(lanes, questions, running)
            tick()


def _ask(lanes: Lanes, questions: BoundSchedule, running: dict[int, Step]) -> None:
    for role, next_step in (("find", questions.find), ("refute", questions.refute)):
        if lanes.free and all(step.role != role for step in running.values()):
            step = next_step()
            if step is not None and not any(_same(step, other) for other in running.values()):
                running[lanes.ask(step.question)] = step


def _same(one: Step, two: Step) -> bool:
    a, b = one.question, two.question
    return (a.bound, a.engine, a.ranks) == (b.bound, b.engine, b.ranks)


def _take(state: State, questions: BoundSchedule, step: Step, answer: Answer) -> None:
    question = step.question
    questions.take(step, answer)
    if answer.verdict == "unsat" and question.bound + 1 > state.lower:
        state.refuted = Refutation(question.bound, answer.engine, question.ranks)
    if answer.start is not None:
        orders = convert.by_start(state.problem, answer.start)
        later, runs = late(state.problem, orders, answer.start)
        if state.offer(answer.engine + LATE * (runs > 0), later):
            assert state.value is not None
            questions.found(state.value)
        if state.value is None or state.value > question.bound:
            questions.unrealised(question.bound)
    note = f"{answer.engine} cannot decide:  {answer.reason}"
    if answer.verdict == "unknown" and answer.reason and note not in state.notes:
        state.notes.append(note)


def _drop_stale(lanes: Lanes, questions: BoundSchedule, running: dict[int, Step]) -> None:
    """Cancel questions whose answer is known by now."""
    for ticket, step in list(running.items()):
        bound = step.question.bound
        if bound < questions.lower or (questions.value is not None and bound >= questions.value):
            lanes.cancel(ticket)
            del running[ticket]


def _named(step: Step) -> str:
    alone = f" on rank {step.question.ranks[0]}" if step.question.ranks else ""
    return f"{step.question.engine} at {step.question.problem.said(step.question.bound)}{alone}"


def write_refutation(state: State, path: str, seconds: float) -> str:
    """Write PATH.cnf and PATH.drat, a refutation of lower bound - 1 tick for other checkers. seconds: per question.

    Returns the result in one line, which begins with ``refutation`` exactly if the files were written. If one rank,
    with its memory and its round trips, shows the bound, only that rank is refuted, which is faster and shorter;
    otherwise all ranks are. CaDiCaL writes the proof.
    """
    value = state.problem.unit.below(state.problem.time(state.lower - 1), state.problem.time(state.lower), "")
    reason = f"no refutation of {value} in {seconds:g} s"
    if state.lower < 1:
        return "nothing is below 0: there is no refutation to write"
    with Pool(1) as pool:
        for question in _refutations(state, path):
            pool.submit(question)
            arrived = pool.wait(seconds)
            if arrived is not None and arrived[1].verdict == "unsat":
                alone = f" on rank {question.ranks[0]} alone" if question.ranks else ""
                return f"refutation of {value}{alone} in {path}.cnf and {path}.drat"
            if arrived is None:
                break
            reason = f"no refutation of {value}" + (f": {arrived[1].reason}" if arrived[1].reason else "")
    return f"{reason}; {path}.cnf and {path}.drat are not written"


def _refutations(state: State, path: str) -> Iterator[Question]:
    """Yield the question on the ranks that show the bound, then the question on all ranks, which follows from it."""
    refuted, bound = state.refuted, state.lower - 1
    by_engine = refuted is not None and refuted.bound == bound
    ranks = refuted.ranks if refuted is not None and by_engine else (state.bound.rank,)
    if ranks is not None:
        yield Question(state.problem, bound, "cadical", ranks=ranks, proof=path)
    yield Question(state.problem, bound, "cadical", proof=path)
