"""The verdict on a file: all checks, and the judgements that extensions add.

A reader may have its own verdict, such as that on an optimizer's answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from time import monotonic

from pipesched.compile import examine, load
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination, Options
from pipesched.extension import Later, Reader, Together, counting, rows
from pipesched.formats.readers import PS, Loaded, checked, reader_of
from pipesched.report.report import Report
from pipesched.support.source import Source

AT_ONCE, WAIT = 1 << 16, 0.5  # operations of schedules that are examined at once, and seconds until they are loaded


def verify(source: Source, options: Options) -> Report:
    """Return the verdict on a file at a size. Errors are in the report; none is raised."""
    (report,) = verify_all(source, [options])
    return report


def verify_all(source: Source, sizes: Iterable[Options]) -> Iterator[Report]:
    """Yield all facts about a file at each size; several are examined at once."""
    for few in _few(source, sizes):
        made = [found for _, found in few if isinstance(found, Examination)]
        for row in rows(Together) if len(made) > 1 else ():
            row.settle.load()(made)
        for options, found in few:
            try:
                report, one = (found.report, found) if isinstance(found, Examination) else (found, None)
                yield _judged(report, one, source, options)
            except PipeschedError as error:
                yield _refused(source, options, error)


def _few(source: Source, sizes: Iterable[Options]) -> Iterator[list[tuple[Options, Report | Examination]]]:
    """Yield the examinations at a few sizes after the other; a report where there is none."""
    few, operations, begin = list[tuple[Options, Report | Examination]](), 0, monotonic()
    for options in sizes:
        few.append((options, found := _examined(source, options)))
        operations += len(found.loaded.schedule) if isinstance(found, Examination) else 0
        if operations > AT_ONCE or monotonic() > begin + WAIT:
            yield few
            few, operations, begin = [], 0, monotonic()
    yield few


def _examined(source: Source, options: Options) -> Report | Examination:
    """Return the examination of a file's schedule, or the report that its reader makes."""
    try:
        row = reader_of(source)
        own = row.verify.load()(source, options) if isinstance(row, Reader) and row.verify else None
        assert own is None or isinstance(own, Report)
        return examine(load(source, options), options) if own is None else own
    except PipeschedError as error:
        return _refused(source, options, error)


def _refused(source: Source, options: Options, error: PipeschedError) -> Report:
    return Report(None, source.name, dict(options.parameters), diagnostics=error.diagnostics)


def verify_loaded(loaded: Loaded, options: Options) -> Report:
    """Return the verdict on a loaded schedule."""
    made = examine(loaded, options)
    return _judged(made.report, made, None, options)


def _judged(report: Report, made: Examination | None, source: Source | None, options: Options) -> Report:
    """Return the report after the judgements of extensions whose options are given; made: the examination."""
    for row in counting(Later, options):
        judged = row.judge.load()(report, made, source, options)
        assert isinstance(judged, Report)
        report = judged
    return report


def lists(sources: Iterable[Source]) -> frozenset[str]:
    """Return the parameters that one of these files declares as lists; none for an unreadable file."""
    found: set[str] = set()
    for source in sources:
        with suppress(PipeschedError):
            found |= checked(source).lists if reader_of(source) is PS else set()
    return frozenset(found)
