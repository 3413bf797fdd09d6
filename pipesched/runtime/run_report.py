"""Reports a run next to its prediction, as text and as JSON.

    gradients   of every tensor, every step       the gradients of the undivided model
    outputs     of every microbatch               likewise, for a schedule without a backward
    peak        counted from tensors that autograd keeps  the prediction at release W
    time        of a step                         the makespan at the paced times of the compute operations

The predicted time of a step assumes that messages take no time, since their time cannot be set. The excess over it is
time for messages, dispatch, and waiting for a core.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from pipesched import render
from pipesched.analysis.idle import bubble, split_length
from pipesched.diagnostics import Diagnostic, Judged
from pipesched.model.cost_values import Cost, most
from pipesched.model.costs import Costs
from pipesched.model.grid import Grid
from pipesched.model.numbers import exact, shown
from pipesched.model.ops import LETTERS
from pipesched.model.schedule import Program
from pipesched.model.units import NO_UNIT
from pipesched.runtime.codes import RuntimeCode
from pipesched.runtime.execute.launch import Job
from pipesched.schedule_analysis import Analysis
from pipesched.verbs.emit import Emission
from pipesched.versions.report import VersionPart

TOLERANCE = 1e-12
"""The tolerance for gradients in float64, which allows for sums of a few hundred terms in a different order."""

_INDENT = " " * 4


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a step. costs: the costs of the verdict, with messages that take no time.

    unit: seconds for a cost of 1, 0 without a pace. left_out: the given cost of messages, which the prediction ignores.
    """

    costs: Costs
    makespan: Fraction
    unit: float
    left_out: Costs

    @classmethod
    def of(cls, emission: Emission, pace: float, timeout: float) -> Prediction:
        """Predict the makespan of an emitted stream at `pace` seconds for a cost of 1. If that exceeds the timeout (as
        with costs in microseconds, which `calibrate` writes), a mean forward takes `pace` seconds instead.
        """
        time, order = emission.report.time, emission.order
        assert isinstance(order, Program)
        given = {key: _cost(value) for key, value in time.costs.items()}
        costs = Costs({**given, "C": Fraction(0)})
        makespan = Analysis(order.computes, costs).makespan
        mean = _mean(given["F"])
        if mean > 1 and float(makespan) * pace > timeout:
            pace /= float(mean)
        return cls(costs, makespan, pace, Costs({"C": given["C"]} if most(given["C"]) else {}))

    def computes(self, stages: int) -> dict[str, tuple[float | tuple[float, ...], ...]]:
        """Return the seconds of each kind of compute operation by stage, and by microbatch if they differ."""
        rows = {key: self.costs[key] for key in (*LETTERS, "FB")}
        return {key: self._seconds(row, stages) for key, row in rows.items() if row is not None and self.unit}

    def _seconds(self, cost: Cost, stages: int) -> tuple[float | tuple[float, ...], ...]:
        if isinstance(cost, Grid):
            rows = (cost.whole * (self.unit / cost.scale)).tolist()
            return tuple(map(tuple, rows))
        return tuple(float(x) * self.unit for x in (cost if isinstance(cost, tuple) else (cost,) * stages))


def _mean(cost: Cost) -> Fraction:
    if isinstance(cost, Grid):
        return Fraction(int(cost.whole.sum()), cost.scale * cost.whole.size)
    return sum(cost, Fraction(0)) / len(cost) if isinstance(cost, tuple) else cost


def _cost(value: object) -> Cost:
    if isinstance(value, list) and isinstance(value[0], list):
        return Grid.of([map(Fraction, row) for row in value])
    return tuple(map(Fraction, value)) if isinstance(value, list) else Fraction(str(value))


@dataclass(frozen=True)
class Rehearsal(Judged):
    """The result of a successful run. counted, peak: measured and predicted peaks, in microbatches through 1/p of the
    model. versions: each rank's largest number of weight versions, if STEPs are inside the order. measured: the median
    seconds of a step, or None. trace: Chrome's trace events of all instructions, if requested.
    """

    emission: Emission
    job: Job
    losses: tuple[float, ...]
    undivided: tuple[float, ...]
    error: float
    tensor: str
    step: int
    counted: tuple[Fraction, ...]
    peak: tuple[Fraction, ...]
    measured: float | None
    predicted: Prediction
    versions: tuple[int, ...] = ()
    trace: str = ""

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The warnings of the verdict, and PS827 if a gradient or an output is wrong."""
        warnings = list(self.emission.report.diagnostics)
        if self.ok:
            return warnings
        kind, letter = ("output", "y") if self.forward_only else ("weight", "w") if self.versions else ("gradient", "g")
        what = f"the {kind} of {self.tensor} in step {self.step} differs from the undivided model's"
        note = f"error {self.error:.1e} = max |{letter} - {letter}0| / max |{letter}0|; {TOLERANCE:g} is the tolerance"
        help = (
            "the order is verified, so the cause is in the stages: weights, random numbers, buffers or in-place changes"
        )
        return [*warnings, Diagnostic(RuntimeCode.GRADIENTS_DIFFER, what, (), (note,), help)]

    @property
    def ok(self) -> bool:
        """True if every gradient, or every output, is within the tolerance."""
        return self.error <= TOLERANCE

    @property
    def forward_only(self) -> bool:
        """True if the schedule has no backward."""
        return self.emission.report.forward_only

    def __str__(self) -> str:
        return self.text()

    def text(self, *, color: bool = False) -> str:
        """Return the verdict on a successful run as readable text."""
        report, job = self.emission.report, self.job
        steps = f"{job.steps} step{'s' if job.steps > 1 else ''}"
        engine = ", torch's engine" if job.engine == "torch" else ""
        name, sizes = render.clean(report.title or report.name or ""), render.sizes(report.parameters)
        title = "  ".join([render.paint("ok", "ok", color), name, sizes])
        processes = f"{job.ranks} process{'es' if job.ranks > 1 else ''}"
        only = ", forward only" if self.forward_only else ""
        head = f"{title}   {processes} ({job.backend}{engine}), {steps} of {job.net}{only}"
        return "\n".join([head, *(_INDENT + line for line in self._lines())])

    def _lines(self) -> Iterator[str]:
        equal = all(abs(a - b) <= TOLERANCE * abs(b) for a, b in zip(self.losses, self.undivided, strict=True))
        ends = self.losses if len(self.losses) < 5 else (*self.losses[:2], *self.losses[-2:])
        losses = " ".join(f"{loss:.6f}" for loss in ends)
        yield f"loss {losses}, {'as' if equal else 'not as'} in the undivided model"
        error = f"{self.error:.1e}" if self.error else "0"
        compared = "outputs" if self.forward_only else "weights of every version" if self.versions else "gradients"
        yield f"{compared} as in the undivided model: largest error {error}, {TOLERANCE:g} allowed"
        counted, predicted = ("  ".join(map(shown, peaks)) for peaks in (self.counted, self.peak))
        same = "as predicted" if self.counted == self.peak else f"predicted [{predicted}]"
        yield f"peak activations counted [{counted}], {same}"
        yield from self._versions()
        if self.measured is not None:
            yield f"step {self.measured * 1e3:.1f} ms measured{self._prediction(self.measured)}"
        time, given = self.emission.report.time, self.predicted.left_out
        if self.predicted.unit:
            left_out = f"; messages count as 0 instead of {given}" if given.given else ""
            yield from (
                f"predicted makespan {split_length(self.predicted.makespan, time.work, NO_UNIT)}{left_out}",
                *time.remarks,
            )

    def _versions(self) -> Iterator[str]:
        """Yield the line with the counted weight versions and whether they equal the verdict's."""
        part = self.emission.report.parts.of(VersionPart)
        if self.versions and part is not None:
            counted, said = ("  ".join(map(str, row)) for row in (self.versions, part.alive))
            same = "as predicted" if self.versions == part.alive else f"predicted [{said}]"
            yield f"weight versions counted by storage [{counted}], {same}"

    def _prediction(self, measured: float) -> str:
        """Return the text about the predicted time, if compute operations had a pace."""
        unit, makespan = self.predicted.unit, self.predicted.makespan
        if not unit:
            return ""
        predicted = float(makespan) * unit
        more = f" ({measured / predicted - 1:+.1%})".replace("%", " %") if predicted else ""
        return f", {predicted * 1e3:g} ms predicted: makespan {shown(makespan)} at {unit * 1e3:g} ms per unit{more}"

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON: measured values as JSON numbers, exact values as in other reports."""
        report, job, made = self.emission.report, self.job, self.predicted
        time = report.time
        found = {"error": self.error, "tensor": self.tensor, "step": self.step, "allowed": TOLERANCE}
        return {
            "ok": self.ok,
            "name": report.name,
            "source": report.source,
            "parameters": dict(report.parameters),
            "ranks": job.ranks,
            "net": job.net,
            "backend": job.backend,
            "engine": job.engine,
            "steps": job.steps,
            "losses": list(self.losses),
            "undivided_losses": list(self.undivided),
            "forward_only": self.forward_only,
            "gradients": None if self.forward_only else found,
            "outputs": found if self.forward_only else None,
            "peak": exact(counted=self.counted, predicted=self.peak),
            "versions": list(self.versions) or None,
            "time": {
                "measured": self.measured,
                "predicted": float(made.makespan) * made.unit if made.unit else None,
                **exact(makespan=made.makespan, bubble=bubble(made.makespan, time.work)),
                **exact(left_out=made.left_out.given),
                "pace": made.unit,
                "assumed_costs": dict(time.assumed),
                "cost_remarks": list(time.remarks),
                "unit": "s",
            },
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.diagnostics],
        }
