"""The whole pipeline on one page.

    read ──> load ──> Schedule ──> waits, timeline, memory ──> lower ──> Program ──> channels, deadlock ──> Report
               │        │ check: complete, data flow, memory               │ check: hand-over, gradients, torch
               │                                                           └─ emission.py: a stream, or torch's CSV
               └─ .ps text, torch CSV, order text, stream; a file with messages is its own Program

Each arrow is one call. Everything that is wrong is collected and reported together; a later step runs as far as what
came before it allows. A reader is imported with the first file that needs it: most runs read one kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import PurePath

from pipesched.analysis.timeline import timeline
from pipesched.analysis.waits import waits
from pipesched.check.dataflow import check_dataflow
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.examine import TORCH, Examination, Loaded, Options, sizes
from pipesched.formats import sniff
from pipesched.inputs import built_in, read
from pipesched.language.checked import Checked, check_file
from pipesched.language.evaluate import at_size
from pipesched.language.parser import parse
from pipesched.lower.communicate import communicate
from pipesched.model.costs import Costs
from pipesched.model.program import Program
from pipesched.model.schedule import Schedule
from pipesched.report import Claim, Report
from pipesched.source import Source


def library() -> list[tuple[str, str]]:
    """The built-in schedules: name, and the documentation of the file, on one line."""
    files = {name: _checked(read(name)).file for name in built_in()}
    return [(name, " ".join((file.documentation or "").split())) for name, file in files.items()]


def parameters_of(source: Source) -> tuple[str, ...]:
    """The names of the parameters of a .ps file."""
    return tuple(parameter.name.id for parameter in _checked(source).file.parameters)


@lru_cache(maxsize=64)
def _checked(source: Source) -> Checked:
    """A file is parsed and checked once, whatever the number of sizes."""
    return check_file(parse(source))


def load(source: Source, options: Options) -> Loaded:
    """A file as a schedule, by its content.

    Raises:
        PipeschedError: PS1xx, PS2xx, PS8xx, everything that keeps it from being one.
    """
    kind = sniff.kind(source.name, source.text)
    if kind == "ps":
        unit = at_size(_read_ps(source), options.parameters, max_ops=options.max_ops)
        return Loaded(source.name, unit.schedule, unit=unit)
    if kind == "stream":
        return _load_stream(source, options)
    if kind == "answer":
        from pipesched.formats import answer_read

        return load(answer_read.read(source).schedule, options)
    extra = sorted(set(options.parameters) - {"p", "m"})
    if extra:
        raise fail(Code.PARAMETER_UNKNOWN, f"{source.name} is an order, without parameters: {', '.join(extra)} given")
    made = _read_rows(source, kind, options)
    if options.parameters.get("p", made.ranks) != made.ranks:
        message = f"{source.name} has {made.ranks} ranks, one a row; {options.parameters['p']} were given"
        raise fail(Code.FILE_DISAGREES, message, help="one row a rank")
    if kind == "order" and options.microbatches not in (None, made.placement.microbatches):
        message = f"{source.name} has {made.placement.microbatches} microbatches; {options.microbatches} were given"
        raise fail(Code.FILE_DISAGREES, message)
    if isinstance(made, Program):
        return Loaded(source.name, made.computes, made, torch=kind == "torch-csv")
    return Loaded(source.name, made, torch=kind == "torch-csv")


def _read_ps(source: Source) -> Checked:
    """A .ps file; a text of another kind is told to be that, not to have many mistakes."""
    try:
        return _checked(source)
    except PipeschedError:
        from pipesched.formats.misread import not_a_schedule

        if found := list(not_a_schedule(source)):
            raise PipeschedError(found) from None
        raise


def _read_rows(source: Source, kind: sniff.Kind, options: Options) -> Schedule | Program:
    """An order or a CSV; where all of its shape is wrong, that is said and not what follows from it."""
    read = _reader(kind, options)
    try:
        made = read(source)
    except PipeschedError as error:
        from pipesched.formats import misread

        told = misread.meant(source, kind, read, error.diagnostics)
        raise PipeschedError([told] if told else error.diagnostics) from None
    if kind == "torch-csv" and isinstance(made, Schedule) and made.placement.routes > 1:
        from pipesched.formats import misread

        if told := misread.turned(source, made, read):
            raise PipeschedError([told])
    return made


def _reader(kind: sniff.Kind, options: Options) -> Callable[[Source], Schedule | Program]:
    """What reads an order or a CSV."""
    if kind == "order":
        from pipesched.formats import order_text

        return order_text.read
    from pipesched.formats import torch_csv

    return partial(
        torch_csv.read,
        torch_version=options.torch_version or TORCH,
        stages=options.stages,
        microbatches=options.microbatches,
        placement=options.placement,
    )


def _load_stream(source: Source, options: Options) -> Loaded:
    from pipesched.formats import stream_read

    program, parameters = stream_read.read(source, options.parameters)
    return Loaded(source.name, replace(program.computes, parameters=parameters), program)


def verify(source: Source, options: Options) -> Report:
    """Everything we know of a file at a size. What is wrong is in the report; nothing is raised."""
    try:
        if sniff.kind(source.name, source.text) == "answer":
            return _verify_answer(source, options)
        loaded = load(source, options)
    except PipeschedError as error:
        return Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics)
    return examine(loaded, options)


def _verify_answer(source: Source, options: Options) -> Report:
    """The schedule of an optimizer's answer under the answer's own release rule and caps, and its certificate."""
    from pipesched.check.optimum import check_optimum
    from pipesched.formats import answer_read

    told = answer_read.read(source)
    loaded = load(told.schedule, options)
    if told.caps is not None and len(told.caps) != loaded.schedule.ranks:
        raise fail(Code.CERTIFICATE, f"the answer has {len(told.caps)} caps for {loaded.schedule.ranks} ranks")
    report = examine(loaded, replace(options, release=told.release, mem_cap=told.caps))
    if report.subject is None or any(d.severity == "error" for d in report.diagnostics):
        return report
    about = report.subject
    found = tuple(check_optimum(about.schedule, about.costs, told.release, told.caps, told.objective, told.certificate))
    claim = Claim(f"certificate: {told.certificate.get('verdict')}", not found)
    return replace(report, source=source.name, diagnostics=report.diagnostics + found, claims=(*report.claims, claim))


def examine(loaded: Loaded, options: Options) -> Report:
    """Check and measure what was loaded."""
    try:
        return Examination(loaded, options).report()
    except PipeschedError as error:
        return Report(loaded.schedule.name, loaded.source, sizes(loaded), diagnostics=error.diagnostics)


def lower(schedule: Schedule) -> Program:
    """The program of a schedule, at unit costs.

    Raises:
        PipeschedError: PS306, compute orders that wait for each other have no program.
    """
    needs = waits(schedule)
    times = timeline(schedule, needs, Costs().ticks(schedule.stages))
    if not times.finished:
        raise PipeschedError(check_dataflow(schedule, needs, times))
    return communicate(schedule, needs, times)


def order(source: Source, options: Options, *, program: bool) -> str:
    """The order of a file in the notation ``F0.0 I0.0 … F3.1+B2.0``; with `program`, sends and receives too.

    Raises:
        PipeschedError: as `load` and `lower`.
    """
    from pipesched.formats import order_write

    loaded = load(source, options)
    if not program:
        return order_write.write(loaded.schedule)
    return order_write.write_program(loaded.program or lower(loaded.schedule))


def as_ps(source: Source, options: Options) -> str:
    """The compute order of a file as a .ps file for this one size, with loops where it repeats.

    Raises:
        PipeschedError: as `load`; PS814, an order that the language cannot say.
    """
    from pipesched.formats import ps_write

    loaded = load(source, options)
    if loaded.unit is None:
        return ps_write.write(loaded.schedule, documentation=f"The order of {PurePath(source.name).name}")
    told = loaded.unit.checked.file.documentation or ""
    return ps_write.write(loaded.schedule, documentation=told, costs=loaded.unit.costs)


__all__ = [
    "Loaded",
    "Options",
    "as_ps",
    "examine",
    "library",
    "load",
    "lower",
    "order",
    "parameters_of",
    "read",
    "verify",
]
