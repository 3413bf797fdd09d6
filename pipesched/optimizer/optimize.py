"""Optimization of a schedule: from a request to an answer that anyone can check.

    Request ──> target ──> Problem ──> search or seam ──> orders ──> .ps text ──> load, examine ──> Optimum
                  │          │                                          │            │ judge: the certificate
                  │          └─ infeasible: a minimal reason            └─ the printed text is what is verified
                  └─ a schedule's placement, sizes and kind of backward, or one from scratch

The optimizer is never trusted: its answer is printed, read back, and must pass the same checks as a user's file. The
verdict comes from the checker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from operator import add
from pathlib import PurePath

import numpy as np

from pipesched.common.library import sized
from pipesched.compile import Options, examine, load
from pipesched.diagnostics import PipeschedError, fail
from pipesched.formats.readers import Loaded
from pipesched.language.parser import OPS_A_WORD
from pipesched.lift import writer
from pipesched.model.numbers import percent, plain, shown
from pipesched.model.schedule import Schedule
from pipesched.optimizer import optimize_bytes
from pipesched.optimizer.baselines import Known, plainest
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_certify import Made, certified, confirmed
from pipesched.optimizer.optimize_report import Frontier, Optimum, bound_by, claims, notes
from pipesched.optimizer.optimize_request import Request, Target, target_of
from pipesched.optimizer.proof.every import apart
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.proof.meetings import meetings
from pipesched.optimizer.proof.problem import problem as whole
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.sameness import same_order
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.least_cap import infeasible
from pipesched.optimizer.solve.certificate import certificate
from pipesched.optimizer.solve.engines import cp_sat, lrat
from pipesched.optimizer.solve.instance import BOUNDED, MAX_OPS, Instance
from pipesched.optimizer.solve.problem import Problem
from pipesched.optimizer.solve.repeat.periodic import Periodic, periodic
from pipesched.optimizer.solve.search.search import search, write_refutation
from pipesched.optimizer.solve.search.state import INTERRUPTED, Refutation, State
from pipesched.optimizer.verdict import FOUND, Verdict, documentation
from pipesched.planning.footprint_report import InBytes
from pipesched.report.report import Report
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source

_LEFT = 0.5  # seconds left after an interrupt
_PRINTING = 25e-6  # seconds per operation, to print the answer and to verify it
_COMPARED = 200_000  # most operations of all baselines that are shown only for comparison
_READING = 10e-6  # seconds to read an operation of a baseline


def optimize(request: Request, progress: Callable[[State], None] = lambda state: None) -> Optimum:
    """Find the best schedule, and prove as far as possible that it is; under a cap in bytes, one that keeps the cap.

    Raises:
        PipeschedError: PS2xx, invalid options; PS503, PS504, a cap in bytes that is too low; PS702, a schedule that
            cannot be optimized; every fault of the schedule's file.
    """
    if request.workload.cap is None or request.workload.model is None:
        return _optimized(request, progress)
    if request.fused:
        return _tried(request, progress)
    with suppress(PipeschedError):  # gradients that I stores for W are ignored at first: the answer may fit anyway
        hoped = _tried(replace(request, until_w=False), progress)
        if hoped.value is not None:
            safe = None
            with suppress(PipeschedError):
                safe = _tried(request, progress)
            return hoped if safe is None or safe.value is None or hoped.value < safe.value else safe
    return _tried(request, progress)


def _tried(request: Request, progress: Callable[[State], None]) -> Optimum:
    """Optimize until an answer fits the cap in bytes; in each attempt, the previous excess is set aside for
    messages.
    """
    found = _optimized(request, progress)
    for _ in range(_TRIES):
        if found.analysis is None:
            return found
        checked, model = _in_bytes(found, request), request.workload.model
        assert model is not None
        if not any(over := _over(checked)):
            return _within(found, checked, request)
        spent = request.aside or optimize_bytes.set_aside(model, found.instance.placement)
        request = replace(request, aside=tuple(map(add, spent, over)))
        found = _optimized(request, progress)
    raise fail(
        OptimizerCode.NO_ROOM,
        f"{_TRIES} orders within the caps held more messages than fit in bytes",
        help=_MORE,
    )


_TRIES = 4
_MORE = "a lower cap of activations, as `--mem-cap 4`, then `verify --model` with the cap in bytes"


def _over(checked: Report) -> list[int]:
    """Return the bytes over the cap, by rank."""
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
    loaded = _loaded(found.source)
    untimed = replace(request.workload, device=None, efficiency=None)
    options = Options(costs=found.instance.costs, release=request.release, owned=(untimed,))
    return examine(loaded, options).report


def _optimized(request: Request, progress: Callable[[State], None]) -> Optimum:
    """Optimize once; caps in bytes are replaced by caps on activations that never exceed them."""
    until = time.monotonic() + request.limits.seconds
    if request.limits.engine == "cpsat":
        cp_sat.require()
    if request.certify:
        lrat.require()
    target = target_of(request)
    if request.all_m and target.instance.placement.routes > 1:
        raise fail(
            OptimizerCode.NOT_OPTIMIZED,
            "two routes share the microbatches, so no part of one order repeats for every m",
        )
    problem = target.instance.problem()
    if target.room is not None:
        target.room.require(problem)
    reason = infeasible(problem)
    if reason is not None:
        return Optimum(target.instance, impossible=True, reason=reason)
    until -= _PRINTING * problem.operations
    repeated, until, interrupted = _repeated(request, target, progress, until)
    if repeated is not None:
        target = _resized(target, repeated)
        problem = target.instance.problem()
    known: list[Known] = []
    played = _kept(_baselines(target, problem, until), known)
    state = repeated.state_at(problem) if repeated else _searched(request, target, problem, played, progress, until)
    for _ in played:
        if len(known) * problem.operations > _COMPARED:
            state.notes.append(
                f"no more than {len(known)} others are shown: each has {problem.operations:,} operations"
            )
            break
    if interrupted and not state.proved:
        state.stopped = INTERRUPTED
    if target.room is not None:
        state.notes.insert(0, target.room.note)
    return _answer(request, target, state, known, repeated)


def _repeated(
    request: Request, target: Target, progress: Callable[[State], None], until: float
) -> tuple[Periodic | None, float, bool]:
    """Return (schedule for every m, if requested and found; deadline, monotonic; True if the search for it was
    interrupted).

    After an interrupt the deadline is moved close to now.
    """
    if not request.all_m:
        return None, until, False
    try:
        return periodic(target.instance, request.limits, progress, until), until, False
    except KeyboardInterrupt:
        return None, time.monotonic() + _LEFT, True


def _baselines(target: Target, problem: Problem, until: float) -> Iterator[Known]:
    """Yield the user's schedule, and the library's schedules with the same numbers of stages and microbatches, each
    order once.

    until: deadline (monotonic); no schedule is read that would exceed it.
    """
    seen, stages = set[str](), target.instance.placement.stages
    orders: list[Schedule] = []
    sizes = {name: target.sizes[name] for name in ("p", "v", "m") if name in target.sizes}
    if target.given is not None:
        seen.add(name := PurePath(target.given.source).stem)
        yield Known.of(name, target.given.schedule, target.instance, problem)
    for name, source in plainest():
        if name not in seen and time.monotonic() + _READING * problem.operations < until:
            seen.add(name)
            schedule = sized(source, sizes, placed=lambda x: x.stages == stages, max_ops=MAX_OPS)
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
    until: float,
) -> State:
    """Search for a schedule of one m; add a note if a schedule for every m was requested."""
    limits = request.limits
    known = known if limits.portfolio else iter(list(known)[:0])
    candidates = ((k.name, k.orders) for k in known if k.orders is not None and k.fits)
    found = whole(target.instance)
    scale = target.instance.costs.ticks(target.instance.placement.stages).scale / problem.scale

    def alone(bound: int, steps: int) -> bool:
        return too_busy(found, int(bound * scale), steps) is not None

    state = search(
        problem, limits, candidates, progress, until, floor=_formula(target.instance, problem), refutes=alone
    )
    if request.all_m:
        state.notes.append(f"no repeating part was found, so this is for m = {target.sizes['m']} alone")
    if limits.proof and not request.certify and state.stopped != INTERRUPTED:
        state.notes.append(write_refutation(state, limits.proof, max(1.0, limits.seconds)))
    return state


def _formula(instance: Instance, problem: Problem) -> int:
    """Return the lower bound by the checker's formula of `meetings`, in ticks."""
    value, _ = meetings(whole(instance))
    return int(value * problem.scale / instance.costs.ticks(instance.placement.stages).scale)


def _resized(target: Target, repeated: Periodic) -> Target:
    """Change the target to the smallest number of microbatches that the seam can reach, at least the requested one."""
    microbatches = repeated.reachable(target.instance.placement.microbatches)
    return replace(target, instance=target.instance.at(microbatches), sizes={**target.sizes, "m": microbatches})


def _answer(request: Request, target: Target, state: State, known: list[Known], repeated: Periodic | None) -> Optimum:
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
    schedule = replace(convert.to_schedule(problem, state.best), name=request.name)
    written, judged, more = _certified(request, instance, state, schedule, repeated)
    made, text, report = _printed(request, instance, state, schedule, judged, repeated)
    verdict = {"verdict": judged.status, "lower_bound": plain(judged.lower), "gap": plain(judged.gap)}
    return replace(
        found,
        judged=judged,
        analysis=made,
        reason=state.stopped if judged.status == FOUND else "",
        given=known[0] if target.given else None,
        notes=(*found.notes, *more),
        source=text,
        certificate=written | verdict,
        checked=report,
    )


def _certified(
    request: Request, instance: Instance, state: State, schedule: Schedule, repeated: Periodic | None
) -> tuple[dict[str, object], Verdict, list[str]]:
    """Return the certificate of a schedule, the checker's verdict, and notes on requested proofs."""
    problem, said = state.problem, list[str]()
    written = certificate(instance, state, repeated)
    judged = _judged(schedule, instance, written, repeated)
    if judged.lower < problem.time(state.lower) and state.refuted is None:  # the checker's formulas show a weaker bound
        state.refuted = Refutation(state.lower - 1, "ranks", None)
        written = certificate(instance, state, repeated)
        judged = _judged(schedule, instance, written, repeated)
    if request.certify and (judged.word or request.limits.proof):
        proof = _proof(request, instance, state)
        said.append(proof.note)
        if judged.word and proof.entry:
            written = certificate(instance, state, repeated, proof.entry)
            judged = _judged(schedule, instance, written, repeated)
    if request.certify and repeated is not None and not judged.everywhere:
        proof = _proof_for_every(request, instance, repeated)
        said.append(proof.note)
        if proof.entry:
            written = certificate(instance, state, repeated, least=proof.entry)
            judged = _judged(schedule, instance, written, repeated)
    if judged.value == judged.lower:
        agreed = confirmed(instance, judged.value, judged.lower - problem.time(1), asked=request.confirm)
        said += [agreed] if agreed else []
    return written, judged, said


def _printed(
    request: Request, instance: Instance, state: State, schedule: Schedule, judged: Verdict, repeated: Periodic | None
) -> tuple[Analysis, str, Report]:
    """Return the analysis of a schedule, its text, and the report on that text.

    Raises:
        PipeschedError: the text does not pass the checks.
    """
    made = Analysis(schedule, instance.costs, instance.release)
    text = writer.write(
        schedule,
        name=request.name,
        documentation=documentation(judged, instance),
        costs=instance.costs,
        claims=claims(made, instance, judged),
        kernel=repeated.printed(state.problem) if repeated else None,
    )
    report = _verified(text, schedule, instance)
    if not report.ok:
        raise PipeschedError([d for d in report.diagnostics if d.severity == "error"])
    return made, text, report


def _proof(request: Request, instance: Instance, state: State) -> Made:
    """Prove the lower bound in steps that the checker can follow."""
    asked = (state.bound.rank,) if state.refuted is None else state.refuted.ranks
    rank = asked[0] if asked else None
    try:
        return certified(instance, state.problem.time(state.lower - 1), rank, request.limits.proof)
    except (KeyboardInterrupt, MemoryError) as error:
        return _none(error)


def _proof_for_every(request: Request, instance: Instance, repeated: Periodic) -> Made:
    """Prove the value at the schedule's smallest m optimal, if that implies optimality for every m."""
    seam = repeated.seam
    least, problem = instance.at(seam.microbatches), instance.problem(seam.microbatches)
    period = problem.time(seam.period) * least.costs.ticks(least.placement.stages).scale
    if request.objective == "span" or apart(whole(least), seam.every) < period:
        return Made({}, "no proof for every m: longest paths alone do not keep its microbatches that far apart")
    try:
        return certified(least, problem.time(seam.value - 1), None, None)
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

    judged = judge(schedule, instance, written, copies)
    if judged.verdict is None:
        raise PipeschedError(judged.findings)
    return judged.verdict


def _verified(text: str, schedule: Schedule, instance: Instance) -> Report:
    """Return the report of every ordinary check on the printed file."""
    loaded = _loaded(text)
    same = all(
        np.array_equal(getattr(loaded.schedule, column), getattr(schedule, column))
        for column in ("op", "stage", "microbatch", "start")
    )
    if not same:
        raise RuntimeError("the printed file is not the schedule that was found")
    return examine(loaded, Options(costs=instance.costs, release=instance.release, mem_cap=instance.caps)).report


def _loaded(text: str) -> Loaded:
    """Load the printed file. Its length is not limited, since the optimizer wrote it."""
    source = Source("optimum.ps", text)
    return load(source, Options(max_ops=max(MAX_OPS, OPS_A_WORD * len(source.text))))


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
