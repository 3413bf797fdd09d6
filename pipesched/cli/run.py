"""``pipesched run``: a schedule trains a small real model on this machine, and is held against its prediction.

gradients   of every tensor, every step      with those of the model in one piece
peak        counted from what autograd keeps     with the prediction at release W
time        of a step                        with the makespan at the measured times of the computes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pipesched.cli import flags, terminal
from pipesched.cli.terminal import Output
from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, exit_status, fail
from pipesched.verbs.options import compile_options

if TYPE_CHECKING:
    from pipesched.runtime.errors import Fault
    from pipesched.runtime.launch import Break, Job, Outcome
    from pipesched.verbs.emit import Emission

MAX_RANKS = 64
MAX_STEPS = 10_000


@click.command(short_help="Train a small model with a schedule, and compare with the prediction.")
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("run")
def run(file: str, **given: Any) -> int:
    """Train a small model on p local processes with a .ps file, a torch CSV, a stream, a built-in name, or -.

    Every gradient is compared with that of the model in one piece, the peak of activations with what `verify`
    predicts. Needs torch: pip install pipesched[torch]

    \b
    --pace is what a cost of 1 lasts, or a forward where else a step would last longer than --timeout, as with
    the microseconds of `calibrate`.
    --engine torch runs the computes in torch's own runtime, whose lowering is verified before the first step.
    --fault kill@1:7 kills rank 1 at its 7th instruction; other kinds are freeze, raise, raise-backward, nan,
    shape, dtype, stall, leave, collective, weights and hook. The run then ends with exit status 1 and the code of
    the fault.
    """
    from pipesched import compile
    from pipesched.verbs import emit as emission

    sizes = flags.one_size("run", given)
    breaks = _checked(given)
    asked = compile_options(given, sizes)
    with flags.output_of(given) as out:
        source = compile.read(file)
        made = _verified(emission.emit(source, asked, "stream"))
        if given["engine"] == "torch":
            _verified(emission.emit(source, asked, "torch-csv"))
        job = _job(made, breaks, given)
        return _tell(made, job, _run(job), out, given)


def _verified(emission: Emission) -> Emission:
    """What is right, and can be trained on this machine.

    Raises:
        PipeschedError: what the verdict found; PS225, PS814.
    """
    from pipesched.model.program import Program

    order = emission.order
    if order is None:
        raise PipeschedError(emission.report.diagnostics)
    if order.ranks > MAX_RANKS:
        raise fail(Code.USAGE, f"{order.ranks} ranks are that many processes here; at most {MAX_RANKS} can be run")
    computes = order.computes if isinstance(order, Program) else order
    if computes.forward_only:
        raise fail(Code.TARGET, f"{emission.report.name} has no backward: there is nothing to train and to compare")
    return emission


def _checked(given: Mapping[str, Any]) -> tuple[Break, ...]:
    """The faults to make, after a look at the other options.

    Raises:
        PipeschedError: PS225.
    """
    from pipesched.runtime.launch import Break

    if not 1 <= given["steps"] <= MAX_STEPS:
        raise fail(Code.USAGE, f"{given['steps']} steps; 1 to {MAX_STEPS:,} can be run")
    if not 0.1 <= given["timeout"] <= 86_400:
        raise fail(Code.USAGE, f"a timeout of {given['timeout']:g} s; 0.1 s to a day can be given")
    if not 0 <= given["pace"] <= 60_000:
        raise fail(Code.USAGE, f"a pace of {given['pace']:g} ms; 0 to a minute can be given")
    if given["engine"] == "torch" and (given["trace"] or given["faults"]):
        raise fail(Code.USAGE, "--trace and --fault are for our own engine", help="leave out --engine torch")
    try:
        return tuple(map(Break.parse, given["faults"]))
    except ValueError as error:
        raise fail(Code.USAGE, str(error)) from None


def _job(emission: Emission, breaks: tuple[Break, ...], given: Mapping[str, Any]) -> Job:
    """What the processes are told.

    Raises:
        PipeschedError: PS225, a fault on a rank that is not there, a pace beyond the timeout.
    """
    from pipesched.runtime.launch import Job
    from pipesched.verbs.run import pace_of, unit_of

    order, text = emission.order, "".join(emission.pieces())
    assert order is not None
    if any(broken.rank >= order.ranks for broken in breaks):
        raise fail(Code.USAGE, f"a fault on a rank beyond the last, which is {order.ranks - 1}")
    unit = unit_of(emission, given["pace"] / 1000, given["timeout"])
    pace = pace_of(emission, unit) if given["engine"] == "pipesched" else {}
    longest = max((x for row in pace.values() for x in row), default=0.0)
    if longest >= given["timeout"]:
        message = f"a compute lasts {longest:g} s, which a timeout of {given['timeout']:g} s takes for a stall"
        raise fail(Code.USAGE, message, help="--pace shortens computes, --timeout waits longer")
    return Job(
        text,
        order.ranks,
        given["net"],
        steps=given["steps"],
        backend=given["backend"],
        device=given["device"],
        timeout=given["timeout"],
        trace=given["trace"] is not None,
        pace=pace,
        engine=given["engine"],
        judge=f"{__name__}:judge" if given["engine"] == "torch" else None,
        others={broken.rank: _another(text) for broken in breaks if broken.kind == "stream"},
        breaks=breaks,
    )


def _another(text: str) -> str:
    """A valid stream that is not this one: the last rank ends before it steps."""
    from pipesched.stream import dumps, loads

    stream = loads(text)
    return dumps(replace(stream, ranks=(*stream.ranks[:-1], stream.ranks[-1][:-1])))


def _run(job: Job) -> Outcome:
    """The outcome of all ranks.

    Raises:
        PipeschedError: PS820 to PS826, PS836, PS837, what ended the run.
    """
    from pipesched.runtime.errors import RunError
    from pipesched.runtime.launch import Launcher

    try:
        with Launcher() as launcher:
            outcome = launcher.run(job)
    except RunError as error:
        raise PipeschedError([told(error.fault)]) from None
    if outcome.fault is not None:
        raise PipeschedError([told(outcome.fault)])
    return outcome


def judge(text: str) -> None:
    """Whether the order that torch is going to run is right; called in every rank.

    Raises:
        RunError: the first finding.
    """
    from pipesched import compile
    from pipesched.model.torch_versions import installed_version
    from pipesched.runtime.errors import Fault, RunError
    from pipesched.source import Source

    asked = compile.Options(torch_version=installed_version())
    report = compile.verify(Source("torch's lowering", text), asked)
    if not report.ok:
        first = next(found for found in report.diagnostics if found.severity == "error")
        raise RunError(Fault(str(first.code), f"torch's lowering: {first.message}", None, first.notes, first.help))


def told(fault: Fault) -> Diagnostic:
    """A fault of the run as a diagnostic."""
    labels = (Label(None, f"at {fault.place}"),) if fault.place else ()
    return Diagnostic(Code(fault.code), fault.message, labels, fault.notes, fault.help)


def _tell(emission: Emission, job: Job, outcome: Outcome, out: Output, given: Mapping[str, Any]) -> int:
    """Prints the comparison, and writes the trace."""
    from pipesched.verbs.run import rehearsal, trace, unit_of

    if given["trace"] is not None:
        terminal.replace_file(given["trace"], trace(job, outcome))
    unit = unit_of(emission, given["pace"] / 1000, given["timeout"])
    found = rehearsal(emission, job, outcome, unit)
    if out.format == "json":
        out.line(terminal.dumps(found.to_json()))
        return exit_status(found.diagnostics)
    if found.diagnostics:
        terminal.complain(found.diagnostics, out.format, out.color_choice)
    if found.ok:
        out.line(found.text(color=out.color))
    return exit_status(found.diagnostics)
