"""Requests to the optimizer, and their targets: placement, sizes, costs and backward, from a schedule or options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pipesched.check.checks import Subject
from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.command.options import Given, costs, settings_of
from pipesched.compile import Options, load, read
from pipesched.diagnostics import Code, Label, PipeschedError, fail, of_the_caller
from pipesched.formats.readers import Loaded
from pipesched.language import ast
from pipesched.library.assets import built_in
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.release import AT_W, Release, caps_by_rank
from pipesched.model.schedule import Schedule
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.decisions.asked import Asked, jitter, lost, overlap, recompute
from pipesched.optimizer.decisions.asked import asked as decisions
from pipesched.optimizer.solve.instance import (
    ANY,
    MAX_OPS,
    OPTIMIZER,
    PLACEMENTS,
    SEARCHED,
    Instance,
    placement_at,
    sizes_of,
)
from pipesched.optimizer.solve.instance import Asked as Place
from pipesched.optimizer.solve.search.state import MOST_SEED, Limits
from pipesched.planning.byte_counts import Bytes
from pipesched.planning.workload import Workload, caps_at, own_costs, workload
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source

if TYPE_CHECKING:
    from pipesched.optimizer.optimize_bytes import Room


@dataclass(frozen=True)
class Request:
    """A request to optimize. source: a schedule to improve on, or None; parameters: the sizes of the source, or p, v
    and m.

    decide, overlap, recompute: the decisions to make in addition to the order. lost: a lost rank, and the number of
    pipelines that train the model. placement: linear, loop, vee, any, ranks by stage, or None (loop for several stages
    per rank, else linear). seeds: orders to begin with, and their names. mem_cap: one cap, or one per rank. workload: a
    model with its caps in bytes. For caps in bytes, aside: the bytes set aside for messages, by rank; until_w: True if
    caps on activations include the gradients that I stores for W. fused: True for full backwards, False for split ones;
    None for the kind of the source, or split without a source.
    """

    source: Source | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    settings: Mapping[str, str | float] = field(default_factory=dict)
    placement: Place = None
    mem_cap: tuple[Fraction, ...] | None = None
    release: Release = AT_W
    costs: Costs | None = None
    objective: str = "makespan"
    fused: bool | None = None
    all_m: bool = False
    certify: bool = False
    confirm: bool = False
    limits: Limits = field(default_factory=Limits)
    name: str = "optimum"
    workload: Workload = field(default_factory=Workload)
    aside: tuple[int, ...] | None = None
    until_w: bool = True
    decide: Asked | None = None
    overlap: bool = False
    recompute: str | None = None
    seeds: tuple[tuple[str, Schedule], ...] = ()
    jitter: Fraction | None = None
    lost: tuple[int, int] | None = None


def request(source: Source | None, sizes: Mapping[str, Value], given: Given) -> Request:
    """Make a request from the options of the command.

    Raises:
        PipeschedError: PS225, PS810: the options contradict each other.
    """
    seed, proof, backward = given["seed"], given["proof"], given["backward"]
    if proof and given["all_m"]:
        raise fail(Code.USAGE, "a proof covers only one cap and one m", help="leave out the range or --all-m")
    if not 0 <= seed <= MOST_SEED:
        raise fail(Code.USAGE, f"a seed of {seed:,}", help=f"give a whole number from 0 to {MOST_SEED:,}")
    left = dict(given)
    asked = workload(given, left)
    return Request(
        source,
        sizes,
        given.get("settings") or settings_of(given.get("definitions", ())),
        place(given["placement"], sizes),
        left.get("mem_cap"),
        release=given["release"],
        costs=costs(given),
        objective=given["objective"],
        fused=None if backward is None else backward == "fused",
        all_m=given["all_m"],
        certify=given["certify"],
        confirm=given["confirm"],
        limits=Limits(given["time_limit"], given["engine"], given["portfolio"], proof, seed=seed),
        workload=asked,
        decide=decisions(given),
        overlap=overlap(given),
        recompute=recompute(given),
        jitter=jitter(given),
        lost=lost(given),
    )


@dataclass(frozen=True)
class Target:
    """The instance, the user's schedule, and the sizes to report in the answer. room: the caps in bytes, if given."""

    instance: Instance
    given: Loaded | None
    sizes: Mapping[str, Value]
    room: Room | None = None


def target_of(request: Request) -> Target:
    """Make the target of a request.

    Raises:
        PipeschedError: PS2xx, PS3xx, PS702: the request is invalid. Also every finding on the source.
    """
    if request.source is not None:
        return _target_at(request.source, request)
    sizes = sizes_of(request.placement, request.parameters)
    placement = placement_at(request.placement, sizes)
    costs = costs_of(request, placement, Costs())
    return _target(request, placement, costs, bool(request.fused), None, sizes)


def loaded(source: Source, request: Request) -> Loaded:
    """Load the schedule of a request at its sizes."""
    return load(source, Options(request.parameters, max_ops=MAX_OPS, settings=request.settings))


def _target_at(source: Source, request: Request) -> Target:
    """Make a target with the placement, sizes, costs and kind of backward of a schedule."""
    found = loaded(source, request)
    schedule = found.schedule
    if request.placement is not None:
        raise fail(Code.USAGE, "a placement is given, but the schedule has its own", help="leave one of them out")
    require_costs(found)
    costs = costs_of(request, schedule.placement, found.own_costs)
    with_r = replace(SEARCHED, help="`--recompute any` decides R too") if (schedule.op == Op.R).any() else SEARCHED
    with_r.require(schedule, costs)
    require_right(schedule)
    if schedule.forward_only and request.fused is not None:
        raise fail(Code.USAGE, f"{schedule.name} has no backward", help="leave out --backward")
    fused = not schedule.forward_only and (not schedule.split if request.fused is None else request.fused)
    return _target(request, whole(schedule), costs, fused, found, found.sizes)


def whole(schedule: Schedule) -> Placement:
    """Return the placement of the target; if the schedule has no backward, all stages are frozen."""
    frozen = tuple(range(schedule.stages))
    return replace(schedule.placement, frozen=frozen) if schedule.forward_only else schedule.placement


def require_costs(loaded: Loaded) -> None:
    """Refuse a file with `parts`: its times depend on engines, while the bounds here add up the times of a rank.

    Raises:
        PipeschedError: PS702.
    """
    for item in loaded.unit.checked.items(ast.Parts) if loaded.unit else ():
        message = f"{OPTIMIZER.title} cannot {OPTIMIZER.verb} {loaded.schedule.name}: its times depend on `parts`"
        help = "write them as `costs`; `pipesched verify` prints these times"
        raise fail(OptimizerCode.NOT_OPTIMIZED, message, Label(item.span, "parts of a slot"), help=help)


def costs_of(request: Request, placement: Placement, of_file: Costs) -> Costs:
    """Return the costs in effect: the user's costs override the costs of the workload and of the file.

    Raises:
        PipeschedError: PS225, PS235, PS244.
    """
    own = own_costs(request.workload, placement, of_file)
    return own if request.costs is None else request.costs.over(own)


def require_right(schedule: Schedule) -> None:
    """Refuse a schedule that lacks operations or deadlocks, since an answer could not be compared with it.

    Raises:
        PipeschedError: PS3xx: the schedule has faults.
    """
    subject = Subject(Analysis(schedule))
    if wrong := [*check_complete(subject), *check_dataflow(subject)]:
        raise PipeschedError(wrong)


def _target(
    request: Request,
    placement: Placement,
    costs: Costs,
    fused: bool,
    given: Loaded | None,
    sizes: Mapping[str, Value],
) -> Target:
    for fit in (costs.require_fit, costs.sizes):
        try:
            fit(placement.stages)
        except PipeschedError as error:  # the command line is at fault, not the file
            raise of_the_caller(error) from None
    if (caps := caps_at(request.workload, placement.ranks, zero=False)) is not None:
        from pipesched.optimizer import optimize_bytes

        assert request.workload.model is not None
        way = (request.workload.model, placement, costs, request.release, caps)
        room = optimize_bytes.room(*way, fused=fused, aside=request.aside, until_w=request.until_w)
        asked = tuple(cap for cap in request.workload.cap or () if isinstance(cap, Bytes))
        way_ = (placement, room.costs, room.release, room.caps, fused, request.objective)
        instance = Instance(*way_, asked, of_one=room.unit)
        return Target(instance, given, sizes, room)
    caps = caps_by_rank(request.mem_cap, placement.ranks, zero=False)
    return Target(Instance(placement, costs, request.release, caps, fused, request.objective), given, sizes)


def place(asked: str | tuple[int, ...] | None, parameters: Mapping[str, Value]) -> Place:
    """Return the placement that the user names: linear, loop, vee, ranks by stage, or the placement of a schedule.

    Raises:
        PipeschedError: PS810: no placement and no schedule has that name. Also every fault in the file.
    """
    if not isinstance(asked, str) or asked in (*PLACEMENTS, ANY):
        return asked
    try:
        source = read(asked)
    except PipeschedError as error:
        if error.diagnostics[0].code is not Code.UNKNOWN_SCHEDULE:
            raise
        from difflib import get_close_matches

        close = get_close_matches(asked, (*PLACEMENTS, *built_in()), 1, 0.5)
        known = "a placement is linear, loop, vee, the rank of each stage as in 0,1,1,0, or the name of a schedule"
        help = f"did you mean `{close[0]}`?" if close else known
        raise fail(Code.UNKNOWN_SCHEDULE, f"unknown placement {asked!r}", help=help) from None
    options = Options(parameters, max_ops=MAX_OPS)
    return load(source, options).schedule.placement
