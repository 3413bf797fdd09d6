"""The answer to a request with a decision: the best alternative, its order, and the proof that no other is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pipesched.diagnostics import Code, fail
from pipesched.model.cost_values import Cost
from pipesched.model.costs import Costs
from pipesched.model.grid import Grid
from pipesched.model.placement import Placement
from pipesched.model.release import caps_by_rank
from pipesched.model.schedule import Schedule
from pipesched.optimizer.answer_of import answered
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.decisions.loads import InUnits, Parts, head_of, in_units, times
from pipesched.optimizer.decisions.partition import Partition
from pipesched.optimizer.decisions.search import Best, Searcher, instance_of
from pipesched.optimizer.optimize_certify import certified
from pipesched.optimizer.optimize_report import Optimum, notes
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.certificate import certificate
from pipesched.optimizer.solve.instance import Instance, placement_at, sizes_of
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.search.state import Refutation, State
from pipesched.optimizer.verdict import Verdict
from pipesched.optimizer.within_bytes import fitted
from pipesched.planning.byte_counts import Bytes, gigabytes
from pipesched.planning.workload import caps_at

if TYPE_CHECKING:
    from pipesched.optimizer.optimize_request import Request

_SEARCH = 0.85  # part of the time for the search; the rest is for a proof


def decided(request: Request, progress: Callable[[State], None], meter: Meter) -> Optimum:
    """Find the best alternative of a decision, and its best order. meter: counts steps up to the limit.

    Raises:
        PipeschedError: PS2xx: the options are invalid. PS503, PS504: a cap in bytes is too low. PS701: no alternative
            fits. PS716: the layers cannot be divided.
    """
    if request.source is not None:
        help = "omit the schedule; give its placement with `--placement FILE`, and the sizes"
        raise fail(Code.USAGE, "--partition changes the costs of stages, so it does not accept a schedule", help=help)
    placement = placement_at(request.placement, sizes_of(request.placement, request.parameters))

    def once(asked: Request, meter: Meter) -> Optimum:
        decision, units = partition(asked, placement)
        found = _answered(decision, asked, progress, meter)
        if units is None:
            return found
        note = (
            f"the cap is in bytes: a microbatch holds {gigabytes(units.unit)} in 1/{placement.ranks} of the layers; "
            "memory is rounded up and caps are rounded down, so an order slightly above a rounded cap may still fit"
        )
        return replace(found, notes=(note, *found.notes))

    return once(request, meter) if request.workload.cap is None else fitted(request, once, meter)


def _answered(decision: Partition, request: Request, progress: Callable[[State], None], meter: Meter) -> Optimum:
    """Find the best alternative and its best order, and have the checker judge both; raise PS701 if none fits."""
    with meter.part(_SEARCH) as part:
        best = Searcher(decision, request.limits, progress, part).run()
    if best.choice is None or best.state is None or best.state.best is None:
        message = f"none of {decision.count:,} splits has a schedule within the caps"
        raise fail(OptimizerCode.INFEASIBLE, message, help="use a higher cap, fewer layers per rank, or more ranks")
    instance, state = instance_of(decision, best.choice), best.state
    schedule = replace(convert.to_schedule(state.problem, best.state.best), name=request.name)
    written, judged = _judged(decision, best, instance, schedule, meter)
    stopped, said = best.stopped or state.stopped, notes(instance, state)
    return answered(request, instance, schedule, written, judged, source=state.source, stopped=stopped, said=said)


def _judged(
    decision: Partition, best: Best, instance: Instance, schedule: Schedule, meter: Meter
) -> tuple[dict[str, object], Verdict]:
    """Return the certificate of the answer, and the checker's verdict on it."""
    assert best.state is not None and best.choice is not None
    state = best.state
    entry: dict[str, object] = {
        "kind": "partition",
        "taken": list(best.choice),
        "proofs": [
            {"taken": list(choice), **({"lrat": text} if text else {})} for choice, text in sorted(best.proofs.items())
        ],
        **decision.to_json(),
    }
    alone = judge(schedule, instance, certificate(instance, state)).accepted()
    proof = None
    if alone.word:
        ranks = None if state.refuted is None else state.refuted.ranks
        below = state.problem.time(state.lower - 1)
        proof = certified(instance, below, ranks[0] if ranks else None, None, Meter(meter.left)).entry or None
        if proof is None:
            state.believe_no_engine()
    elif alone.lower < state.problem.time(state.lower) and state.refuted is None:
        state.refuted = Refutation(state.lower - 1, "ranks", None)  # the checker's formulas show a weaker bound
        if judge(schedule, instance, certificate(instance, state)).accepted().word:
            state.refuted = None
    written = certificate(instance, state, None, proof) | {"decision": entry}
    return written, judge(schedule, instance, written).accepted()


def _require_divisible(placement: Placement, layers: int) -> None:
    """Raise PipeschedError, PS716, if layers cannot be divided among the stages of a placement."""
    if placement.routes > 1:
        message = "layers cannot be divided if two routes each have a copy of every stage"
        raise fail(OptimizerCode.DECISION, message, help="use a placement with one route")
    if placement.frozen or not placement.chain:
        message = f"layers can be divided only among trained stages in a chain: {placement.skip or 'frozen'}"
        raise fail(OptimizerCode.DECISION, message, help="use a chain of stages that are all trained")
    if layers < placement.stages:
        message = f"{layers} layers are too few for {placement.stages} stages, which need at least one each"
        raise fail(OptimizerCode.DECISION, message, help="use fewer ranks, fewer stages per rank, or more layers")


def _loads(
    request: Request, placement: Placement, kinds: tuple[str, ...]
) -> tuple[dict[str, dict[str, Fraction]], Costs]:
    """Return the times of a layer, the embedding and the head, each by kind; and the costs in effect."""
    asked, workload = request.decide, request.workload
    assert asked is not None
    model = workload.model
    costs = request.costs or Costs()
    ends = {"first": asked.embedding or Fraction(0), "last": asked.head or Fraction(0)}
    if model is not None and workload.device is not None and asked.embedding is None and asked.head is None:
        found, message_cost, whole = times(workload, placement, kinds)
        costs = costs.over(Costs({"C": message_cost}, whole.note, whole.unit))
        loads = {name: {kind: getattr(found[kind], name) for kind in kinds} for name in ("layer", "first", "last")}
    else:
        if model is not None and asked.head is None:
            ends["last"] = head_of(model, placement.stages)
        one = {kind: _scalar(kind, costs[kind]) for kind in kinds}
        loads = {"layer": one, **{name: {kind: x * one[kind] for kind in kinds} for name, x in ends.items()}}
    return loads, costs


def partition(request: Request, placement: Placement) -> tuple[Partition, InUnits | None]:
    """Return all splits of the layers and, if the caps are in bytes, these caps in the optimizer's unit.

    Raises:
        PipeschedError: PS225: the options contradict each other. PS716: the layers cannot be divided.
    """
    asked, workload = request.decide, request.workload
    assert asked is not None and asked.partition is not None
    fused = bool(request.fused)
    layers = _layers(request)
    _require_divisible(placement, layers)
    kinds = ("F", "B") if fused else ("F", "I", "W")
    loads, costs = _loads(request, placement, kinds)
    held = Parts(_scalar("M", costs["M"]) * Fraction(placement.stages, layers), Fraction(0), Fraction(0))
    caps, release, units = caps_by_rank(request.mem_cap, placement.ranks, zero=False), request.release, None
    if (counted := caps_at(workload, placement.ranks, zero=False)) is not None:
        units = in_units(workload, placement, release, counted, fused=fused, aside=request.aside)
        held, caps, release = units.held, units.caps, units.release
        loads["layer"]["S"] = units.there
    loads = {name: {**load, "M": getattr(held, name)} for name, load in loads.items()}
    asked_caps = tuple(cap for cap in workload.cap or () if isinstance(cap, Bytes)) or None
    base = Instance(
        placement,
        Costs(note=costs.note, unit=costs.unit),
        release,
        caps,
        fused,
        objective=request.objective,
        asked=asked_caps,
        of_one=None if units is None else units.unit,
    )
    return Partition(base, layers, loads["layer"], loads["first"], loads["last"], _message(costs["C"])), units


def _layers(request: Request) -> int:
    """Return the number of layers; raise PipeschedError, PS225, if it is missing or contradicts the model."""
    assert request.decide is not None and request.decide.partition is not None
    layers, model = request.decide.partition, request.workload.model
    if model is None:
        if not layers:
            raise fail(Code.USAGE, "--partition model requires --model", help="give --model, or the number of layers")
        return layers
    if layers not in (0, model[0].layers):
        message = f"--partition divides {layers} layers, but {model[0].name} has {model[0].layers}"
        raise fail(Code.USAGE, message, help="give --partition model")
    return model[0].layers


def _scalar(key: str, cost: Cost | None) -> Fraction:
    """Return the cost of one layer; raise PipeschedError, PS716, if it is given by stage."""
    if isinstance(cost, tuple | Grid) or cost is None:
        message = f"the cost {key} is given by stage, but the partition determines the stages"
        raise fail(
            OptimizerCode.DECISION, message, help=f"give {key} for one layer, and --head and --embedding in layers"
        )
    return Fraction(cost)


def _message(cost: Cost | None) -> Cost:
    if isinstance(cost, Grid):
        raise fail(OptimizerCode.DECISION, "C differs between microbatches", help="give one number, or one per stage")
    return Fraction(0) if cost is None else cost
