"""Verdicts of a sweep over sizes, computed by workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipesched.examine import Options
from pipesched.planning.executors import Workers, divided
from pipesched.report.report import Report
from pipesched.verbs.verify import Asked, verify_all


def reports(asked: Sequence[Asked]) -> Iterator[Report]:
    """Yield the report on each file at its size, in order."""
    by = asked[0][1].of(Workers)
    return divided(_verified, [(source, without(options)) for source, options in asked], by)


def without(options: Options) -> Options:
    """Return the options without the pool of workers: a worker starts no workers of its own."""
    return replace(options, owned=tuple(value for value in options.owned if not isinstance(value, Workers)))


def _verified(asked: Sequence[Asked]) -> list[Report]:
    """Return the reports without their analyses, which only pictures need."""
    return [replace(report, subject=None) for report in verify_all(asked)]
