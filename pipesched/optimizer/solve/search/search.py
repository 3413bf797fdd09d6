"""The search from both sides until they meet: the best objective falls, the lower bound rises.

    found    ─ known orders, list scheduling, local search ─ an engine says sat at C ──────────> best
    refuted  ─ bounds ─ an engine says unsat at C, for all ranks or for some ranks alone ────> lower

    best == lower: proved optimal.   Out of time: best, lower and the gap between them.

Heuristics run first; then two engines run in parallel while the heuristics continue. One engine is asked for a schedule
that improves on the best one by a step, which shrinks if there is no answer. The other engine is asked to refute
objectives: first the bound, then the objective just below the best. The latter is often refuted by a single rank that,
with its memory and its round trips, cannot do its work, which takes far less time than a question about all ranks. The
result does not depend on the machine (`lanes`, `meter`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from pipesched.optimizer.solve.bounds.longest_paths import within
from pipesched.optimizer.solve.bounds.lower_bound import cost, lower_bound
from pipesched.optimizer.solve.candidates import Pool
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.optimizer.solve.problem import Orders, Problem
from pipesched.optimizer.solve.reductions import coarsened, grid
from pipesched.optimizer.solve.search.state import INTERRUPTED, NO_BOUND, Limits, Refutation, State

_FINE = 400_000  # variables of one encoding above which durations are rounded first
_COARSE, _DOWN = 20_000_000, 0.7  # most steps per rounding; part of those left for durations rounded down
_LOOK, _LOOK_MORE, _MOST_LOOK = 400_000, 700, 5_000_000  # steps before the engines start: base, per operation, at most
_THOROUGH, _QUESTION, _RANKS = 5_000_000, 2_500_000, 3  # most steps for single ranks, of which the meter counts a part
_WALKED, _WALK = 0.5, 1_500  # most of the time for heuristics before more questions: a part; steps per operation
_EXACT = 2_000  # a step of a bound by single ranks is at least this part of the objective
_CHEAP = 300_000  # most steps for bounds that are derived before the known orders are read
_UNROLLED = 0.35  # part of the time for schedules of few microbatches, unrolled
_WINDOWS = 0.25  # part of the time for heuristics if durations are too long for clauses

Progress = Callable[[State], None]
Heuristics = Iterator[tuple[str, Orders] | None]


def search(
    problem: Problem,
    limits: Limits,
    known: Iterable[tuple[str, Orders]] = (),
    progress: Progress = lambda state: None,
    meter: Meter | None = None,
    floor: int = 0,
    refutes: Callable[[int, int], tuple[bool, int]] = lambda bound, steps: (False, 0),
) -> State:
    """Search for the best schedule and the best bound; KeyboardInterrupt ends the search with the state so far.

    The caller guarantees that some schedule exists (`least_cap.infeasible`). progress: function that is called when the
    best schedule or the bound improves, and about every second. meter: counts steps up to its limit; None for a new
    meter with the limit in `limits`. floor: a known lower bound, in ticks. refutes: function of a number of ticks
    and a limit of steps; returns (True if it proves without an engine that no schedule has an objective of at most
    these ticks, steps taken).
    """
    meter = meter or Meter(limits.seconds * SECOND)
    state = State(problem, NO_BOUND, floor)
    pool = Pool(problem, meter)
    heuristics = _heuristics(pool, limits.seed) if limits.portfolio else iter(())
    try:
        if cost(problem) <= _CHEAP:
            _bound(state, meter)
        _offer_all(state, pool, known, progress)
        if state.bound is NO_BOUND:
            _bound(state, meter)
        progress(state)
        _walk(state, heuristics, meter, min(_look(problem), meter.left), progress, first=True)
        if long := _variables(state) >= _FINE:
            _ask_ranks(state, refutes, meter, _QUESTION, once=True)
        _walk(state, heuristics, meter, min(_WALKED * meter.left, _WALK * problem.operations), progress)
        _ask_ranks(state, refutes, meter, _QUESTION if long else _THOROUGH)
        if not state.proved and not meter.late:
            _unroll(state, pool, limits, progress)
            _on_a_coarse_grid(state, pool, heuristics, limits, progress)
            from pipesched.optimizer.solve.search.questions import ask_engines

            ask_engines(state, limits, pool, heuristics, progress)
    except KeyboardInterrupt:
        state.stopped = INTERRUPTED
    if not state.proved and not state.stopped:
        state.stopped = limits.reached if meter.late else "nothing is left to try"
    return state


def _bound(state: State, meter: Meter) -> None:
    meter.spend(cost(state.problem))
    state.bound = lower_bound(state.problem)


def _heuristics(pool: Pool, seed: int) -> Heuristics:
    """Yield better and better orders from heuristics, which are imported on first use, and None in between."""
    from pipesched.optimizer.solve.portfolio import search

    yield from search(pool, int(min(_look(pool.problem), pool.meter.left)), seed)


def _look(problem: Problem) -> int:
    """Return the number of steps that heuristics take before the engines start."""
    return min(_LOOK + _LOOK_MORE * problem.operations, _MOST_LOOK)


def _ask_ranks(
    state: State, refutes: Callable[[int, int], tuple[bool, int]], meter: Meter, most: int, *, once: bool = False
) -> None:
    """Raise the bound by checks of one rank at a time: up to the best schedule, or as far as the checks refute
    objectives.

    most: the step limit of the first question: is the best schedule optimal? once: whether to ask only the
    first question.
    """
    steps = int(min(most, _RANKS * meter.left))
    if state.value is None or state.proved or not steps:
        return
    low, high = state.lower - 1, state.value - 1
    bound = high
    while bound > low and not meter.late:
        refuted, spent = refutes(bound, min(steps, _QUESTION) if bound < high else steps)
        meter.spend(spent // _RANKS)
        if refuted:
            state.refute(Refutation(bound, "ranks", None))
            low = bound
        else:
            high = bound
        bound = (low + high) // 2
        if once or high - low <= state.value // _EXACT:
            return


def _offer_all(state: State, pool: Pool, known: Iterable[tuple[str, Orders]], progress: Progress) -> None:
    for name, orders in () if state.proved else known:
        pool.offer(name, orders)
        _offer(state, name, orders, progress)
        if state.proved:
            return


def _walk(
    state: State, heuristics: Heuristics, meter: Meter, steps: float, progress: Progress, *, first: bool = False
) -> None:
    """Run the heuristics for some steps. first: whether to continue until they find a first order."""
    enough = meter.spent + steps
    while not state.proved and (meter.spent < enough or (first and state.best is None)):
        found = next(heuristics, ("", None))
        if found is not None and found[1] is None:
            return
        if found is not None:
            _offer(state, *found, progress)


def _unroll(state: State, pool: Pool, limits: Limits, progress: Progress) -> None:
    """Unroll schedules of few microbatches, if an engine finds some that improve on the best schedule."""
    from pipesched.optimizer.solve.search.unrolled import unrolled

    meter = pool.meter
    enough = meter.spent + _UNROLLED * meter.left
    if state.best is None:
        return
    for name, found in unrolled(pool, state.lower, "z3" if limits.engine == "z3" else "cadical", limits.seed):
        if found is not None and pool.offer(name, found):
            _offer(state, name, found, progress)
        if state.proved or meter.spent >= enough:
            return


def _offer(state: State, name: str, orders: Orders, progress: Progress) -> None:
    if state.offer(name, orders):
        progress(state)


def _variables(state: State) -> int:
    """Return the number of variables in an encoding for the best schedule; 0 if none is known or it is optimal."""
    if state.value is None or state.proved:
        return 0
    low, high = within(state.problem, state.value)
    return int((high - low).sum())


def _on_a_coarse_grid(state: State, pool: Pool, heuristics: Heuristics, limits: Limits, progress: Progress) -> None:
    """If durations are too long for clauses, continue the heuristics for a while; then search for orders with durations
    rounded to few ticks, and measure these orders with the true durations.
    """
    variables = _variables(state)
    if variables < _FINE:
        return
    _walk(state, heuristics, pool.meter, _WINDOWS * pool.meter.left, progress)
    inner = replace(limits, portfolio=False)
    if (coarse := grid(state.problem)) is not None:
        _offer_rounded(state, pool, coarse, inner, progress, down=True)
    finest = int(state.problem.duration.max()) // 2
    for ticks in sorted({variables // 150_000, variables // 600_000} & set(range(2, finest + 1)), reverse=True):
        _offer_rounded(state, pool, ticks, inner, progress)


def _offer_rounded(
    state: State, pool: Pool, ticks: int, limits: Limits, progress: Progress, *, down: bool = False
) -> None:
    """Offer the best order for durations rounded to multiples of `ticks`; if rounded down, raise the bound."""

    def offered(coarse: State) -> None:
        if coarse.best is not None and coarse.best is not state.best:
            name = f"{coarse.source}, durations rounded"
            pool.offer(name, coarse.best)
            state.offer(name, coarse.best)
        state.doing = f"durations rounded to {state.problem.said(ticks)}: {coarse.doing}"
        progress(state)

    if not state.proved and state.best is not None:
        problem, meter = (
            coarsened(state.problem, ticks, down=down),
            Meter(min(_COARSE, pool.meter.left * (_DOWN if down else 0.25))),
        )
        coarse = search(problem, limits, [(state.source, state.best)], offered, meter)
        pool.meter.spend(meter.spent)
        offered(coarse)
        if down and (found := coarse.refuted) is not None and found.grid == 1:
            state.refute(replace(found, bound=ticks * (found.bound + 1) - 1, grid=ticks))
        if coarse.stopped == INTERRUPTED:
            raise KeyboardInterrupt
