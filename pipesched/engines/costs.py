"""The costs that follow from parts, and the communication that compute does not hide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from pipesched.analysis.timeline import slot_costs
from pipesched.diagnostics import Code, fail
from pipesched.engines.codes import EngineCode
from pipesched.engines.parts import Parts, Slots
from pipesched.model.costs import Costs
from pipesched.model.numbers import exact, percent
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.planning.workload import Workload
from pipesched.report.parts import Part
from pipesched.schedule_analysis import Analysis

if TYPE_CHECKING:
    from pipesched.examine import Examination, Options
    from pipesched.formats.readers import Loaded

_LOADS = {Op.F: "F", Op.I: "I", Op.W: "W", Op.B: "IW"}
"""The letters whose parts an operation runs."""


def costs(loaded: Loaded, options: Options) -> Costs:
    """Return the costs of a schedule whose stages run these parts.

    Raises:
        PipeschedError: PS225, with a device; PS263, a stage has no whole number of layers; PS264, the order has
            operations or pairs whose times do not follow from parts.
    """
    parts, schedule = options.of(Parts), loaded.schedule
    if options.of(Workload).device is not None:
        raise fail(Code.USAGE, "--parts and --device both give the costs", help="give one of them")
    made = slots(parts, schedule)
    _require_known(schedule)
    unit, given = parts.unit, {"F": made.row("F"), "I": made.row("I"), "W": made.row("W"), "B": made.backward}
    said = f"parts of {parts.name}, {made.layers} layers a stage"
    if bool(schedule.joined.any()):
        given["FB"] = made.overlap
        said += f": FB {unit.text(made.overlap)} as issued, no order is below {unit.text(made.least)}"
    return Costs(given, said, unit)


def slots(parts: Parts, schedule: Schedule) -> Slots:
    """Return the times of the slots of a schedule's stages.

    Raises:
        PipeschedError: PS263.
    """
    ranks, stages = schedule.ranks, schedule.stages
    layers = parts.of_stage(ranks, stages)
    if layers.denominator > 1 or layers < 1:
        raise fail(
            EngineCode.PARTS_LAYERS,
            f"{parts.layers} layers of 1/p of the model are {layers} of a stage: {stages} stages on {ranks} ranks",
            help=f"give `layers` a multiple of {Fraction(stages, ranks).numerator}, or another v",
        )
    return Slots(parts.letters, int(layers))


def _require_known(schedule: Schedule) -> None:
    """Raise PipeschedError, PS264, for operations and pairs whose times do not follow from parts."""
    if others := sorted({Op(op).name for op in np.unique(schedule.op).tolist()} - {op.name for op in _LOADS}):
        raise fail(
            EngineCode.PARTS_PAIR,
            f"the times of {' and '.join(others)} do not follow from parts",
            help=f"give --cost for all kinds instead: {', '.join(others)} too",
        )
    second = np.flatnonzero(schedule.joined)
    if len(other := second[schedule.op[second] != Op.B]):
        raise fail(
            EngineCode.PARTS_PAIR,
            f"the time of {schedule.slot(int(other[0]))} does not follow from parts: only F + B has an issue list",
            help="give the times of operations with --cost instead",
        )


COUNTED = "work, idle / work and claims count exposed time as work"
"""The remark beside every figure of exposed time: a slot is one block of its rank's time."""


@dataclass(frozen=True)
class Exposed(Part):
    """The communication by rank, in a row (`all`), and the part of it that compute does not hide (`exposed`)."""

    key = "exposed"

    all: tuple[Fraction, ...]
    exposed: tuple[Fraction, ...]
    asked: Parts

    @property
    def hidden(self) -> Fraction | None:
        """The hidden share of the communication of all ranks; None without any."""
        return share(self.all, self.exposed)

    def cells(self) -> list[str]:
        """Return the most that is exposed on a rank, and the hidden share."""
        most = self.asked.unit.text(max(self.exposed, default=Fraction(0)))
        return [most, "-" if self.hidden is None else percent(self.hidden)]

    def short(self) -> list[str]:
        """Return the most that is exposed on a rank."""
        return [f"exposed {self.cells()[0]}"]

    def lines(self) -> list[str]:
        """Return the most that is exposed on a rank, and the hidden share."""
        if self.hidden is None:
            return ["no parts are on another engine: nothing is exposed"]
        said, most = self.asked.unit.text, max(self.exposed)
        rank = self.exposed.index(most)
        hidden = f"{percent(self.hidden)} of all ranks' is hidden"
        return [f"exposed {said(most)} of {said(self.all[rank])} on other engines, on rank {rank}; {hidden}", COUNTED]

    def to_json(self) -> dict[str, object]:
        """Return the times by rank, and the hidden share."""
        return {**exact(all=self.all, exposed=self.exposed, hidden=self.hidden), "counted": COUNTED}


def share(all: Iterable[Fraction], exposed: Iterable[Fraction]) -> Fraction | None:
    """Return the share that is not exposed."""
    total = sum(all, Fraction(0))
    return 1 - sum(exposed, Fraction(0)) / total if total else None


def exposed(made: Examination) -> Exposed | None:
    """Return the communication that a schedule does not hide; None for an order that does not end."""
    analysis: Analysis = made.analysis
    asked = analysis.of(Parts)
    if not (analysis.finished and asked.letters):
        return None
    schedule, times, ticks = analysis.schedule, slots(asked, analysis.schedule), analysis.ticks
    unit = analysis.costs.unit
    factor = asked.unit.seconds / unit.seconds if unit and asked.unit else Fraction(1)
    rows = {op: sum((times.row(letter) for letter in letters), Fraction(0)) for op, letters in _LOADS.items()}
    loads = {op: times.load(letters) for op, letters in _LOADS.items()}
    times_of = [factor * x for x in (*loads.values(), *rows.values())]
    scale = lcm(ticks.scale, *(x.denominator for x in times_of))
    own, every = np.zeros((2, len(Op)), dtype=np.int64)
    own[list(loads)], every[list(rows)] = np.array([int(x * scale) for x in times_of], dtype=np.int64).reshape(2, -1)
    if not len(schedule):
        return None
    head = np.flatnonzero(~schedule.joined)
    took = slot_costs(schedule, ticks)[head] * (scale // ticks.scale)
    alone = np.maximum(took - np.add.reduceat(own[schedule.op], head), 0)
    by_rank = np.zeros((2, schedule.ranks), dtype=np.int64)
    np.add.at(by_rank[0], schedule.rank, (every - own)[schedule.op])
    np.add.at(by_rank[1], schedule.rank[head], alone)
    total, left = ([Fraction(x, scale) for x in row] for row in by_rank.tolist())
    return Exposed(tuple(total), tuple(left), asked)
