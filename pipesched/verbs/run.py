"""What a run measured beside what was predicted, as text and as JSON.

Each compute is made to last its cost in units of `pace`, so the predicted time of a step is its makespan in that unit,
with messages that take no time. What the measured step has more is messages, dispatch and waiting for a core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any

from pipesched import compile, render
from pipesched.analysis.holdings import memory
from pipesched.analysis.idle import bubble, told
from pipesched.compile import Loaded, Options
from pipesched.diagnostics import Code, Diagnostic
from pipesched.model.costs import Costs
from pipesched.model.numbers import exact, shown
from pipesched.model.program import Program
from pipesched.model.release import AT_W
from pipesched.runtime import trace_events
from pipesched.runtime.launch import Job, Outcome
from pipesched.stream import loads
from pipesched.verbs.emit import Emission

TOLERANCE = 1e-12
"""Of gradients in float64: sums of a few hundred terms, in another order."""

_INDENT = " " * 4


@dataclass(frozen=True)
class Rehearsal:
    """A run that ended well. counted, predicted: peaks, in microbatches through 1/p of the model.

    measured: seconds of a step, or None. pace: seconds of a cost of 1, or 0.
    """

    emission: Emission
    job: Job
    losses: tuple[float, ...]
    undivided: tuple[float, ...]
    error: float
    tensor: str
    step: int
    counted: tuple[Fraction, ...]
    predicted: tuple[Fraction, ...]
    measured: float | None
    makespan: Fraction
    pace: float

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The warnings of the verdict; PS827, if a gradient is not what it is to be."""
        warnings = list(self.emission.report.diagnostics)
        if self.error <= TOLERANCE:
            return warnings
        what = f"the gradient of {self.tensor} in step {self.step} is not that of the model in one piece"
        note = f"error {self.error:.1e} = max |g - g0| / max |g0|; {TOLERANCE:g} is allowed"
        help = (
            "the order is verified, so look at the stages: other weights, random numbers, buffers, an in-place change"
        )
        return [*warnings, Diagnostic(Code.GRADIENTS_DIFFER, what, (), (note,), help)]

    @property
    def bubble(self) -> Fraction:
        """Of the makespan that is predicted."""
        time = self.emission.report.time
        return bubble(self.makespan, time.work if time else ())

    @property
    def ok(self) -> bool:
        """Whether every gradient is right."""
        return self.error <= TOLERANCE

    def text(self, *, color: bool = False) -> str:
        """The verdict on a run that is right, as a person reads it."""
        report, job = self.emission.report, self.job
        sizes = render.sizes(report.parameters)
        steps = f"{job.steps} step{'s' if job.steps > 1 else ''}"
        engine = ", torch's engine" if job.engine == "torch" else ""
        title = "  ".join([render.paint("ok", "ok", color), render.clean(report.name or ""), sizes])
        processes = f"{job.ranks} process{'es' if job.ranks > 1 else ''}"
        head = f"{title}   {processes} ({job.backend}{engine}), {steps} of {job.net}"
        return "\n".join([head, *(_INDENT + line for line in self._lines())])

    def _lines(self) -> Iterator[str]:
        equal = all(abs(a - b) <= TOLERANCE * abs(b) for a, b in zip(self.losses, self.undivided, strict=True))
        losses = " ".join(f"{loss:.6f}" for loss in _ends(self.losses))
        yield f"loss {losses}, {'as' if equal else 'unlike'} the model in one piece"
        error = f"{self.error:.1e}" if self.error else "0"
        yield f"gradients as of the model in one piece: largest error {error}, {TOLERANCE:g} allowed"
        counted, predicted = ("  ".join(map(shown, peaks)) for peaks in (self.counted, self.predicted))
        same = "as predicted" if self.counted == self.predicted else f"predicted [{predicted}]"
        yield f"peak activations counted [{counted}], {same}"
        if self.measured is not None:
            yield f"step {self.measured * 1e3:.1f} ms measured{self._beside()}"
        time = self.emission.report.time
        if time and self.pace:
            yield from (f"makespan {told(self.makespan, time.work)}", *time.remarks)

    def _beside(self) -> str:
        """What was predicted of the time, if computes had a pace."""
        if not self.pace or self.measured is None:
            return ""
        predicted = float(self.makespan) * self.pace
        more = f" ({self.measured / predicted - 1:+.1%})".replace("%", " %") if predicted else ""
        return f", {predicted * 1e3:g} ms predicted: makespan {shown(self.makespan)} of {self.pace * 1e3:g} ms{more}"

    def to_json(self) -> dict[str, object]:
        """The same, with all numbers: measured ones as JSON numbers, exact ones as everywhere."""
        report, job = self.emission.report, self.job
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
            "gradients": {"error": self.error, "tensor": self.tensor, "step": self.step, "allowed": TOLERANCE},
            "peak": exact(counted=self.counted, predicted=self.predicted),
            "time": {
                "measured": self.measured,
                "predicted": float(self.makespan) * self.pace if self.pace else None,
                **exact(makespan=self.makespan, bubble=self.bubble),
                "pace": self.pace,
                "assumed_costs": {} if report.time is None else dict(report.time.assumed),
                "cost_remarks": [] if report.time is None else list(report.time.remarks),
                "unit": "s",
            },
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.diagnostics],
        }


def rehearsal(emission: Emission, job: Job, outcome: Outcome, pace: float) -> Rehearsal:
    """What the ranks told, beside the prediction. pace: seconds of a cost of 1, or 0."""
    data = [rank.data or {} for rank in outcome.ranks]
    worst = max(data, key=lambda told: float(told["error"]))
    share = Fraction(job.ranks, loads(job.stream).stages)
    assert isinstance(emission.order, Program)
    return Rehearsal(
        emission,
        job,
        tuple(next(told["losses"] for told in data if None not in told["losses"])),
        tuple(worst["undivided"]),
        worst["error"],
        worst["tensor"],
        worst["step"],
        tuple(share * told["peak"] for told in data),
        memory(emission.order.computes, AT_W).peak,  # what is counted knows of no M
        _measured([told["spans"] for told in data]),
        _makespan(emission),
        pace,
    )


def _measured(spans: Sequence[Sequence[Sequence[float]]]) -> float | None:
    """The median seconds of a step, over all ranks. The first step warms up, if there are others."""
    later = [own[1:] or own for own in spans]
    times = [max(end for _, end in step) - min(begin for begin, _ in step) for step in zip(*later, strict=True)]
    return median(times) if times else None


def costs_of(emission: Emission) -> Costs:
    """The costs of the verdict, with messages that take no time: nobody can make those last."""
    time = emission.report.time
    assert time is not None
    given: dict[str, Any] = {key: _cost(value) for key, value in time.costs.items()}
    return Costs({**given, "C": Fraction(0)})


def _cost(value: Any) -> Fraction | tuple[Fraction, ...]:
    return tuple(map(Fraction, value)) if isinstance(value, list) else Fraction(value)


def _makespan(emission: Emission) -> Fraction:
    assert isinstance(emission.order, Program)
    schedule = emission.order.computes
    time = compile.examine(Loaded(schedule.name, schedule), Options(costs=costs_of(emission))).time
    assert time is not None
    return time.makespan


def unit_of(emission: Emission, pace: float, timeout: float) -> float:
    """The seconds of a cost of 1: `pace`; or a forward lasts so long, where else a step would be beyond the timeout.

    So costs in microseconds, as `calibrate` writes them, are run at any pace, also at that of the run itself.
    """
    forward = costs_of(emission)["F"]
    mean = sum(forward) / len(forward) if isinstance(forward, tuple) else forward
    if not mean or mean <= 1 or float(_makespan(emission)) * pace <= timeout:
        return pace
    return pace / float(mean)


def pace_of(emission: Emission, pace: float) -> dict[str, tuple[float, ...]]:
    """The seconds of each kind of compute by stage, at `pace` seconds for a cost of 1."""
    stages, costs = emission.report.stages or 0, costs_of(emission)
    rows = {key: costs[key] for key in ("F", "I", "W", "B", "FB")}
    return {
        key: tuple(float(x) * pace for x in (row if isinstance(row, tuple) else (row,) * stages))
        for key, row in rows.items()
        if row is not None and pace
    }


def trace(job: Job, outcome: Outcome) -> str:
    """When each instruction began and ended, as Chrome's trace events."""
    return trace_events.dumps(loads(job.stream), {rank.rank: rank.data["steps"] for rank in outcome.ranks if rank.data})


def _ends(losses: Sequence[float]) -> list[float]:
    return list(losses) if len(losses) < 5 else [*losses[:2], *losses[-2:]]
