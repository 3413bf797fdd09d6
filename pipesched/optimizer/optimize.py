"""Optimization of a schedule: turns a request into an answer that anyone can check.

    Request ──> target ──> Problem ──> search or seam ──> orders ──> .ps text ──> load, examine ──> Optimum
                  │          │                                          │            │ judge: the certificate
                  │          └─ infeasible: a minimal reason            └─ the printed text is what is verified
                  └─ a schedule's placement, sizes and kind of backward, or one from scratch

The optimizer is never trusted: its answer is printed, read back, and must pass the same checks as a user's file. The
verdict comes from the checker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING

from pipesched.common.library import sized
from pipesched.diagnostics import fail
from pipesched.library.inputs import library
from pipesched.model.numbers import ranges
from pipesched.model.schedule import Schedule
from pipesched.optimizer.answer_of import answer_of
from pipesched.optimizer.baselines import Known, relevant
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_report import Optimum
from pipesched.optimizer.optimize_request import Request, Target, target_of
from pipesched.optimizer.placements import best
from pipesched.optimizer.proof.meetings import meetings
from pipesched.optimizer.proof.problem import problem as whole
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.sameness import same_order
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.least_cap import infeasible
from pipesched.optimizer.solve.instance import ANY, BOUNDED, MAX_OPS, Instance
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.optimizer.solve.problem import Problem
from pipesched.optimizer.solve.search.search import search
from pipesched.optimizer.solve.search.state import INTERRUPTED, State

if TYPE_CHECKING:
    from pipesched.optimizer.solve.repeat.periodic import Periodic

_LEFT = 500_000  # steps left after an interrupt
_STARTING, _ANSWER, _PRINTING, _FRAME = 800_000, 100_000, 30, 2
"""Steps for startup; least steps to build an answer, steps per operation, and per operation and frame (for the span).
"""
_FILE, _READING = 15_000, 3  # steps to read a schedule of the library, and for each of its operations
_LIBRARY = 2 * SECOND  # steps for the library, even with a shorter limit
_SHOWN, _COMPARED = 3, 200_000  # schedules that are read only for comparison: their number, and their operations
_SEARCH, _REPEATED = 0.76, 0.6  # parts of the time for the search, and for a schedule of every m before it


def clock(request: Request) -> Meter:
    """Return the meter of a command: the limit in steps, less the steps that startup takes."""
    return Meter(request.limits.seconds * SECOND - _STARTING)


def optimize(
    request: Request, progress: Callable[[State], None] = lambda state: None, meter: Meter | None = None
) -> Optimum:
    """Find the best schedule, with a proof if possible; a schedule found under a cap in bytes is within the cap.

    meter: counts steps up to a limit that several requests may share; None for the request's own time limit.

    Raises:
        PipeschedError: PS2xx: the options are invalid. PS503, PS504: a cap in bytes is too low. PS702: the schedule
            cannot be optimized. Also every fault in the schedule's file.
    """
    meter = meter or clock(request)

    def ask(asked: Request, part: Meter) -> Optimum:
        return optimize(asked, progress, part)

    if request.lost is not None:
        from pipesched.optimizer.decisions.lost import without

        return without(request, ask, meter)
    if request.placement == ANY:
        return best(request, ask, meter)
    if request.decide is not None:
        from pipesched.optimizer.decisions.request import decided

        return decided(request, progress, meter)
    if request.overlap or request.recompute:
        from pipesched.optimizer.slots.answer import in_slots

        return in_slots(request, lambda asked, part: optimize(asked, meter=part), meter)
    if request.source is not None:
        from pipesched.optimizer.own.answer import in_own_order, only_by_order

        if (loaded := only_by_order(request)) is not None:
            return in_own_order(request, loaded, meter)
    if request.workload.cap is None or request.workload.model is None:
        return _optimized(request, progress, meter)
    from pipesched.optimizer.within_bytes import within_bytes

    return within_bytes(request, lambda asked, part: _optimized(asked, progress, part), meter)


def _optimized(request: Request, progress: Callable[[State], None], meter: Meter) -> Optimum:
    """Optimize once; caps in bytes are replaced by caps on activations. meter: counts steps up to the limit."""
    _require_engines(request)
    target = target_of(request)
    if request.all_m and target.instance.placement.routes > 1:
        raise fail(
            OptimizerCode.NOT_OPTIMIZED,
            "two routes share the microbatches, so no part of an order can repeat for every m",
        )
    _require_covered(target.instance, every=request.all_m)
    problem = target.instance.problem()
    if target.room is not None:
        target.room.require(problem)
    reason = infeasible(problem) or target.instance.lacking
    if reason:
        return Optimum(target.instance, impossible=True, reason=reason)
    frames = problem.ranks if problem.objective == "span" else 0
    meter.spend(_ANSWER + (_PRINTING + _FRAME * frames) * problem.operations)
    repeated, interrupted = _repeated(request, target, progress, meter)
    if repeated is not None:
        m = repeated.reachable(target.instance.placement.microbatches)
        target = replace(target, instance=target.instance.at(m), sizes={**target.sizes, "m": m})
        problem = target.instance.problem()
    known: list[Known] = []
    played = _baselines(target, problem, known, meter)
    state = repeated.state_at(problem) if repeated else _searched(request, target, problem, played, progress, meter)
    while len(known) < _SHOWN and (len(known) + 1) * problem.operations <= _COMPARED and next(played, None):
        pass
    if interrupted and not state.proved:
        state.stopped = INTERRUPTED
    if target.room is not None:
        state.notes.insert(0, target.room.note)
    return answer_of(request, target, state, known, repeated, meter)


def _require_engines(request: Request) -> None:
    """Raise PipeschedError, PS820, if the package that writes proofs is not installed."""
    if request.certify or request.limits.proof:
        from pipesched.optimizer.solve.engines import lrat

        lrat.require()


def _require_covered(instance: Instance, *, every: bool) -> None:
    """Raise PipeschedError, PS702, if stages are frozen in a way that no bound covers."""
    frozen = instance.placement.frozen
    if (why := instance.not_covered) or (frozen and every):
        stages = f"stage{'s' if len(frozen) > 1 else ''} {ranges(frozen)} frozen"
        stages = "no backward" if instance.forward_only else stages
        said = f"with {stages}, the optimizer has no lower bound for {why or 'every m'}"
        raise fail(OptimizerCode.NOT_OPTIMIZED, said, help="leave out the cap, the objective, --backward or --all-m")


def _repeated(
    request: Request, target: Target, progress: Callable[[State], None], meter: Meter
) -> tuple[Periodic | None, bool]:
    """Return the schedule for every m, or None; and True if the search for it was interrupted.

    An interrupt leaves only a little time for the rest.
    """
    if not request.all_m:
        return None, False
    from pipesched.optimizer.solve.repeat.periodic import periodic

    try:
        with meter.part(_REPEATED) as part:
            return periodic(target.instance, request.limits, progress, part), False
    except KeyboardInterrupt:
        meter.limit = meter.spent + _LEFT
        return None, True


def _baselines(target: Target, problem: Problem, known: list[Known], meter: Meter) -> Iterator[Known]:
    """Yield the user's schedule and the library's schedules with the same placement and number of microbatches, without
    duplicate orders, and append them to `known`. Large schedules are read only while the meter has steps left.
    """
    seen, stages = set[str](), target.instance.placement.stages
    orders: list[Schedule] = []
    sizes = {name: target.sizes[name] for name in ("p", "v", "m") if name in target.sizes}
    if target.given is not None:
        seen.add(name := PurePath(target.given.source).stem)
        known.append(Known.of(name, target.given.schedule, target.instance, problem))
        yield known[-1]
    spent, each = 0, _FILE + _READING * problem.operations
    for name in relevant(target.instance.placement):
        if name not in seen and spent + each <= max(meter.left, _LIBRARY):
            spent += each
            meter.spend(each)
            schedule = sized(library(name), sizes, placed=lambda x: x.stages == stages, max_ops=MAX_OPS)
            if schedule is None or not BOUNDED.takes(schedule):
                continue
            if not any(same_order(schedule, other) for other in orders):
                orders.append(schedule)
                known.append(Known.of(name, schedule, target.instance, problem))
                yield known[-1]


def _searched(
    request: Request,
    target: Target,
    problem: Problem,
    known: Iterator[Known],
    progress: Callable[[State], None],
    meter: Meter,
) -> State:
    """Search for a schedule for one m; add a note if a schedule for every m was requested."""
    limits = request.limits
    seeds = ((name, convert.to_orders(problem, schedule)) for name, schedule in request.seeds)
    played = ((k.name, k.apart) for k in known if limits.portfolio and k.fits)
    candidates = ((name, orders) for name, orders in chain(seeds, played) if orders is not None)
    found = whole(target.instance)
    scale = target.instance.costs.ticks(target.instance.placement.stages).scale / problem.scale

    def alone(bound: int, steps: int) -> tuple[bool, int]:
        left = [steps]
        return too_busy(found, int(bound * scale), steps, left) is not None, steps - left[0]

    floor = _formula(target.instance, problem)
    with meter.part(_SEARCH) as part:
        state = search(problem, limits, candidates, progress, part, floor=floor, refutes=alone)
    if request.all_m:
        state.notes.append(f"no repeating part was found, so this answer holds only for m = {target.sizes['m']}")
    return state


def _formula(instance: Instance, problem: Problem) -> int:
    """Return the lower bound from the checker's formula in `meetings`, in ticks."""
    value, _ = meetings(whole(instance))
    return int(value * problem.scale / instance.costs.ticks(instance.placement.stages).scale)
