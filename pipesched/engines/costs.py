"""Costs derived from parts, and the communication that compute does not hide."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from pipesched.analysis.timeline import paired, slot_costs
from pipesched.diagnostics import Code, fail
from pipesched.engines.codes import EngineCode
from pipesched.engines.of_model import of_model
from pipesched.engines.pair import TooLong
from pipesched.engines.parts import LETTERS, MORE, OWN, Chain, Parts, Stage, least, slot
from pipesched.extension import Extended
from pipesched.model.columns import Ints
from pipesched.model.cost_values import Cost, scale_of
from pipesched.model.costs import PAIRS, Costs
from pipesched.model.grid import Grid
from pipesched.model.numbers import exact, percent
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.planning.workload import Workload
from pipesched.report.parts import Part
from pipesched.schedule_analysis import Analysis

if TYPE_CHECKING:
    from pipesched.examine import Examination, Options
    from pipesched.formats.readers import Loaded

_COARSER = "a larger unit of time"
_KINDS = {Op.F: "F", Op.I: "I", Op.W: "W", Op.B: "B"}


def costs(loaded: Loaded, options: Options) -> Costs:
    """Return the costs of a schedule whose stages run the given parts.

    Raises:
        PipeschedError: PS225 if a device is also given; PS263 for a stage without a whole number of layers; PS264 if
            the order has operations whose times do not follow from parts.
    """
    schedule = loaded.schedule
    parts = of_options(options, schedule.placement)
    stages, index = made(parts, schedule)
    _require_known(schedule)
    given: dict[str, Cost] = {}
    for kind in _KINDS.values():
        times = [slot(kind, stage, stage) for stage in stages]
        given[kind] = times[0] if len(times) == 1 else tuple(times[at] for at in index)
    layers = stages[0].F.layers
    said = [f"parts of {parts.name}" + ("" if parts.stages else f", {layers} layer{'s' * (layers > 1)} per stage")]
    own = loaded.own_costs.given
    kept = {**{key: own[key] for key in (MORE if options.of(Parts).stages else "MK") if key in own}, **parts.costs}
    measured = {*kept, *(options.costs.given if options.costs else ())}
    said += [f"{key} as given" for key in _KINDS.values() if key in measured]
    for key in PAIRS:
        second = np.flatnonzero(paired(schedule, key))
        if len(second):
            given[key] = _pairs(key, schedule, second, stages, index)
            said += _said(key, given[key], parts, stages) if key not in measured else [f"{key} as given"]
    return Costs({**given, **kept}, ": ".join([said[0], ", ".join(said[1:])] if said[1:] else said), parts.unit)


def _said(key: str, cost: Cost, parts: Parts, stages: list[Stage]) -> list[str]:
    """Describe the time of pairs of one kind, and for F + B the lower bound."""
    if not isinstance(cost, Fraction):
        return [f"{key} by stage" + " as issued" * (key == "FB")]
    text = f"{key} {parts.unit.text(cost)}"
    if key != "FB":
        return [text]
    lowest = min(least(one, other) for one in stages for other in stages)
    return [f"{text} as issued; no order takes less than {parts.unit.text(lowest)}"]


def _pairs(key: str, schedule: Schedule, second: Ints, stages: list[Stage], index: list[int]) -> Cost:
    """Return the times of pairs of one kind; if the times differ, by stage and microbatch of the pair's first
    operation.
    """
    of = np.array(index, dtype=np.int64)
    first, other = (schedule.stage[at] for at in (second - 1, second))
    which, inverse = np.unique(of[first] * len(stages) + of[other], return_inverse=True)
    try:
        times = [slot(key, stages[at // len(stages)], stages[at % len(stages)]) for at in which.tolist()]
    except TooLong:
        message = f"the least time of {key[0]} + {key[1]} is unknown: there are too many parts to try every order"
        raise fail(EngineCode.PARTS_PAIR, message, help=f"give --cost {key}=..., or fewer parts or layers") from None
    if len(set(times)) == 1:
        return times[0]
    scale = scale_of(times, _COARSER)
    whole = np.zeros((schedule.stages, schedule.microbatches), dtype=np.int64)
    whole[first, schedule.microbatch[second - 1]] = np.array([int(x * scale) for x in times])[inverse]
    return Grid(whole, scale)


def of_options(options: Extended, placement: Placement) -> Parts:
    """Return the parts that apply: those in a file, those of a schedule, or those of a model's layers on a device.

    Raises:
        PipeschedError: PS225 if parts from a file and a device are both given, or if parts of a model lack the model or
            the device.
    """
    parts, work = options.of(Parts), options.of(Workload)
    if parts.of_model:
        return of_model(work, placement)
    if work.device is not None:
        help = "give one of them, or use --parts model to derive parts from the layers of --model on --device"
        raise fail(Code.USAGE, f"parts of {parts.name} and --device both determine the costs", help=help)
    return parts


def made(parts: Parts, schedule: Schedule) -> tuple[list[Stage], list[int]]:
    """Return the parts of the distinct stages, and for each stage its index among them.

    Raises:
        PipeschedError: PS263.
    """
    if parts.stages:
        stages = list(dict.fromkeys({id(x): x for x in parts.stages}.values()))
        number = {id(stage): stages.index(stage) for stage in {id(x): x for x in parts.stages}.values()}
        return stages, [number[id(stage)] for stage in parts.stages]
    count = schedule.stages
    layers = parts.of_stage(schedule.ranks, count)
    if layers.denominator > 1 or layers < 1:
        raise fail(
            EngineCode.PARTS_LAYERS,
            f"{parts.layers} layers per rank are {layers} layers per stage: {count} stages on {schedule.ranks} ranks",
            help=f"set `layers` to a multiple of {Fraction(count, schedule.ranks).numerator}, or give another v",
        )
    return [Stage(*(Chain(int(layers), parts.letters.get(letter, ())) for letter in LETTERS))], [0] * count


def _require_known(schedule: Schedule) -> None:
    """Raise PipeschedError, PS264, for operations whose times do not follow from parts."""
    if others := sorted({Op(op).name for op in np.unique(schedule.op).tolist()} - {*_KINDS.values()}):
        raise fail(
            EngineCode.PARTS_PAIR,
            f"parts do not determine the times of {' and '.join(others)}",
            help=f"give --cost for every kind instead, including {', '.join(others)}",
        )


COUNTED = "work, idle / work and claims count exposed time as work"
"""The remark that accompanies every exposed time, since a slot occupies its rank as one block."""


@dataclass(frozen=True)
class Exposed(Part):
    """Times of communication by rank. all: the total time. exposed: the part that does not overlap compute."""

    key = "exposed"

    all: tuple[Fraction, ...]
    exposed: tuple[Fraction, ...]
    asked: Parts

    @property
    def hidden(self) -> Fraction | None:
        """The share of all ranks' communication that overlaps compute; None without communication."""
        return share(self.all, self.exposed)

    def cells(self) -> list[str]:
        """Return the largest exposed time of a rank, and the hidden share."""
        most = self.asked.unit.text(max(self.exposed, default=Fraction(0)))
        return [most, "-" if self.hidden is None else percent(self.hidden)]

    def short(self) -> list[str]:
        """Return the largest exposed time of a rank."""
        return [f"exposed {self.cells()[0]}"]

    def lines(self) -> list[str]:
        """Return the largest exposed time of a rank, and the hidden share."""
        if self.hidden is None:
            return ["all parts run on the same engine, so no communication is exposed"]
        said, most = self.asked.unit.text, max(self.exposed)
        rank = self.exposed.index(most)
        hidden = f"over all ranks {percent(self.hidden)} is hidden"
        return [f"exposed {said(most)} of {said(self.all[rank])} on other engines, on rank {rank}; {hidden}", COUNTED]

    def to_json(self) -> dict[str, object]:
        """Return the times by rank, and the share of communication that overlaps compute."""
        return {**exact(all=self.all, exposed=self.exposed, hidden=self.hidden), "counted": COUNTED}


def share(all: Iterable[Fraction], exposed: Iterable[Fraction]) -> Fraction | None:
    """Return the share of communication that is not exposed."""
    total = sum(all, Fraction(0))
    return 1 - sum(exposed, Fraction(0)) / total if total else None


def exposed(examination: Examination) -> Exposed | None:
    """Return the times of communication, and of its exposed part; None without parts or for an order that deadlocks."""
    analysis: Analysis = examination.analysis
    schedule, ticks = analysis.schedule, analysis.ticks
    if not (analysis.finished and analysis.of(Parts).given and len(schedule)):
        return None
    asked = of_options(analysis, schedule.placement)
    (stages, index), unit = made(asked, schedule), analysis.costs.unit
    factor = asked.unit.seconds / unit.seconds if unit and asked.unit else Fraction(1)

    def times(load: Callable[[Chain], Fraction]) -> list[Fraction]:
        return [factor * sum(map(load, stage.chains(kind))) for kind in _KINDS.values() for stage in stages]

    rows = times(lambda chain: chain.load(OWN)), times(Chain.load)
    scale = scale_of([Fraction(1, ticks.scale), *(x for row in rows for x in row)], _COARSER)
    tables = np.zeros((2, len(Op), len(stages)), dtype=np.int64)
    tables[:, list(_KINDS)] = np.array([[int(x * scale) for x in row] for row in rows]).reshape(2, -1, len(stages))
    own, every = tables[:, schedule.op, np.array(index)[schedule.stage]]
    head = np.flatnonzero(~schedule.joined)
    took = slot_costs(schedule, ticks)[head] * (scale // ticks.scale)
    by_rank = np.zeros((2, schedule.ranks), dtype=np.int64)
    np.add.at(by_rank[0], schedule.rank, every - own)
    np.add.at(by_rank[1], schedule.rank[head], np.maximum(took - np.add.reduceat(own, head), 0))
    total, left = ([Fraction(x, scale) for x in row] for row in by_rank.tolist())
    return Exposed(tuple(total), tuple(left), asked)
