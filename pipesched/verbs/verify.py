"""The verdict on a file: all checks, and the judgements that extensions add.

A reader may have its own verdict, such as that on an optimizer's answer.
"""

from __future__ import annotations

from pipesched.compile import examine, load
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination, Options
from pipesched.extension import Later, Reader, counting
from pipesched.formats.readers import Loaded, reader_of
from pipesched.report.report import Report
from pipesched.support.source import Source


def verify(source: Source, options: Options) -> Report:
    """Return the verdict on a file at a size. Errors are in the report; none is raised."""
    try:
        return _judged(*_examined(source, options), source, options)
    except PipeschedError as error:
        return _refused(source, options, error)


def _examined(source: Source, options: Options) -> tuple[Report, Examination | None]:
    """Return the report on a file, and the examination of its schedule."""
    try:
        row = reader_of(source)
        own = row.verify.load()(source, options) if isinstance(row, Reader) and row.verify else None
        made = examine(load(source, options), options) if own is None else None
    except PipeschedError as error:
        return _refused(source, options, error), None
    report = own if made is None else made.report
    assert isinstance(report, Report)
    return report, made


def _refused(source: Source, options: Options, error: PipeschedError) -> Report:
    return Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics)


def verify_loaded(loaded: Loaded, options: Options) -> Report:
    """Return the verdict on a loaded schedule."""
    made = examine(loaded, options)
    return _judged(made.report, made, None, options)


def _judged(report: Report, made: Examination | None, source: Source | None, options: Options) -> Report:
    """Return the report after the judgements of extensions whose options are given; made: of a schedule."""
    for row in counting(Later, options):
        judged = row.judge.load()(report, made, source, options)
        assert isinstance(judged, Report)
        report = judged
    return report
