"""Writes an order for a runtime after verifying it, or unchanged as order text or .ps.

    load ──> verify ──> lower ──> the target's own actions ──> verify again ──> text, a rank at a time

The output for a runtime is exactly the verified program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import cast

from pipesched import compile, render
from pipesched.diagnostics import Code, Label, PipeschedError, fail
from pipesched.examine import Examination, Options
from pipesched.extension import Rewrite, Target, counting
from pipesched.formats.readers import Loaded, reader_of
from pipesched.formats.targets import Head, targets, writer
from pipesched.model.ops import Op
from pipesched.model.release import AT_W
from pipesched.model.schedule import Program, Schedule
from pipesched.model.torch_versions import DEFAULT, TorchVersion, first_with
from pipesched.report.report import Report
from pipesched.support.source import Source


@dataclass(frozen=True)
class Emission:
    """An order to write, and the verdict on it; the order is None if the verdict is an error."""

    report: Report
    target: str
    order: Schedule | Program | None = None
    head: Head = field(default_factory=Head)
    version: TorchVersion = DEFAULT

    def pieces(self) -> Iterator[str]:
        """Return the text, one rank at a time."""
        return iter(()) if self.order is None else compile.emit(self.order, self.target, self.head)

    def by_rank(self) -> Iterator[str]:
        """Return the text of each rank separately."""
        return iter(()) if self.order is None else writer(self.target).by_rank(self.order, self.head)

    def settings(self, files: Sequence[str] = (), *, by_rank: bool = False) -> list[str]:
        """Return the settings that a trainer needs in addition to the files: one file per rank, or one for all."""
        target = targets()[self.target]
        if self.order is None:
            return []
        if by_rank and target.torch:
            return ["on every node torch reads one file with a row per rank; these files are only for people to read"]
        return writer(self.target).settings(self.order, files[0] if files else f"FILE{target.ending}", self.version)

    def to_json(self, files: Sequence[str] = (), *, by_rank: bool = False) -> dict[str, object]:
        """Return the published JSON form, see ``emit/README.md``: it contains the text if no file does."""
        if self.order is None:
            return self.report.to_json()
        return {
            "ok": True,
            "name": self.report.name,
            "target": self.target,
            "files": list(files),
            "text": None if files else "".join(self.pieces()),
            "settings": self.settings(files, by_rank=by_rank),
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.report.diagnostics],
        }


def emit(source: Source, options: Options, to: str) -> Emission:
    """Convert a file for a target; the verdict is on the converted order.

    The report has all findings on the file and its conversion, or PS814 if the target cannot run it.
    """
    target, way = targets()[to], writer(to)
    if not (target.judged or counting(Rewrite, options)):
        return _as_it_is(source, options, to)
    own = replace(options, torch_version=_written_for(source), comm=None if target.blocks else options.comm)
    try:
        loaded, own = _rewritten(compile.load(source, own), own, target.messages)
        way.require(loaded.schedule, loaded.program if target.messages else None)
        _require_steps(loaded.schedule, target)
    except PipeschedError as error:
        return Emission(Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics), to)
    first = compile.examine(loaded, own)
    if loaded.program is not None and not first.report.ok:
        return Emission(first.report, to)
    if loaded.program is not None and not target.torch:
        return Emission(first.report, to, loaded.program, Head(loaded.sizes))
    order = _lowered(first) if target.messages else loaded.schedule
    if order is None:
        return Emission(first.report, to)
    return _finished(first, loaded, order, to, options.torch_version or DEFAULT if target.torch else None)


def _written_for(source: Source) -> TorchVersion | None:
    """Return the first version of torch whose files have waits, if a torch CSV contains waits."""
    waits = "WAIT_" in source.text and "torch_version" in reader_of(source).takes
    return first_with(Op.WAIT_SEND_F) if waits else None


def _rewritten(loaded: Loaded, options: Options, messages: bool) -> tuple[Loaded, Options]:
    """Return a file and options, as changed by extensions before emission."""
    for row in counting(Rewrite, options):
        loaded, options = cast("tuple[Loaded, Options]", row.rewrite.load()(loaded, options, messages))
    return loaded, options


def _finished(
    first: Examination, loaded: Loaded, order: Schedule | Program, to: str, version: TorchVersion | None
) -> Emission:
    """Return an order in the form of its target, with the verdict on that form."""
    way = writer(to)
    if version is not None and isinstance(order, Program):
        order = way.actions(order, version)
    final = first.having(order if isinstance(order, Program) else None, version)
    if not final.report.ok:  # faults of the file itself are reported in its own terms
        return Emission(final.report if first.report.ok else first.report, to)
    if isinstance(order, Schedule) and (whole := way.completed(order, final.analysis.timeline)) is not order:
        again = compile.examine(Loaded(loaded.source, whole, torch=targets()[to].torch), Options(torch_version=version))
        if not again.report.ok:
            return Emission(again.report, to)
        order = whole
    return Emission(final.report, to, order, Head(loaded.sizes), version or DEFAULT)


def _as_it_is(source: Source, options: Options, to: str) -> Emission:
    """Write the order of a file without verifying it, as order text or as a .ps schedule.

    Raises:
        PipeschedError: PS225: an option that affects only a verdict is given.
    """
    target, way = targets()[to], writer(to)
    _require_no_verdict(options, to)
    try:
        loaded = compile.load(source, options)
        way.require(loaded.schedule, loaded.program)
        _require_steps(loaded.schedule, target)
        order = compile.lower(loaded.schedule) if target.messages else loaded.schedule
    except PipeschedError as error:
        return Emission(Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics), to)
    head = Head(loaded.sizes, f"The order of {PurePath(source.name).name}")
    if loaded.unit is not None:
        unit, said = loaded.unit, loaded.unit.checked.file.documentation or ""
        head = Head(loaded.sizes, said, unit.costs, unit.statements)
    return Emission(Report(loaded.schedule.name, source.name, loaded.sizes), to, order, head)


def _require_steps(schedule: Schedule, target: Target) -> None:
    """Raise PipeschedError (PS814) for an order with a STEP inside and a target that cannot express it."""
    if schedule.steps is not None and not target.steps:
        message = f"`--target {target.name}` cannot express {schedule.name}, which has a STEP inside its order"
        here = Label(schedule.steps.origin.place(0).span, "the first STEP")
        raise fail(Code.TARGET, message, here, help="emit it with `--target stream`")


def _require_no_verdict(options: Options, to: str) -> None:
    """Raise PipeschedError (PS225) for options that affect only a verdict, since this target has none."""
    asked = {
        "--cost": options.costs is not None,
        "--mem-cap": options.mem_cap is not None,
        "--comm": options.comm is not None,
        "--release": options.release != AT_W,
    }
    if given := [name for name in asked if asked[name]]:
        message = f"{given[0]} affects only a verdict, but `--target {to}` writes an order without a verdict"
        raise fail(Code.USAGE, message, help="use `pipesched verify` for a verdict")


def _lowered(examined: Examination) -> Program | None:
    """Return the program at the requested costs, or None if there is no program or the costs do not fit it."""
    try:
        return examined.analysis.program
    except PipeschedError:
        return None
