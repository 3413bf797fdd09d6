"""From a question to an answer that anyone can check.

    Request ──> target ──> Problem ──> search or seam ──> orders ──> .ps text ──> load, examine ──> Optimum
                  │          │                                          │            │ check_optimum: the certificate
                  │          └─ infeasible: a minimal reason            └─ what is verified is what is printed
                  └─ a schedule's placement, sizes and kind of backward, or one from scratch

The optimizer is never trusted: its answer is printed, read back, and goes through the checks of a person's file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import PurePath

import numpy as np

from pipesched.check.optimum import check_optimum
from pipesched.compile import Options, examine, load, parameters_of, read
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.examine import Loaded
from pipesched.formats import ps_write
from pipesched.inputs import built_in
from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.release import AT_W, Release
from pipesched.model.schedule import Schedule
from pipesched.optimize import convert
from pipesched.optimize.answer.beside import Known
from pipesched.optimize.answer.certificate import certificate
from pipesched.optimize.answer.frontier import Frontier
from pipesched.optimize.answer.optimum import Optimum
from pipesched.optimize.bounds.least_cap import infeasible
from pipesched.optimize.engines import cp_sat
from pipesched.optimize.instance import Instance
from pipesched.optimize.problem import Orders, Problem
from pipesched.optimize.repeat.periodic import Periodic, periodic
from pipesched.optimize.search import refutation
from pipesched.optimize.search.climb import search
from pipesched.optimize.search.state import INTERRUPTED, Limits, State
from pipesched.optimize.sizes import MAX_OPS, PLACEMENTS, Asked, placement_at, sizes_of
from pipesched.report import Report
from pipesched.source import Source

_LEFT = 0.5  # seconds after an interrupt


@dataclass(frozen=True)
class Request:
    """What is asked. source: a schedule to improve on, or None; parameters: its sizes, or p, v and m.

    placement: linear, loop, vee, ranks by stage, or None (linear; with v > 1 loop). mem_cap: one, or one a rank.
    fused: whether backwards are whole; None for the source's kind, or split.
    """

    source: Source | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    placement: Asked = None
    mem_cap: tuple[Fraction, ...] | None = None
    release: Release = AT_W
    costs: Costs | None = None
    objective: str = "makespan"
    fused: bool | None = None
    all_m: bool = False
    limits: Limits = field(default_factory=Limits)
    name: str = "optimum"


@dataclass(frozen=True)
class Target:
    """The instance, the schedule that was given, and the sizes as the answer shows them."""

    instance: Instance
    given: Loaded | None
    sizes: Mapping[str, int]


def optimize(request: Request, progress: Callable[[State], None] = lambda state: None) -> Optimum:
    """The best schedule that can be found, and what is proved about it.

    Raises:
        PipeschedError: PS2xx, options that mean nothing; PS702, what cannot be optimized; all that is wrong in a file.
    """
    started = time.monotonic()
    if request.limits.engine == "cpsat":
        cp_sat.require()
    target = aim(request)
    if request.all_m and target.instance.placement.routes > 1:
        raise fail(Code.NOT_OPTIMIZED, "two routes share the microbatches, so no part of one order repeats for every m")
    problem = target.instance.problem()
    reason = infeasible(problem)
    if reason is not None:
        return Optimum.infeasible(target.instance, problem, target.sizes, reason, time.monotonic() - started)
    repeated, left = _repeated(request, target, progress)
    if repeated is not None:
        target = _resized(target, repeated)
        problem = target.instance.problem()
    known = list(_known(target, problem))
    state = repeated.state_at(problem, started) if repeated else _searched(left, target, problem, known, progress)
    if left is not request and not state.proved:
        state.stopped = INTERRUPTED
    return _answer(request, target, state, known, repeated, started)


def _repeated(request: Request, target: Target, progress: Callable[[State], None]) -> tuple[Periodic | None, Request]:
    """A schedule for every m, if one is asked for and found; once interrupted, little time is left for another."""
    if not request.all_m:
        return None, request
    try:
        return periodic(target.instance, request.limits, progress), request
    except KeyboardInterrupt:
        return None, replace(request, limits=replace(request.limits, seconds=_LEFT))


def _searched(
    request: Request, target: Target, problem: Problem, known: list[Known], progress: Callable[[State], None]
) -> State:
    """The search for one m, and what is to be said of it."""
    limits = request.limits
    candidates = [(k.name, k.orders) for k in known if k.orders is not None and k.fits]
    state = search(problem, limits, candidates if limits.portfolio else (), progress)
    if request.all_m:
        state.notes.append(f"nothing that repeats was found, so this is for m = {target.sizes['m']} alone")
    if limits.proof and state.stopped != INTERRUPTED:
        state.notes.append(refutation.write(state, limits.proof, max(1.0, limits.seconds)))
    return state


def _resized(target: Target, repeated: Periodic) -> Target:
    """The same for the least number of microbatches, from the one asked for, that the seam reaches."""
    microbatches = repeated.reachable(target.instance.placement.microbatches)
    return replace(target, instance=target.instance.of(microbatches), sizes={**target.sizes, "m": microbatches})


def _answer(
    request: Request, target: Target, state: State, known: list[Known], repeated: Periodic | None, started: float
) -> Optimum:
    """The search's result, printed, read back and checked."""
    problem = state.problem
    found = Optimum.of(target.instance, state, target.sizes, known, repeated, time.monotonic() - started)
    found = replace(found, given=known[0] if target.given else None)
    if state.best is None:
        return found
    schedule = replace(convert.to_schedule(problem, state.best), name=request.name)
    text = ps_write.write(
        schedule,
        name=request.name,
        documentation=found.documentation,
        costs=target.instance.costs,
        claims=found.claims,
        microbatch_window=repeated.printed(problem) if repeated else None,
    )
    report = _verified(text, schedule, target.instance)
    proof = certificate(target.instance, state, repeated)
    wrong = [*report.diagnostics, *_certified(schedule, target.instance, proof)]
    if any(d.severity == "error" for d in wrong):
        raise PipeschedError([d for d in wrong if d.severity == "error"])
    return replace(found, source=text, certificate=proof, report=report, seconds=time.monotonic() - started)


def _verified(text: str, schedule: Schedule, instance: Instance) -> Report:
    """The verdict of every ordinary check on the printed file."""
    source = Source("optimum.ps", text)
    loaded = load(source, Options(max_ops=len(schedule)))
    same = all(
        np.array_equal(getattr(loaded.schedule, column), getattr(schedule, column))
        for column in ("op", "stage", "microbatch", "start")
    )
    if not same:
        raise RuntimeError("the printed file is not the schedule that was found")
    return examine(loaded, Options(costs=instance.costs, release=instance.release, mem_cap=instance.caps))


def _certified(schedule: Schedule, instance: Instance, proof: Mapping[str, object]) -> Iterator[Diagnostic]:
    return check_optimum(schedule, instance.costs, instance.release, instance.caps, instance.objective, proof)


def aim(request: Request) -> Target:
    """What a request is about.

    Raises:
        PipeschedError: PS2xx, PS702, and everything wrong in the source.
    """
    if request.source is not None:
        return _aim_at(request.source, request)
    sizes = sizes_of(request.placement, request.parameters)
    placement = placement_at(request.placement, sizes)
    return Target(_instance(request, placement, request.costs or Costs(), bool(request.fused)), None, sizes)


def _aim_at(source: Source, request: Request) -> Target:
    """A schedule's placement, sizes, costs and kind of backward."""
    loaded = load(source, Options(request.parameters, max_ops=MAX_OPS, microbatches=request.parameters.get("m")))
    schedule = loaded.schedule
    if request.placement is not None:
        raise fail(Code.USAGE, "a placement is given, and a schedule, which has one", help="leave one of them out")
    at = np.flatnonzero(schedule.joined)
    if len(at):
        first = int(at[0]) - 1
        label = (Label(schedule.origin.place(first).span, "two operations in one slot"),)
        message = f"{schedule.name} has {len(at)} overlap slots, which cannot be optimized yet"
        raise fail(Code.NOT_OPTIMIZED, message, *label, help="give its placement with --placement and leave it out")
    if schedule.forward_only:
        raise fail(Code.NOT_OPTIMIZED, f"{schedule.name} has no backward", help="give a training schedule")
    fused = not bool(np.any((schedule.op == Op.I) | (schedule.op == Op.W)))
    own = loaded.unit.costs if loaded.unit else Costs()
    costs = request.costs.over(own) if request.costs else own
    fused = fused if request.fused is None else request.fused
    sizes = dict(schedule.parameters) or {"p": schedule.ranks, "m": schedule.microbatches}
    return Target(_instance(request, schedule.placement, costs, fused), loaded, sizes)


def _instance(request: Request, placement: Placement, costs: Costs, fused: bool) -> Instance:
    caps = request.mem_cap
    for fit in (costs.ticks, costs.sizes):
        try:
            fit(placement.stages)
        except PipeschedError as error:  # the command line is at fault, not the file
            raise fail(Code.USAGE, error.diagnostics[0].message, help=error.diagnostics[0].help) from None
    if caps is not None:
        if min(caps, default=0) <= 0:
            raise fail(Code.USAGE, f"a cap is {min(caps, default=0)}", help="a cap is above 0, such as 4 or 5.5")
        if len(caps) not in (1, placement.ranks):
            raise fail(Code.USAGE, f"{len(caps)} caps for {placement.ranks} ranks", help="give one cap, or one a rank")
        caps = caps * (placement.ranks // len(caps))
    return Instance(placement, costs, request.release, caps, fused, request.objective)


def place(asked: str | tuple[int, ...] | None, parameters: Mapping[str, int]) -> Asked:
    """A placement as a user names it: linear, loop, vee, ranks by stage, or a schedule whose placement counts.

    Raises:
        PipeschedError: PS810, no placement and no schedule has that name; all that is wrong in the file.
    """
    if not isinstance(asked, str) or asked in PLACEMENTS:
        return asked
    try:
        source = read(asked)
    except PipeschedError as error:
        if error.diagnostics[0].code is not Code.UNKNOWN_SCHEDULE:
            raise
        close = get_close_matches(asked, (*PLACEMENTS, *built_in()), 1, 0.5)
        known = "placements are linear, loop, vee, the rank of each stage as in 0,1,1,0, or that of a schedule"
        help = f"did you mean `{close[0]}`?" if close else known
        raise fail(Code.UNKNOWN_SCHEDULE, f"no placement is called {asked!r}", help=help) from None
    options = Options(parameters, max_ops=MAX_OPS, microbatches=parameters.get("m"))
    return load(source, options).schedule.placement


def _known(target: Target, problem: Problem) -> Iterator[Known]:
    """The schedule that was given, and those of the library with the same stages and microbatches."""
    loaded = [] if target.given is None else [(PurePath(target.given.source).stem, target.given.schedule)]
    size = {name: target.sizes[name] for name in ("p", "v", "m") if name in target.sizes}
    for name in built_in():
        try:
            options = Options(_fitting(name, size), max_ops=MAX_OPS)
            loaded.append((name, load(read(name), options).schedule))
        except PipeschedError:
            continue
    seen = set()
    for name, schedule in loaded:
        if name not in seen and schedule.stages == target.instance.placement.stages:
            seen.add(name)
            yield Known.of(name, schedule, target.instance, problem)


def _fitting(name: str, size: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a library schedule has parameters for."""
    known = parameters_of(read(name))
    return {key: value for key, value in size.items() if key in known}


def frontier_plot(frontier: Frontier) -> str:
    """Bubble ratio against cap, as SVG."""
    from pipesched.views.plot import Point, plot

    points = [
        Point(cap, (answer.value - answer.work) / answer.value, "proved optimal" if proved else "best found")
        for cap, answer in frontier.points
        for proved in [answer.exit_status == 0]
        if answer.value and answer.work is not None
    ]
    title = frontier.points[0][1].terms_without_cap
    return plot(points, x="memory cap (microbatches)", y="bubble ratio", title=title)


__all__ = ["Limits", "Optimum", "Orders", "Request", "State", "aim", "optimize"]
