"""The options that planning adds to verbs, as one value: a transformer, its training and a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pipesched.command.options import request
from pipesched.diagnostics import Code, fail
from pipesched.model.columns import makes
from pipesched.model.costs import Costs
from pipesched.model.ops import Result
from pipesched.model.placement import Placement
from pipesched.model.release import caps_by_rank
from pipesched.planning.byte_counts import Bytes, no_bytes
from pipesched.planning.codes import PlanningCode
from pipesched.schedule_analysis import Analysis

if TYPE_CHECKING:
    from pipesched.examine import Options
    from pipesched.formats.readers import Loaded
    from pipesched.planning.transformer.config import Trained
    from pipesched.planning.transformer.devices import Device


@dataclass(frozen=True)
class Workload:
    """The options of planning, as one value. model: determines memory in bytes. device, efficiency: the device, and the
    fraction of its peak FLOP/s that it achieves. cap: the cap in bytes, one for all ranks or one per rank.
    """

    model: Trained | None = None
    device: Device | None = None
    efficiency: Fraction | None = None
    cap: tuple[Fraction, ...] | None = None


def workload(own: Mapping[str, object], given: dict[str, object]) -> Workload:
    """Return the workload of the options. The workload contains the caps if one of them is in bytes."""
    return request(Workload, own, cap=given.pop("mem_cap") if _in_bytes(own.get("mem_cap")) else None)


def _in_bytes(caps: object) -> bool:
    return isinstance(caps, tuple) and any(isinstance(cap, Bytes) for cap in caps)


def byte_caps(made: Analysis) -> tuple[Fraction, ...] | None:
    """Return the cap of each rank in bytes, or None.

    Raises:
        PipeschedError: PS225 if there is not one cap per rank.
    """
    return caps_at(made.of(Workload), made.schedule.ranks)


def caps_at(asked: Workload, ranks: int, *, zero: bool = True) -> tuple[Fraction, ...] | None:
    """Return the cap of each rank in bytes, or None. zero: whether a cap of 0 is allowed.

    Raises:
        PipeschedError: PS225 if there is no model, some caps are in activations, or there is not one cap per rank.
    """
    counted = [cap for cap in asked.cap or () if isinstance(cap, Bytes)]
    if counted and (asked.model is None or len(counted) < len(asked.cap or ())):
        raise no_bytes(counted[0])
    return caps_by_rank(asked.cap, ranks, zero=zero)


def costs(loaded: Loaded, options: Options) -> Costs:
    """Return the costs of a schedule on the device of the options.

    Raises:
        PipeschedError: PS225, PS235 or PS244, as for `own_costs`.
    """
    schedule, asked = loaded.schedule, options.of(Workload)
    again = bool(makes(schedule.op, Result.RECOMPUTED).any())
    return own_costs(asked, schedule.placement, loaded.own_costs, runs_again=again, slices=schedule.slices)


def own_costs(
    asked: Workload, placement: Placement, of_file: Costs, *, runs_again: bool = False, slices: int = 1
) -> Costs:
    """Return the costs in the file; with a device, the model's costs on the device, and M and K from the file.

    Raises:
        PipeschedError: PS225 if a device is given without a model, or an efficiency without a device; PS235 if layers
        cannot be divided; PS244 if the efficiency is 0.
    """
    model, device, efficiency = asked.model, asked.device, asked.efficiency
    if device is None and efficiency is None:
        return of_file
    if device is None or model is None:
        missing = "--device" if device is None else "--model"
        raise fail(Code.USAGE, f"times need {missing}", help="give --model and --device")
    if efficiency == 0:
        raise fail(
            PlanningCode.EFFICIENCY,
            "the efficiency must be above 0",
            help="give a fraction of the peak FLOP/s, such as 0.5",
        )
    from pipesched.planning.transformer.times import on_device

    made = on_device(model, device, efficiency, placement, runs_again=runs_again, slices=slices)
    if unused := [key for key in of_file.given if key not in "MK"]:
        alike = ": every microbatch takes the same time" if {*unused} & {*of_file.by_microbatch} else ""
        made = replace(made, note=f"{made.note}; {', '.join(unused)} of the file not used{alike}")
    return made.over(Costs({key: cost for key, cost in of_file.given.items() if key in "MK"}))
