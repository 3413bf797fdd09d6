"""Answers a request for an order of a schedule's own operations: the best order found, and a checked bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np

from pipesched.common.library import sized
from pipesched.diagnostics import Code, fail
from pipesched.formats.readers import Loaded
from pipesched.library.inputs import library
from pipesched.model.columns import among
from pipesched.model.costs import Costs
from pipesched.model.lists import Nowhere
from pipesched.model.numbers import Value, plain
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.release import caps_by_rank
from pipesched.model.schedule import Schedule
from pipesched.optimizer.answer_of import answered
from pipesched.optimizer.baselines import relevant
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.optimize_report import Optimum
from pipesched.optimizer.optimize_request import costs_of, loaded, require_costs, require_right, whole
from pipesched.optimizer.own.run import Orders, Slots
from pipesched.optimizer.own.search import Search
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.proof.own_arcs import Arcs
from pipesched.optimizer.proof.own_order import OWN, least
from pipesched.optimizer.solve.instance import MAX_OPS, OPTIMIZER, SEARCHED, Instance
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.search.state import INTERRUPTED
from pipesched.optimizer.verdict import kinds_of
from pipesched.schedule_analysis import Analysis

if TYPE_CHECKING:
    from pipesched.optimizer.optimize_request import Request

_MOST = 200_000  # most operations
_FILE = 15_000  # steps to read a schedule of the library


def only_by_order(request: Request) -> Loaded | None:
    """Return the schedule of a request if only the order of the schedule's operations can be decided; otherwise None.

    Raises:
        PipeschedError: PS702: a requested option does not apply to such a schedule.
    """
    if request.source is None or request.placement is not None:
        return None
    found = loaded(request.source, request)
    schedule = found.schedule
    costs = costs_of(request, schedule.placement, found.own_costs)
    if schedule.placement.left_out or not OPTIMIZER.takes(schedule, costs):  # no printed file leaves out a stage
        return None
    if SEARCHED.takes(schedule, costs):
        if request.all_m or request.workload.cap:
            return None
        fused = not schedule.split if request.fused is None else request.fused
        terms = Instance(whole(schedule), costs, request.release, request.mem_cap, fused, request.objective)
        if not terms.not_covered:
            return None
    for what in _not_decided(request):
        message = f"{what} does not apply to {schedule.name}: the optimizer can only reorder its operations"
        raise fail(OptimizerCode.NOT_OPTIMIZED, message, help=f"leave out {what}")
    return found


def _not_decided(request: Request) -> Iterator[str]:
    """Yield the requested options that do not apply to an order of a schedule's own operations."""
    limits = request.limits
    asked = {
        "--all-m": request.all_m,
        "a cap in bytes": request.workload.cap,
        "--proof": limits.proof,
        "--certify": request.certify,
        "--confirm": request.confirm,
        "--engine": limits.engine != "auto",
        "--no-portfolio": not limits.portfolio,
        "--jitter": request.jitter is not None,
    }
    return (what for what, given in asked.items() if given)


def in_own_order(request: Request, loaded: Loaded, meter: Meter) -> Optimum:
    """Find a shorter order for a schedule's own operations. meter: counts steps up to the limit.

    Raises:
        PipeschedError: PS2xx, PS3xx: the options or the schedule are invalid. PS702: there are too many operations.
    """
    schedule, called = replace(loaded.schedule, name=request.name, title=""), loaded.schedule.name
    require_costs(loaded)
    if request.fused is not None:
        message = f"--backward does not apply to {called}: the optimizer can only reorder its operations"
        raise fail(Code.USAGE, message, help="leave out --backward")
    if len(schedule) > _MOST:
        message = f"{called} has {len(schedule):,} operations; the limit is {_MOST:,}"
        raise fail(OptimizerCode.NOT_OPTIMIZED, message, help="use fewer microbatches")
    require_right(schedule)
    instance = _instance(request, schedule, loaded.own_costs)
    made = Analysis(schedule, instance.costs, instance.release)
    span = request.objective == "span"
    arcs = Arcs.of(schedule, made.ticks)
    slots, bound = Slots.of(made, arcs, instance.caps, span=span), least(made, arcs, instance.caps, span=span)
    given: Orders = [[*range(low, high)] for low, high in pairwise(arcs.cut.tolist())]
    search = Search(slots, bound.value, meter, request.limits.seed)
    stopped = ""
    try:
        others = _library(schedule, loaded.sizes, instance, arcs, search.meter)
        search.run(chain([(called, given)], others))
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    if search.best is None:
        why = search.impossible or stopped or "no order within the caps was found"
        lower = Fraction(bound.value, made.ticks.scale)
        return Optimum(
            instance, impossible=bool(search.impossible), reason=why, least=lower, least_by="the longest path"
        )
    stopped = stopped or request.limits.reached
    said = [f"only the order of {called}'s own operations was decided"]
    if search.given is not None and search.given > search.value:
        value = instance.costs.unit.text(Fraction(search.given, made.ticks.scale))
        said.append(f"in the order of {called}, the {request.objective} is {value}")
    best = _schedule(schedule, arcs, search.best)
    made = Analysis(best, instance.costs, instance.release)
    assert made.idle is not None, "its orders run"
    least_found = made.idle.span if span else made.idle.makespan
    written = {"objective": instance.objective, "backward": OWN, "schedule": plain(least_found)}
    said += instance.costs.doubts(instance.kinds)
    told = judge(best, instance, written).accepted()
    return answered(request, instance, best, written, told, source=search.source, stopped=stopped, said=said)


def _library(
    schedule: Schedule, sizes: Mapping[str, Value], instance: Instance, arcs: Arcs, meter: Meter
) -> Iterator[tuple[str, Orders]]:
    """Yield the library's orders of the same operations; under a cap, these include orders designed for a cap."""
    placement = schedule.placement

    def same(other: Placement) -> bool:
        columns = np.array_equal(other.rank_of, placement.rank_of) and np.array_equal(
            other.route_of, placement.route_of
        )
        alike = (other.slices, other.frozen, other.reads) == (placement.slices, placement.frozen, placement.reads)
        return columns and alike

    slots = {key: x for x, (_, key) in enumerate(_slots(schedule))}
    known = {**sizes, "p": schedule.ranks, "m": schedule.microbatches}
    if instance.caps is not None:
        known = {"k": max(1, int(min(instance.caps))), **known}
    plain = placement.chain and placement.slices == 1 and not placement.frozen and not schedule.forward_only
    plain = plain and bool(among(schedule.op, SEARCHED.kinds).all())
    for name in relevant(placement, special=not plain):
        meter.spend(_FILE)
        found = sized(library(name), known, placed=same, max_ops=MAX_OPS)
        listed = [] if found is None else [*_slots(found)]
        if len(listed) == len(slots) and all(slots.get(key, -1) >= 0 for _, key in listed):
            orders: Orders = [[] for _ in range(schedule.ranks)]
            for rank, key in listed:
                orders[rank].append(slots[key])
            yield name, orders


def _slots(schedule: Schedule) -> Iterator[tuple[int, tuple[tuple[int, int, int], ...]]]:
    """Yield the rank and the operations of each slot."""
    each = [*zip(schedule.op.tolist(), schedule.stage.tolist(), schedule.microbatch.tolist(), strict=True)]
    head = [*np.flatnonzero(~schedule.joined).tolist(), len(schedule)]
    for low, high in pairwise(head):
        yield int(schedule.rank[low]), tuple(each[low:high])


def _instance(request: Request, schedule: Schedule, own: Costs) -> Instance:
    costs = costs_of(request, schedule.placement, own)
    costs.require_fit(schedule.stages, schedule.microbatches)
    caps = caps_by_rank(request.mem_cap, schedule.ranks, zero=False)
    fused = bool((schedule.op == Op.B).any())
    return Instance(
        schedule.placement,
        costs,
        request.release,
        caps,
        fused,
        request.objective,
        own=kinds_of(schedule, costs),
    )


def _schedule(schedule: Schedule, arcs: Arcs, orders: Orders) -> Schedule:
    """Return the schedule with the slots of each rank in another order."""
    head = np.append(np.flatnonzero(~schedule.joined), len(schedule))
    at = [i for order in orders for x in order for i in range(head[x], head[x + 1])]
    columns = {name: getattr(schedule, name)[at] for name in ("op", "stage", "microbatch", "second")}
    return replace(schedule, **columns, origin=Nowhere())
