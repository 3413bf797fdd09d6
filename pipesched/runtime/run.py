"""Runs a schedule on this machine: trains or evaluates a small model, and compares the run with the prediction.

    request, file ──> emit: verified, as a stream ──> Job ──> a process per rank ──> Outcome ──> Rehearsal

Each compute operation takes its cost times `pace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from statistics import median
from typing import TYPE_CHECKING

from pipesched.command.options import of as options_of
from pipesched.common.installed import installed_version
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.examine import Options
from pipesched.model.schedule import Program
from pipesched.runtime.codes import RuntimeCode
from pipesched.runtime.execute import launch, trace_events
from pipesched.runtime.execute.errors import Fault, RunError
from pipesched.runtime.execute.launch import Break, Job, Outcome
from pipesched.runtime.run_report import Prediction, Rehearsal
from pipesched.schedule_analysis import Analysis
from pipesched.stream import dumps, loads
from pipesched.support.source import Source
from pipesched.verbs.emit import Emission, emit
from pipesched.verbs.verify import verify

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
    from torch.distributed.pipelining.stage import _PipelineStageBase

MAX_RANKS = 64
MAX_STEPS = 10_000
_OF_ALL = ("net", "samples", "backend", "engine", "timeout", "pace", "trace", "faults", "digits")
_OF_ONE = ("factory", "model")


@dataclass(frozen=True)
class Request:
    """A request for a run. samples: the number of samples in each microbatch, if microbatches differ. timeout: seconds
    without progress that count as a stall. pace: milliseconds for a cost of 1. faults: KIND@RANK[:N].
    """

    net: str = "mlp"
    samples: tuple[int, ...] | None = None
    steps: int = 3
    backend: str = "gloo"
    device: str = "cpu"
    engine: str = "pipesched"
    timeout: float = 30
    pace: float = 20
    trace: bool = False
    faults: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields; raise PipeschedError with PS225 for a value beyond its limits, or an unknown fault."""
        if not 1 <= self.steps <= MAX_STEPS:
            raise fail(Code.USAGE, f"{self.steps} steps are not allowed; choose 1 to {MAX_STEPS:,}")
        if not 0.1 <= self.timeout <= 86_400:
            raise fail(Code.USAGE, f"a timeout of {self.timeout:g} s is not allowed; choose 0.1 s to one day")
        if not 0 <= self.pace <= 60_000:
            raise fail(Code.USAGE, f"a pace of {self.pace:g} ms is not allowed; choose 0 to one minute")
        if self.engine == "torch" and (self.trace or self.faults):
            raise fail(Code.USAGE, "--trace and --fault need pipesched's own engine", help="omit --engine torch")
        if self.engine == "torch" and self.samples:
            raise fail(Code.USAGE, "--samples needs pipesched's own engine", help="omit --engine torch")
        _ = self.breaks

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The faults to inject."""
        try:
            return tuple(map(Break.parse, self.faults))
        except ValueError as error:
            raise fail(Code.USAGE, str(error)) from None


def alone(given: Mapping[str, object]) -> bool:
    """Return True if the options request a run of one rank.

    Raises:
        PipeschedError: PS225 if an option does not apply to the requested kind of run.
    """
    one = given["rank"] is not None
    for option in options_of("run"):
        value = given.get(option.name)
        if option.name in (_OF_ALL if one else _OF_ONE) and value is not None and value not in (False, option.default):
            flag = (*option.flags, f"--{option.name}")[0]
            if one:
                raise fail(Code.USAGE, f"{flag} applies only to a run of all ranks", help="omit it, or omit --rank")
            raise fail(Code.USAGE, (f"{flag} applies only to a run of one rank"), help="give --rank R, the rank to run")
    return one


def run(source: Source, options: Options, request: Request) -> Rehearsal:
    """Train with a schedule, or evaluate with one that has no backward; compare the run with the prediction.

    Raises:
        PipeschedError: the findings of the verdict; PS225, PS814; PS820 to PS826, PS836 or PS837 for the run's fault.
    """
    made = _verified(emit(source, options, "stream"))
    if request.engine == "torch":
        _verified(emit(source, options, "torch-csv"))
        if made.order is not None and made.order.placement.frozen:
            help = "`emit --target torch-csv` writes the order for your own script; `--engine pipesched` runs it here"
            raise fail(Code.TARGET, "`run` does not support frozen stages with torch's engine", help=help)
    predicted = Prediction.of(made, request.pace / 1000, request.timeout)
    job = _job(made, predicted, request)
    return _compared(made, job, _outcome(job), predicted)


def _verified(emission: Emission) -> Emission:
    """Require a correct order that can run on this machine.

    Raises:
        PipeschedError: the findings of the verdict; PS225, PS814.
    """
    order = emission.order
    if order is None:
        raise PipeschedError(emission.report.diagnostics)
    if order.ranks > MAX_RANKS:
        raise fail(Code.USAGE, f"{order.ranks} ranks need one process each; the limit is {MAX_RANKS}")
    return emission


def _job(emission: Emission, predicted: Prediction, request: Request) -> Job:
    """Return the job for the processes.

    Raises:
        PipeschedError: PS225 if a fault's rank does not exist, the pace exceeds the timeout, or `samples` has a wrong
        length.
    """
    ranks, text = emission.report.ranks, "".join(emission.pieces())
    if any(broken.rank >= ranks for broken in request.breaks):
        raise fail(Code.USAGE, f"a fault names a rank that does not exist: the last rank is {ranks - 1}")
    assert emission.order is not None
    count, samples = emission.order.placement.microbatches, request.samples or ()
    if samples and len(samples) != count:
        raise fail(Code.USAGE, f"--samples has {len(samples)} entries for {count} microbatches")
    ours = request.engine == "pipesched"
    pace = predicted.computes(emission.report.stages) if ours else {}
    lasting = (x if isinstance(x, tuple) else (x,) for row in pace.values() for x in row)
    longest = max((max(each) for each in lasting), default=0.0)
    if longest >= request.timeout:
        message = f"a compute operation lasts {longest:g} s, which a timeout of {request.timeout:g} s treats as a stall"
        raise fail(Code.USAGE, message, help="choose a smaller --pace, or a larger --timeout")
    return Job(
        text,
        ranks,
        request.net,
        samples,
        steps=request.steps,
        backend=request.backend,
        device=request.device,
        timeout=request.timeout,
        trace=request.trace,
        pace=pace,
        engine=request.engine,
        judge=None if ours else f"{__name__}:judge",
        others={broken.rank: _another(text) for broken in request.breaks if broken.kind == "stream"},
        breaks=request.breaks,
    )


def _another(text: str) -> str:
    """Return a different valid stream, in which the last rank has no STEP."""
    stream = loads(text)
    return dumps(replace(stream, ranks=(*stream.ranks[:-1], stream.ranks[-1][:-1])))


def _outcome(job: Job) -> Outcome:
    """Wait for all ranks to end, and require that none failed.

    Raises:
        PipeschedError: PS820 to PS826, PS836 or PS837 for the fault that ended the run.
    """
    try:
        with launch.Launcher() as launcher:
            outcome = launcher.run(job)
    except RunError as error:
        raise PipeschedError([diagnostic(error.fault)]) from None
    if outcome.fault is not None:
        raise PipeschedError([diagnostic(outcome.fault)])
    return outcome


def diagnostic(fault: Fault) -> Diagnostic:
    labels = (Label(None, f"at {fault.place}"),) if fault.place else ()
    code = next(code for owner in (Code, RuntimeCode) for code in owner if code == fault.code)
    return Diagnostic(code, fault.message, labels, fault.notes, fault.help)


def judge(text: str) -> None:
    """Verify the order that torch is going to run; called in every rank.

    Raises:
        RunError: if the order is wrong, with the first finding.
    """
    try:
        require_right(text)
    except PipeschedError as error:
        first = next(found for found in error.diagnostics if found.severity == "error")
        message = f"torch's lowering: {first.message}"
        raise RunError(Fault(str(first.code), message, None, first.notes, first.help)) from None


def require_right(text: str) -> None:
    """Verify the text of a torch CSV with messages, for the installed torch version.

    Raises:
        PipeschedError: if the order is wrong, with all findings.
    """
    report = verify(Source("torch's lowering", text), Options(torch_version=installed_version()))
    if not report.ok:
        raise PipeschedError(report.diagnostics)


def torch_runtime(
    order: str | PathLike[str],
    stages: Sequence[_PipelineStageBase],
    n_microbatches: int,
    loss_fn: Callable[..., Tensor] | None = None,
    **options: object,
) -> _PipelineScheduleRuntime:
    """Load a CSV into torch's own pipeline runtime; refuse it before its first step if torch lowered it wrongly.

    order: the path of a torch CSV, with or without messages, or a stream. stages, loss_fn, options: as for torch's
        schedules, such as ``scale_grads=False``. The program that torch will run is read back and verified.

    Raises:
        PipeschedError: the findings on the order that torch made.
    """
    from pipesched.runtime.execute.torch_engine import torch_runtime as make

    return make(order, stages, n_microbatches, loss_fn, verify=require_right, **options)


def _compared(emission: Emission, job: Job, outcome: Outcome, predicted: Prediction) -> Rehearsal:
    """Compare the reports of the ranks with the prediction."""
    data = [rank.data for rank in outcome.ranks if rank.data]
    worst = max(data, key=lambda entry: entry["error"])
    losses = next(entry["losses"] for entry in data if None not in entry["losses"])
    stream = loads(job.stream)
    share = Fraction(job.ranks, stream.stages)
    assert isinstance(emission.order, Program)
    steps = {rank.rank: rank.data["steps"] for rank in outcome.ranks if rank.data} if job.trace else {}
    return Rehearsal(
        emission,
        job,
        tuple(loss for loss in losses if loss is not None),
        tuple(worst["undivided"]),
        worst["error"],
        tensor=worst["tensor"],
        step=worst["step"],
        counted=tuple(share * entry["peak"] for entry in data),
        versions=tuple(entry["versions"] for entry in data) if stream.versions else (),
        peak=Analysis(emission.order.computes).memory.peak,  # the count does not depend on M
        measured=_measured([entry["spans"] for entry in data]),
        predicted=predicted,
        trace=trace_events.dumps(stream, steps) if job.trace else "",
    )


def _measured(spans: Sequence[Sequence[Sequence[float]]]) -> float | None:
    """Return the median seconds of a step, over all ranks. The first of several steps is a warm-up."""
    later = [own[1:] or own for own in spans]
    times = [max(end for _, end in step) - min(begin for begin, _ in step) for step in zip(*later, strict=True)]
    return median(times) if times else None
