"""Optimization of a schedule: from a request to an answer that anyone can check.

    Request ──> target ──> Problem ──> search or seam ──> orders ──> .ps text ──> load, examine ──> Optimum
                  │          │                                          │            │ judge: the certificate
                  │          └─ infeasible: a minimal reason            └─ the printed text is what is verified
                  └─ a schedule's placement, sizes and kind of backward, or one from scratch

The optimizer is never trusted: its answer is printed, read back, and must pass the same checks as a user's file. The
verdict comes from the checker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from operator import add
from pathlib import PurePath
from typing import TYPE_CHECKING

from pipesched.common.library import sized
from pipesched.compile import Options, examine
from pipesched.diagnostics import PipeschedError, fail
from pipesched.library.inputs import library
from pipesched.model.numbers import percent, plain, ranges, shown
from pipesched.model.schedule import Schedule
from pipesched.optimizer.baselines import Known, relevant
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_certify import SECONDS, Made, certified, confirmed
from pipesched.optimizer.optimize_report import Frontier, Optimum, bound_by, notes
from pipesched.optimizer.optimize_request import Request, Target, target_of
from pipesched.optimizer.printed import printed, read_back
from pipesched.optimizer.proof.every import apart
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.proof.meetings import meetings
from pipesched.optimizer.proof.problem import problem as whole
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.sameness import same_order
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.least_cap import infeasible
from pipesched.optimizer.solve.certificate import certificate
from pipesched.optimizer.solve.instance import ANY, BOUNDED, MAX_OPS, Instance
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.optimizer.solve.problem import Orders, Problem
from pipesched.optimizer.solve.search.search import search
from pipesched.optimizer.solve.search.state import INTERRUPTED, Refutation, State
from pipesched.optimizer.verdict import FOUND, Verdict
from pipesched.report.report import Report

if TYPE_CHECKING:
    from pipesched.optimizer.solve.repeat.periodic import Periodic

_LEFT = 500_000  # steps left after an interrupt
_STARTING, _PRINTING = 800_000, 8  # steps to start, and per operation to print the answer and to verify it
_FILE, _READING = 15_000, 3  # steps to read a schedule of the library, and for each of its operations
_LIBRARY = 2 * SECOND  # steps for the library even if the limit is shorter
_SHOWN, _COMPARED = 3, 200_000  # schedules that are read only to be compared: how many, and their operations
_SEARCH, _PROOF = 0.8, 0.3  # parts of the time for the search, and at least for a proof of what an engine refuted
_PROOF_OF_EACH = 0.75  # part of that time for the largest refuted objective; if it fails, a smaller one is tried


def optimize(request: Request, progress: Callable[[State], None] = lambda state: None) -> Optimum:
    """Find the best schedule, and prove as far as possible that it is; under a cap in bytes, one that keeps the cap.

    Raises:
        PipeschedError: PS2xx, invalid options; PS503, PS504, a cap in bytes that is too low; PS702, a schedule that
            cannot be optimized; every fault of the schedule's file.
    """
    if request.placement == ANY:
        from pipesched.optimizer.front import best

        return best(request, progress)
    if request.decide is not None:
        from pipesched.optimizer.decisions.request import decided

        return decided(request, progress)
    if request.overlap or request.recompute:
        from pipesched.optimizer.slots.answer import in_slots

        return in_slots(request, progress)
    meter = Meter(request.limits.seconds * SECOND - _STARTING)
    if request.workload.cap is None or request.workload.model is None:
        return _optimized(request, progress, meter)
    if request.fused:
        return _tried(request, progress, meter)
    with suppress(PipeschedError):  # gradients that I stores for W are ignored at first: the answer may fit anyway
        hoped = _tried(replace(request, until_w=False), progress, meter)
        if hoped.value is not None:
            safe = None
            with suppress(PipeschedError):
                safe = _tried(request, progress, meter)
            return hoped if safe is None or safe.value is None or hoped.value < safe.value else safe
    return _tried(request, progress, meter)


def _tried(request: Request, progress: Callable[[State], None], meter: Meter) -> Optimum:
    """Optimize until an answer fits the cap in bytes; in each attempt, the previous excess is set aside for
    messages. Each attempt has half of the time that is left.
    """

    def attempt() -> Optimum:
        part = meter.part(0.5)
        answer = _optimized(request, progress, part)
        meter.spend(part.spent)
        return answer

    from pipesched.optimizer import optimize_bytes

    found = attempt()
    for _ in range(_TRIES):
        if found.analysis is None:
            return found
        checked, model = _in_bytes(found, request), request.workload.model
        assert model is not None
        if not any(over := _over(checked)):
            return _within(found, checked, request)
        spent = request.aside or optimize_bytes.set_aside(model, found.instance.placement)
        request = replace(request, aside=tuple(map(add, spent, over)))
        found = attempt()
    raise fail(
        OptimizerCode.NO_ROOM,
        f"{_TRIES} orders within the caps held more messages than fit in bytes",
        help=_MORE,
    )


_TRIES = 4
_MORE = "a lower cap of activations, as `--mem-cap 4`, then `verify --model` with the cap in bytes"


def _over(checked: Report) -> list[int]:
    """Return the bytes over the cap, by rank."""
    from pipesched.planning.footprint_report import InBytes

    used = checked.parts.of(InBytes)
    assert used is not None and used.cap is not None
    return [max(0, total - int(cap)) for total, cap in zip(used.total, used.cap, strict=True)]


def _within(found: Optimum, checked: Report, request: Request) -> Optimum:
    """Attach the byte counts to the answer; raise PipeschedError if it has any other error."""
    if not checked.ok:
        raise PipeschedError([d for d in checked.diagnostics if d.severity == "error"])
    alone = ("bytes of messages are counted at this m alone",) if request.all_m else ()
    return replace(found, checked=checked, notes=(*found.notes, *alone))


def _in_bytes(found: Optimum, request: Request) -> Report:
    """Return the report on an answer, with the bytes of every rank."""
    loaded = read_back(found.source)
    untimed = replace(request.workload, device=None, efficiency=None)
    options = Options(costs=found.instance.costs, release=request.release, owned=(untimed,))
    return examine(loaded, options).report


def _optimized(request: Request, progress: Callable[[State], None], meter: Meter) -> Optimum:
    """Optimize once; caps in bytes are replaced by caps on activations that never exceed them. meter: the clock."""
    _require_engines(request)
    target = target_of(request)
    if request.all_m and target.instance.placement.routes > 1:
        raise fail(
            OptimizerCode.NOT_OPTIMIZED,
            "two routes share the microbatches, so no part of one order repeats for every m",
        )
    _require_covered(target.instance, every=request.all_m)
    problem = target.instance.problem()
    if target.room is not None:
        target.room.require(problem)
    reason = infeasible(problem) or target.instance.lacking
    if reason:
        return Optimum(target.instance, impossible=True, reason=reason)
    meter.spend(_PRINTING * problem.operations)
    repeated, interrupted = _repeated(request, target, progress, meter)
    if repeated is not None:
        target = _resized(target, repeated)
        problem = target.instance.problem()
    known: list[Known] = []
    played = _kept(_baselines(target, problem, meter), known)
    state = repeated.state_at(problem) if repeated else _searched(request, target, problem, played, progress, meter)
    while len(known) < _SHOWN and (len(known) + 1) * problem.operations <= _COMPARED and next(played, None):
        pass
    if interrupted and not state.proved:
        state.stopped = INTERRUPTED
    if target.room is not None:
        state.notes.insert(0, target.room.note)
    return _answer(request, target, state, known, repeated, meter)


def _require_engines(request: Request) -> None:
    """Raise PipeschedError, PS820, if an engine that the user names is not installed."""
    if request.limits.engine == "cpsat":
        from pipesched.optimizer.solve.engines import cp_sat

        cp_sat.require()
    if request.certify or request.limits.proof:
        from pipesched.optimizer.solve.engines import lrat

        lrat.require()


def _require_covered(instance: Instance, *, every: bool) -> None:
    """Raises PipeschedError: PS702, frozen stages in a case that no bound covers."""
    frozen = instance.placement.frozen
    if (why := instance.not_covered) or (frozen and every):
        stages = f"stage{'s' if len(frozen) > 1 else ''} {ranges(frozen)} frozen"
        stages = "no backward" if instance.forward_only else stages
        said = f"with {stages}, no bound covers {why or 'every m'}"
        raise fail(OptimizerCode.NOT_OPTIMIZED, said, help="leave out the cap, the objective, --backward or --all-m")


def _repeated(
    request: Request, target: Target, progress: Callable[[State], None], meter: Meter
) -> tuple[Periodic | None, bool]:
    """Return (schedule for every m, if requested and found; True if the search for it was interrupted).

    After an interrupt little time is left.
    """
    if not request.all_m:
        return None, False
    from pipesched.optimizer.solve.repeat.periodic import periodic

    try:
        return periodic(target.instance, request.limits, progress, meter), False
    except KeyboardInterrupt:
        meter.limit = meter.spent + _LEFT
        return None, True


def _baselines(target: Target, problem: Problem, meter: Meter) -> Iterator[Known]:
    """Yield the user's schedule, and the library's schedules with the same placement and number of microbatches, each
    order once. Of large schedules, only those that the meter has time for are read.
    """
    seen, stages = set[str](), target.instance.placement.stages
    orders: list[Schedule] = []
    sizes = {name: target.sizes[name] for name in ("p", "v", "m") if name in target.sizes}
    if target.given is not None:
        seen.add(name := PurePath(target.given.source).stem)
        yield Known.of(name, target.given.schedule, target.instance, problem)
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
                yield Known.of(name, schedule, target.instance, problem)


def _kept(played: Iterator[Known], known: list[Known]) -> Iterator[Known]:
    """Yield the baselines, and append each of them to `known`."""
    for one in played:
        known.append(one)
        yield one


def _searched(
    request: Request,
    target: Target,
    problem: Problem,
    known: Iterator[Known],
    progress: Callable[[State], None],
    meter: Meter,
) -> State:
    """Search for a schedule of one m; add a note if a schedule for every m was requested."""
    limits = request.limits
    seeds = ((name, convert.to_orders(problem, schedule)) for name, schedule in request.seeds)
    played = ((k.name, k.apart) for k in known if limits.portfolio and k.fits)
    candidates = ((name, orders) for name, orders in chain(seeds, played) if orders is not None)
    found = whole(target.instance)
    scale = target.instance.costs.ticks(target.instance.placement.stages).scale / problem.scale

    def alone(bound: int, steps: int) -> tuple[bool, int]:
        left = [steps]
        return too_busy(found, int(bound * scale), steps, left) is not None, steps - left[0]

    part = meter.part(_SEARCH)
    floor = _formula(target.instance, problem)
    state = search(problem, limits, candidates, progress, part, floor=floor, refutes=alone)
    meter.spend(part.spent)
    if request.all_m:
        state.notes.append(f"no repeating part was found, so this is for m = {target.sizes['m']} alone")
    return state


def _formula(instance: Instance, problem: Problem) -> int:
    """Return the lower bound by the checker's formula of `meetings`, in ticks."""
    value, _ = meetings(whole(instance))
    return int(value * problem.scale / instance.costs.ticks(instance.placement.stages).scale)


def _resized(target: Target, repeated: Periodic) -> Target:
    """Change the target to the smallest number of microbatches that the seam can reach, at least the requested one."""
    microbatches = repeated.reachable(target.instance.placement.microbatches)
    return replace(target, instance=target.instance.at(microbatches), sizes={**target.sizes, "m": microbatches})


def _answer(
    request: Request, target: Target, state: State, known: list[Known], repeated: Periodic | None, meter: Meter
) -> Optimum:
    """Build the answer of a search: its best schedule is judged, printed, read back and checked."""
    instance, problem = target.instance, state.problem
    found = Optimum(
        instance,
        least=problem.time(state.lower),
        least_by=bound_by(state),
        reason=state.stopped,
        found_by=state.source,
        seed=request.limits.seed,
        known=known,
        notes=notes(instance, state),
    )
    if state.best is None:
        return found
    best, said = _steady(request, instance, state, known, meter)
    schedule = replace(convert.to_schedule(problem, best), name=request.name)
    written, judged, more = _certified(request, instance, state, schedule, repeated, meter)
    kernel = repeated.printed(state.problem) if repeated else None
    made, text, report = printed(schedule, instance, judged, request.name, kernel)
    verdict = {"verdict": judged.status, "lower_bound": plain(judged.lower), "gap": plain(judged.gap)}
    return replace(
        found,
        judged=judged,
        analysis=made,
        reason=state.stopped if judged.status == FOUND else "",
        given=known[0] if target.given else None,
        notes=(*said, *found.notes, *more),
        source=text,
        certificate=written | verdict,
        checked=report,
    )


def _certified(
    request: Request,
    instance: Instance,
    state: State,
    schedule: Schedule,
    repeated: Periodic | None,
    meter: Meter,
) -> tuple[dict[str, object], Verdict, list[str]]:
    """Return the certificate of a schedule, the checker's verdict, and notes on proofs.

    What an engine refuted counts only with a proof that the checker has followed.
    """
    problem, said = state.problem, list[str]()
    if request.certify or request.limits.proof:
        meter.limit = max(meter.limit, meter.spent + SECONDS * SECOND)
    written = certificate(instance, state, repeated)
    judged = _judged(schedule, instance, written, repeated)
    meter.limit = max(meter.limit, meter.spent + _PROOF * meter.limit)
    if judged.word:
        written = certificate(instance, state, repeated, _believed(request, instance, state, meter, said))
        judged = _judged(schedule, instance, written, repeated)
    elif request.limits.proof:
        said.append(_proof(request, instance, state, meter).note)
    if judged.lower < problem.time(state.lower) and state.refuted is None:  # the checker's formulas show a weaker bound
        state.refuted = Refutation(state.lower - 1, "ranks", None)
        written = certificate(instance, state, repeated)
        judged = _judged(schedule, instance, written, repeated)
    if judged.word:
        state.refuted = None
        written = certificate(instance, state, repeated)
        judged = _judged(schedule, instance, written, repeated)
    if request.certify and repeated is not None and not judged.everywhere:
        proof = _proof_for_every(request, instance, repeated, meter)
        said.append(proof.note)
        if proof.entry:
            written = certificate(instance, state, repeated, least=proof.entry)
            judged = _judged(schedule, instance, written, repeated)
    return written, judged, said + _agreed(request, instance, state, judged)


def _believed(
    request: Request, instance: Instance, state: State, meter: Meter, said: list[str]
) -> dict[str, object] | None:
    """Return the proof of the largest refuted objective that has one, and take back the larger ones; None if no engine
    refuted any other. said: a note on each is appended.
    """
    tried = False
    while (found := state.refuted) is not None and not (tried and found.engine == "ranks"):
        tried, part = True, meter.part(_PROOF_OF_EACH if state.earlier else 1.0)
        proof = _proof(request, instance, state, part)
        meter.spend(part.spent)
        said.append(proof.note)
        if proof.entry:
            return proof.entry
        state.disbelieve()
    return None


def _steady(
    request: Request, instance: Instance, state: State, known: list[Known], meter: Meter
) -> tuple[Orders, list[str]]:
    """Return the best orders, and with --jitter some as short with a lower p95, and the note on them."""
    assert state.best is not None
    if request.jitter is None:
        return state.best, []
    from pipesched.optimizer.steady import Steady

    others = [k.orders for k in known if k.fits and k.orders is not None]
    search = Steady.of(instance, state.problem, request.jitter)
    found, note = search.best(state.best, others, request.limits.seed, meter)
    return found, [note]


def _agreed(request: Request, instance: Instance, state: State, judged: Verdict) -> list[str]:
    """Return the note of Z3 on an optimum, if it was asked or more than a sum shows the bound."""
    if judged.value != judged.lower or not (request.confirm or state.refuted is not None):
        return []
    agreed = confirmed(instance, judged.value, judged.lower - state.problem.time(1), asked=request.confirm)
    return [agreed] if agreed else []


def _proof(request: Request, instance: Instance, state: State, meter: Meter) -> Made:
    """Prove the lower bound in steps that the checker can follow."""
    asked = (state.bound.rank,) if state.refuted is None else state.refuted.ranks
    rank = asked[0] if asked else None
    try:
        grid = None if state.refuted is None or state.refuted.grid == 1 else state.problem.time(state.refuted.grid)
        return certified(instance, state.problem.time(state.lower - 1), rank, request.limits.proof, meter, grid)
    except (KeyboardInterrupt, MemoryError) as error:
        return _none(error)


def _proof_for_every(request: Request, instance: Instance, repeated: Periodic, meter: Meter) -> Made:
    """Prove the value at the schedule's smallest m optimal, if that implies optimality for every m."""
    seam = repeated.seam
    least, problem = instance.at(seam.microbatches), instance.problem(seam.microbatches)
    period = problem.time(seam.period) * least.costs.ticks(least.placement.stages).scale
    if request.objective == "span" or apart(whole(least), seam.every) < period:
        return Made({}, "no proof for every m: longest paths alone do not keep its microbatches that far apart")
    try:
        return certified(least, problem.time(seam.value - 1), None, None, meter)
    except (KeyboardInterrupt, MemoryError) as error:
        return _none(error)


def _none(error: BaseException) -> Made:
    return Made({}, f"no proof: {'interrupted' if isinstance(error, KeyboardInterrupt) else 'out of memory'}")


def _judged(
    schedule: Schedule,
    instance: Instance,
    written: Mapping[str, object],
    repeated: Periodic | None,
) -> Verdict:
    """Return the checker's verdict on the schedule and its certificate.

    Raises:
        PipeschedError: PS71x, the checker refuses them.
    """

    def copies(first: int, step: int) -> list[Schedule]:
        assert repeated is not None
        problems = [instance.problem(first + n * step) for n in range(3)]
        return [convert.to_schedule(problem, repeated.seam.unrolled(problem)) for problem in problems]

    return judge(schedule, instance, written, copies).accepted()


def frontier(
    request: Request, caps: Sequence[Fraction], progress: Callable[[State], None] = lambda state: None
) -> Frontier:
    """Optimize for every cap, up to the cap at which the user interrupts."""
    points = []
    for cap in caps:
        points.append((cap, optimize(replace(request, mem_cap=(cap,)), progress)))
        if points[-1][1].reason == INTERRUPTED:
            break
    return Frontier(tuple(points))


def frontier_plot(frontier: Frontier) -> str:
    """Return the plot of bubble against cap, as SVG."""
    from pipesched.views.plot import Point, plot

    points = [
        Point(cap, answer.least_bubble * 100, answer.status)
        for cap, answer in frontier.points
        if answer.least_bubble is not None
    ]
    timed = bool(frontier.points[0][1].instance.costs.unit)
    said = (shown, (lambda bubble: percent(bubble / 100)) if timed else shown)
    return plot(points, x="memory cap (microbatches)", y="bubble, %", title=frontier.terms, said=said)
