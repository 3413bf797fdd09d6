"""Costs of a model on a device, in milliseconds, for `verify`, `compare` and `optimize`.

    F, I, W    by `shapes`, or with a flat efficiency operations / (peak x efficiency); messages between the ranks of a
               layer, a sequence or experts; what ZeRO 2 and 3 send between copies for every microbatch
    R          F, if the schedule itself recomputes; then I recomputes nothing
    C          the message of a stage / the bandwidth to its slower neighbour
    O, L       the bytes that one microbatch saves / the bandwidth to host memory

Costs are rounded to nanoseconds, so that sums remain exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from pipesched.diagnostics import fail
from pipesched.model.cost_values import Cost
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.placement import Placement
from pipesched.model.units import MILLISECONDS
from pipesched.planning.codes import PlanningCode
from pipesched.planning.transformer import activations, flops, parameters, shapes, traffic
from pipesched.planning.transformer.config import Trained, Training, Transformer
from pipesched.planning.transformer.devices import HALF, Device
from pipesched.planning.transformer.rules import layers_of
from pipesched.planning.transformer.shapes import PICO, Machine, machine
from pipesched.planning.transformer.trainers import DEFAULT
from pipesched.planning.transformer.trust import trust

_NANO = 10**6  # nanoseconds in a millisecond


def costs(
    a: Transformer,
    x: Training,
    device: Device,
    ranks: Sequence[int],
    efficiency: Fraction = HALF,
    *,
    runs_again: bool = False,
    slices: int = 1,
    overlap: Fraction = Fraction(1),
    on: Machine | None = None,
) -> Costs:
    """Return F, I, W, B, C, O and L of every stage. ranks: the rank of each stage in the pipeline. runs_again: whether
    the schedule has R. slices: the number of slices per sequence, each of which takes the same time.

    overlap: the share of the messages between copies that may overlap compute; ranks wait for the rest. on: the machine
    for times by shape, which replace the flat efficiency.

    Raises:
        PipeschedError: PS235.
    """
    stages = len(ranks)
    way = replace(x, recompute="none") if runs_again else x
    saved = activations.by_stage(a, replace(x, recompute="none"), stages)
    device = within(device, x, ranks)
    parts = parameters.by_stage(a, x, stages) if x.zero >= 2 else [()] * stages
    between = replace(on, device=device).between(x.zero) if on else device
    shares = traffic.shares(a, x, between)
    copies = [traffic.each_microbatch(x, parameters.counts(of), shares) for of in parts]
    found: dict[str, list[Fraction]] = {kind: [] for kind in "FIWBC"}
    computed = _by_shape(a, way, on, stages) if on else _flat(a, way, device, stages, efficiency)
    for stage, (layers, alone) in enumerate(zip(layers_of(a, x, stages), computed, strict=True)):
        part = alone[0] / slices, alone[1] / slices, alone[2] / slices  # all parameters are sent for every slice
        more = traffic.waits(copies[stage], part, len(layers), overlap)
        for kind, time, longer in zip("FIWB", (*alone, alone[1] + alone[2]), more, strict=True):
            found[kind].append(time + slices * longer)
        near = [link(x, device, ranks[stage], ranks[i]) for i in (stage - 1, stage + 1) if 0 <= i < stages]
        found["C"].append(_message(a.at(layers.start), x, min(near), on) if near else Fraction(0))
    if x.zero < 2:
        del found["B"]  # B is I + W
    found["O"] = [each.saved / device.host for each in saved]
    given: dict[str, Cost] = {key: tuple(milliseconds(one / slices) for one in row) for key, row in found.items()}
    return Costs(given, unit=MILLISECONDS)


def _flat(
    a: Transformer, x: Training, device: Device, stages: int, efficiency: Fraction
) -> Iterator[tuple[Fraction, Fraction, Fraction]]:
    """Yield the seconds of F, I and W of each stage at a flat share of the peak, without messages between copies."""
    rate = device.flops * efficiency
    for layers, each in zip(layers_of(a, x, stages), flops.by_stage(a, x, stages), strict=True):
        there, back = (
            sum((traffic.seconds(x, device, way_of(a, x, i)) for i in layers), Fraction(0))
            for way_of in (traffic.forward, traffic.backward)
        )
        yield each.forward / rate + there, each.input / rate + back, each.weights / rate


def _by_shape(a: Transformer, x: Training, on: Machine, stages: int) -> Iterator[tuple[Fraction, Fraction, Fraction]]:
    """Yield the seconds of F, I and W of each stage by shape, without messages between copies."""
    for number, layers in enumerate(layers_of(a, x, stages)):
        one = shapes.stage(a, x, on, layers, first=number == 0, last=number == stages - 1)
        yield Fraction(one.forward, PICO), Fraction(one.input, PICO), Fraction(one.weights, PICO)


def _message(a: Transformer, x: Training, link: Fraction, on: Machine | None) -> Fraction:
    return Fraction(shapes.message(a, x, on, link), PICO) if on else activations.boundary(a, x) / link


def on_device(
    trained: Trained,
    device: Device,
    efficiency: Fraction | None,
    placement: Placement,
    *,
    runs_again: bool,
    slices: int = 1,
) -> Costs:
    """Return all costs of a placement, with their assumptions.

    Raises:
        PipeschedError: PS235; PS253 if times are not predicted for this class of models.
    """
    a, x = trained
    on = machine(device, x.trainer or DEFAULT) if efficiency is None else None
    doubt = trust(a, x, on, x.tensor * x.context * x.data * placement.ranks)
    if not doubt.timed:
        help = "give --efficiency 50% for a flat share of the peak, or leave out --device"
        raise fail(PlanningCode.NO_TIMES, doubt.why, help=help)
    way = {"overlap": 1 - on.shown(x.zero)} if on else {}
    efficiency = HALF if efficiency is None else efficiency
    ranks = placement.rank_of[0].tolist()
    made = costs(a, x, device, ranks, efficiency, runs_again=runs_again, slices=slices, on=on, **way)
    given = {**made.given, "R": made["F"], "L": made["O"], "B": made["B"]}
    peak, links = device.flops / 10**12, [shown(rate / 10**9) for rate in (device.node, device.network)]
    reached = f"at {shown(100 * efficiency)} % of {shown(peak)} TFLOP/s"
    hidden = "messages between ranks of a layer are not overlapped"
    if on is not None:
        reached = f"by the shapes of its operations at a peak of {shown(peak)} TFLOP/s, under {on.trainer.name}"
        hidden = "constants as fitted to published runs"
    note = f"{a.name} on {device.name} {reached}, {links[0]} GB/s in a node, {links[1]} GB/s beyond; {hidden}"
    if x.data * x.context > 1:
        note += ", without the messages that copies exchange once per step"
        note += "; ZeRO's messages in every microbatch overlap compute" if x.zero >= 2 else ""
    if slices > 1:
        note += f"; a slice takes 1/{slices} of its sequence's time, as if each attended to the whole sequence"
    return Costs({key: cost for key, cost in given.items() if cost is not None}, note, MILLISECONDS)


def within(device: Device, x: Training, ranks: Sequence[int]) -> Device:
    """Return the device, with its node size limited to the size of the job. ranks: the rank of each stage in the
    pipeline.
    """
    return replace(device, node_size=min(device.node_size, x.tensor * x.context * x.data * (max(ranks) + 1)))


def milliseconds(seconds: Fraction) -> Fraction:
    """Round to the nanosecond, in milliseconds."""
    return Fraction(round(seconds * 1000 * _NANO), _NANO)


def link(x: Training, device: Device, one: int, other: int) -> Fraction:
    """Return the bandwidth between two ranks of the pipeline, each with t c d adjacent devices."""
    wide = x.tensor * x.context * x.data
    first, last = min(one, other) * wide, (max(one, other) + 1) * wide - 1
    return device.node if first // device.node_size == last // device.node_size else device.network
