"""Loads: the costs of a transformer's layers, embedding and head, in a form that a partition can add up.

    layer     costs of one more layer in a stage: time of F, I, W, B, activations of a microbatch, parameters and all
              other memory that does not depend on the order
    first     costs of stage 0 in addition to its layers: the embedding
    last      costs of the last stage in addition to its layers: the norm, the head and the loss

They are inferred from two splits with one layer per stage, except that all other layers are on the last stage, or on
the first. A cost that is not a sum of such loads, as with two kinds of layers, is refused. Times are rounded to whole
nanoseconds per layer. For caps in bytes, the unit of memory is what a microbatch keeps on 1 / p of the layers; loads
are rounded up and caps are rounded down, to a thousandth of the unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from pipesched.diagnostics import fail
from pipesched.model.cost_values import Cost
from pipesched.model.costs import Costs
from pipesched.model.placement import Placement
from pipesched.model.release import Release
from pipesched.optimizer import optimize_bytes
from pipesched.optimizer.codes import OptimizerCode
from pipesched.planning.transformer import activations
from pipesched.planning.transformer.config import Trained
from pipesched.planning.transformer.flops import by_stage as flops_by_stage
from pipesched.planning.workload import Workload, own_costs

_NANO, _FINE = 10**6, 1000  # nanoseconds in a millisecond; parts of the unit of caps
_AWAY = Fraction(10**18)  # bytes added to a cap, so that no split of the two is refused


@dataclass(frozen=True)
class Parts:
    """The summands of a stage's cost: one for each layer, one for stage 0, and one for the last stage."""

    layer: Fraction
    first: Fraction
    last: Fraction


@dataclass(frozen=True)
class InUnits:
    """Caps in bytes, converted to the optimizer's unit. held: the activations of a microbatch, 1 on an average stage;
    there: the memory of a layer that does not depend on the order, in the unit of caps.

    caps: the cap of each rank, before the memory of its layers is subtracted; unit: the bytes in a unit of caps.
    """

    held: Parts
    there: Fraction
    caps: tuple[Fraction, ...]
    release: Release
    unit: Fraction


Split = Sequence[int]


def two_splits(layers: int, stages: int) -> tuple[Split, Split]:
    """Return two splits with one layer per stage, except that all other layers are on the last stage, or the first."""
    most = layers - stages + 1
    return [*[1] * (stages - 1), most], [most, *[1] * (stages - 1)]


def parts_of(column: Callable[[Split], Sequence[Fraction]], layers: int, stages: int, grain: Fraction) -> Parts:
    """Return the parts of a cost. column: function from a split to the cost of each stage; grain: the rounding error
    allowed per layer.

    Raises:
        PipeschedError: PS716: the cost is not a sum of such parts.
    """
    low, high = two_splits(layers, stages)
    ends = column(low), column(high)
    if stages == 1 or layers == stages:
        each = Fraction(0) if layers == stages and stages > 1 else ends[0][0] / layers
        return Parts(each, ends[0][0] - low[0] * each, ends[0][-1] - low[-1] * each if stages > 1 else Fraction(0))
    layer = (ends[1][0] - ends[0][0]) / (layers - stages)
    made = Parts(layer, ends[0][0] - layer, ends[1][-1] - layer)
    even = [layers // stages + (s < layers % stages) for s in range(stages)]
    for split, found in zip((low, high, even), (*ends, column(even)), strict=True):
        told = [n * layer for n in split]
        told[0] += made.first
        told[-1] += made.last
        if any(abs(a - b) > (n + 1) * grain for a, b, n in zip(told, found, split, strict=True)):
            raise fail(
                OptimizerCode.DECISION,
                "the model's layers differ, so the cost of a stage is not the sum of its layers' costs",
                help="give the loads as numbers: --partition LAYERS --cost F=..,I=..,W=.. --head X --embedding X",
            )
    return made


def _laid(trained: Trained, split: Split) -> Trained:
    a, x = trained
    return a, replace(x, layout=tuple(split))


def times(workload: Workload, placement: Placement, kinds: Sequence[str]) -> tuple[dict[str, Parts], Cost, Costs]:
    """Return the times of each kind, the time C, and the costs of one split, whose unit and note apply to all splits.

    Raises:
        PipeschedError: PS225, PS244, PS716.
    """
    assert workload.model is not None
    layers, stages = workload.model[0].layers, placement.stages

    def costs(split: Split) -> Costs:
        assert workload.model is not None
        return own_costs(replace(workload, model=_laid(workload.model, split)), placement, Costs())

    def column(kind: str) -> Callable[[Split], Sequence[Fraction]]:
        return lambda split: _listed(costs(split)[kind], stages)

    made = {kind: parts_of(column(kind), layers, stages, Fraction(1, _NANO)) for kind in kinds}
    rounded = {kind: Parts(*map(_nano, (one.layer, one.first, one.last))) for kind, one in made.items()}
    found = costs(two_splits(layers, stages)[0])
    message = found["C"]
    return rounded, message if message is not None else Fraction(0), found


def head_of(trained: Trained, stages: int) -> Fraction:
    """Return the FLOPs of the head as a multiple of a layer's FLOPs, for use if no device is given."""
    a, x = trained
    made = parts_of(
        lambda split: [one.forward for one in flops_by_stage(*_laid((a, x), split), stages)],
        a.layers,
        stages,
        Fraction(1),
    )
    return Fraction(round(made.last / made.layer * 100), 100)


def in_units(
    workload: Workload,
    placement: Placement,
    release: Release,
    caps: tuple[Fraction, ...],
    *,
    fused: bool,
    aside: tuple[int, ...] | None,
) -> InUnits:
    """Convert caps in bytes to the unit of the optimizer.

    Raises:
        PipeschedError: PS235, PS716.
    """
    assert workload.model is not None
    trained, stages = workload.model, placement.stages
    layers = trained[0].layers

    def room(split: Split) -> optimize_bytes.Room:
        far = tuple(cap + _AWAY for cap in caps)
        way = (_laid(trained, split), placement, Costs(), release, far)
        return optimize_bytes.room(*way, fused=fused, aside=aside, until_w=True)

    def saved(split: Split) -> Sequence[Fraction]:
        return [Fraction(ceil(one.saved)) for one in activations.by_stage(*_laid(trained, split), stages)]

    held = parts_of(saved, layers, stages, Fraction(1))
    unit = held.layer * layers / placement.ranks
    share = Fraction(stages, placement.ranks)
    rooms = [room(split) for split in two_splits(layers, stages)]
    there = (rooms[0].left[0] - rooms[1].left[0]) / max(layers - stages, 1)
    split = two_splits(layers, stages)[0]
    own = placement.rank_of[0].tolist()
    count = [sum(n for n, rank in zip(split, own, strict=True) if rank == r) for r in range(placement.ranks)]
    left = [bytes - _AWAY + n * there for bytes, n in zip(rooms[0].left, count, strict=True)]
    latest = max((one.release for one in rooms), key=lambda rule: rule.at_weight)
    return InUnits(
        Parts(Fraction(stages, layers), *(_up(end * share / unit) for end in (held.first, held.last))),
        _up(there / unit),
        tuple(Fraction(floor(_FINE * bytes / unit), _FINE) for bytes in left),
        latest,
        unit,
    )


def _up(share: Fraction) -> Fraction:
    return max(Fraction(0), Fraction(ceil(_FINE * share), _FINE))


def _nano(x: Fraction) -> Fraction:
    return max(Fraction(0), Fraction(round(x * _NANO), _NANO))


def _listed(cost: Cost | None, stages: int) -> Sequence[Fraction]:
    if isinstance(cost, tuple):
        return cost
    assert isinstance(cost, Fraction | int), "the costs of a model are given by stage"
    return (Fraction(cost),) * stages
