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
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pipesched.check.complete import check_complete
from pipesched.check.dataflow import check_dataflow
from pipesched.diagnostics import Code, Diagnostic, PipeschedError, fail
from pipesched.examine import Examination, Loaded, Options
from pipesched.formats.rows import require_ranks
from pipesched.inputs import read
from pipesched.model.numbers import shown
from pipesched.model.placement import most_ranks, most_stages
from pipesched.model.program import Program
from pipesched.model.release import AT_W
from pipesched.model.schedule import Schedule
from pipesched.model.verdict import Verdict, engine_name
from pipesched.readers import ANSWER, TORCH_CSV, reader_of
from pipesched.report import Claim, Report
from pipesched.schedule_analysis import Analysis
from pipesched.source import Source

if TYPE_CHECKING:
    from pipesched.check.optimum_case import Terms
    from pipesched.formats.answer_read import Answer

MESSAGES = 3  # instructions for each operation: itself, a send and a receive
FOLLOWED = 10  # times as long takes an operation whose certificate is followed too


def load(source: Source, options: Options) -> Loaded:
    """A file as a schedule, by its content.

    Raises:
        PipeschedError: PS1xx, PS2xx, PS8xx, everything that keeps it from being one.
    """
    row = reader_of(source)
    found = row.read(source, **{name: getattr(options, name) for name in row.takes})
    if isinstance(found, Source):
        return load(found, options)
    loaded = Loaded(source.name, *found, torch=row is TORCH_CSV)
    return loaded if loaded.unit is not None else _of_a_size(loaded, options)


def _of_a_size(loaded: Loaded, options: Options) -> Loaded:
    """What was read, if it is not too much to be checked in a few seconds.

    Raises:
        PipeschedError: PS210.
    """
    require_ranks(loaded.schedule.ranks, most_ranks(options.max_ops))
    instructions = len(loaded.schedule if loaded.program is None else loaded.program)
    for count, what, limit in (
        (loaded.schedule.placement.rank_of.size, "stages", most_stages(options.max_ops)),
        (len(loaded.schedule), "operations", options.max_ops),
        (instructions, "instructions", MESSAGES * options.max_ops),
    ):
        if count > limit:
            message = f"{loaded.source} has {count:,} {what}; the limit is {limit:,}"
            raise fail(Code.TOO_MANY_OPERATIONS, message, help="--max-ops raises the limit")
    return loaded


def verify(source: Source, options: Options) -> Report:
    """Everything we know of a file at a size. What is wrong is in the report; nothing is raised."""
    try:
        if reader_of(source) is ANSWER:
            return _proof_required(_verify_answer(source, replace(options, require_proof=False)), options)
        loaded = load(source, options)
    except PipeschedError as error:
        return Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics)
    return examine(loaded, options)


def _proof_required(report: Report, options: Options) -> Report:
    """PS712 where a proof is asked for, and there is none."""
    if not options.require_proof or not report.ok or (report.verdict is not None and report.verdict.proved):
        return report
    said = "a schedule alone says nothing of others" if report.verdict is None else report.verdict.line
    help = "give what `pipesched optimize --json` prints, where it says proved optimal"
    found = Diagnostic(Code.NO_PROOF, f"there is no proof: {said}", help=help)
    kept = tuple(d for d in report.diagnostics if d.code is not Code.ON_THE_WORD)
    return replace(report, diagnostics=(*kept, found))


def _verify_answer(source: Source, options: Options) -> Report:
    """The schedule of an optimizer's answer, its certificate, and whatever else it says; at another m if it is for
    every m.
    """
    from pipesched.check.optimum import judge, judge_at
    from pipesched.check.optimum_answer import NOT_JUDGED, check_answer
    from pipesched.formats import answer_read

    told = answer_read.read(source)
    terms, own = _own_terms(told, options)
    report = examine(own, replace(options, parameters={}, microbatches=None, **_as_asked(told, options)))
    if not report.ok:
        return replace(report, source=source.name)
    judged = judge(own.schedule, terms, told.certificate, _at(told, terms, options))
    found, verdict = list(judged.findings), judged.verdict
    if verdict is not None:
        said = own.unit.checked.file.documentation if own.unit else None
        found += check_answer(own.schedule, terms, judged, told.told, said)
    if not found and verdict is not None and options.parameters:
        loaded = load(told.schedule, options)
        _require_costs(loaded, terms)
        report = examine(loaded, replace(options, **_as_asked(told, options)))
        if not report.ok:
            return replace(report, source=source.name)
        judged = judge_at(loaded.schedule, own.schedule, terms, verdict)
        found, verdict = list(judged.findings), judged.verdict
    return _with_verdict(replace(report, source=source.name), verdict, found, NOT_JUDGED)


def _own_terms(told: Answer, options: Options) -> tuple[Terms, Loaded]:
    """What an answer is for, and its schedule at its own size.

    Raises:
        PipeschedError: PS225, other costs or another release rule are given; PS710; all that is wrong in the file.
    """
    from pipesched.check.optimum_case import Terms

    if options.costs is not None or options.release not in (AT_W, told.release):
        raise fail(Code.USAGE, "an answer has its own costs and release rule", help="verify its source with others")
    own = load(told.schedule, Options(max_ops=options.max_ops))
    if len(own.schedule) > (limit := options.max_ops // FOLLOWED):
        message = f"the answer has {len(own.schedule):,} operations; at most {limit:,} are followed"
        raise fail(Code.TOO_MANY_OPERATIONS, message, help=f"--max-ops raises the limit, {FOLLOWED} for each operation")
    if told.caps is not None and len(told.caps) != own.schedule.ranks:
        raise fail(Code.CERTIFICATE, f"the answer has {len(told.caps)} caps for {own.schedule.ranks} ranks")
    return Terms(own.own_costs, told.release, told.caps, told.objective), own


def _as_asked(told: Answer, options: Options) -> dict[str, Any]:
    """The rule and the caps to verify under: the caller's caps, if there are some, are asked for beside its own."""
    return {"release": told.release, "mem_cap": told.caps if options.mem_cap is None else options.mem_cap}


def _at(told: Answer, terms: Terms, options: Options) -> Callable[[int], Schedule]:
    """The schedule for another number of microbatches."""

    def at(microbatches: int) -> Schedule:
        loaded = load(told.schedule, Options({"m": microbatches}, max_ops=options.max_ops))
        _require_costs(loaded, terms)
        return loaded.schedule

    return at


def _require_costs(loaded: Loaded, terms: Terms) -> None:
    """Raises PipeschedError: PS715, at another m the file has other costs."""
    if loaded.own_costs.to_json() != terms.costs.to_json():
        raise fail(Code.EVERY, f"at m={loaded.schedule.microbatches} it has other costs")


def _with_verdict(report: Report, verdict: Verdict | None, found: list[Diagnostic], aside: tuple[str, ...]) -> Report:
    """The claim of an answer holds if it is proved; what is on an engine's word is no claim, and is warned of."""
    if found or verdict is None:
        claim = Claim("certificate", holds=False)
        return replace(report, diagnostics=(*report.diagnostics, *found), claims=(*report.claims, claim))
    claims = (Claim(f"certificate: {verdict.status}", holds=True),) if verdict.proved else ()
    if verdict.word:
        bound = f"that no {verdict.objective} is below {shown(verdict.lower)}"
        message = f"{bound} is on the word of {engine_name(verdict.word)}, not checked"
        found = [Diagnostic(Code.ON_THE_WORD, message, help="--require-proof makes this an error")]
    return replace(
        report,
        diagnostics=(*report.diagnostics, *found),
        claims=(*report.claims, *claims),
        verdict=verdict,
        not_judged=aside,
    )


def examine(loaded: Loaded, options: Options) -> Report:
    """Check and measure what was loaded."""
    return _proof_required(Examination(loaded, options).report, options)


def examined(source: Source, options: Options) -> Examination:
    """A file with what follows from it, and its verdict.

    Raises:
        PipeschedError: as `load`; PS222, PS225, options that mean nothing for it.
    """
    made = Examination(load(source, options), options)
    if made.report.exit_status == 2:
        raise PipeschedError(made.report.diagnostics)
    return made


def lower(schedule: Schedule) -> Program:
    """The program of a schedule, at unit costs.

    Raises:
        PipeschedError: PS306, compute orders that wait for each other have no program.
    """
    made = Analysis(schedule)
    if made.program is None:
        cyclic = [*check_dataflow(schedule, made.dependencies, made.timeline)]
        raise PipeschedError(cyclic or check_complete(schedule, made.dependencies))
    return made.program


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
    from pipesched.language import ps_write

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
    "load",
    "lower",
    "order",
    "read",
    "verify",
]
