"""The verdict on a file: all checks, and the judgements that extensions add.

A reader may return its own verdict, for example on an optimizer's answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from pipesched.compile import examine, load
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.examine import Examination, Options
from pipesched.extension import Later, Reader, Sweep, counting
from pipesched.formats.readers import PS, Loaded, checked, reader_of
from pipesched.report.report import Report
from pipesched.support.source import Source

Asked: TypeAlias = tuple[Source | Report, Options]
"""A file and a size; if the file cannot be read, the report on it instead."""


def verify(source: Source | Report, options: Options) -> Report:
    """Return the verdict on a file at a size. Errors are in the report; no exception is raised."""
    return judged(examined(source, options), source, options)


def verify_all(asked: Sequence[Asked]) -> Iterator[Report]:
    """Yield the verdict on each file at its size; an extension may verify many of them together."""
    for row in counting(Sweep, asked[0][1]) if len(asked) > 1 else ():
        for report in row.reports.load()(asked):
            assert isinstance(report, Report)
            yield report
        return
    yield from (verify(*one) for one in asked)


def unnamed(options: Options) -> Report:
    """Return the verdict of extensions if no file is given; PS225 if no option replaces the file."""
    report = _judged(nothing := Report(None, None), None, options)
    if report is nothing:
        raise fail(Code.USAGE, "missing argument 'FILES...'", help="`pipesched verify --help` shows the options")
    return report


def examined(source: Source | Report, options: Options) -> Report | Examination:
    """Return the examination of a file's schedule, or the report that its reader makes."""
    if isinstance(source, Report):
        return replace(source, parameters=dict(options.parameters))
    try:
        row = reader_of(source)
        own = row.verify.load()(source, options) if isinstance(row, Reader) and row.verify else None
        assert own is None or isinstance(own, Report)
        return examine(load(source, options), options) if own is None else own
    except PipeschedError as error:
        return _refused(source, options, error)


def judged(found: Report | Examination, source: Source | Report, options: Options) -> Report:
    """Return the report, with the verdicts of extensions whose options are given."""
    try:
        return _judged(found, source, options)
    except PipeschedError as error:
        assert isinstance(source, Source)
        return _refused(source, options, error)


def _refused(source: Source, options: Options, error: PipeschedError) -> Report:
    return Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics)


def verify_loaded(loaded: Loaded, options: Options) -> Report:
    """Return the verdict on a loaded schedule."""
    return _judged(examine(loaded, options), None, options)


def _judged(found: Report | Examination, source: Source | Report | None, options: Options) -> Report:
    report, made = (found.report, found) if isinstance(found, Examination) else (found, None)
    for row in counting(Later, options) if not isinstance(source, Report) else ():
        later = row.judge.load()(report, made, source, options)
        assert isinstance(later, Report)
        report = later
    return report


def lists(sources: Iterable[Source]) -> frozenset[str]:
    """Return the parameters that one of these files declares as lists; none for an unreadable file."""
    found: set[str] = set()
    for source in sources:
        with suppress(PipeschedError):
            found |= checked(source).lists if reader_of(source) is PS else set()
    return frozenset(found)
