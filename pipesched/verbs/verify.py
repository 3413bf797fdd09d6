"""The verdict on a file: every check, and the judgements that extensions add.

A reader may have a verdict of its own, as that of an optimizer's answer.
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
    """Return all facts about a file at a size. Errors are in the report; none is raised."""
    try:
        row = reader_of(source)
        if not isinstance(row, Reader) or row.verify is None:
            return verify_loaded(load(source, options), options)
        report = row.verify.load()(source, options)
        assert isinstance(report, Report)
        return _judged(report, None, options)
    except PipeschedError as error:
        return Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics)


def verify_loaded(loaded: Loaded, options: Options) -> Report:
    """Return all facts about a loaded schedule."""
    made = examine(loaded, options)
    return _judged(made.report, made, options)


def _judged(report: Report, made: Examination | None, options: Options) -> Report:
    """Return the report after the judgements of extensions whose options are given; made: of a schedule."""
    for row in counting(Later, options):
        judged = row.judge.load()(report, made, options)
        assert isinstance(judged, Report)
        report = judged
    return report
