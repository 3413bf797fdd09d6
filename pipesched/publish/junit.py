"""Writes verdicts as JUnit XML for CI systems: a test suite for each file, a test case for each of its sizes.

failure   an error in the file          error     a wrong command line or an unreadable file
skipped   there is no verdict           system-out   the verdict on one line, and its warnings
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from pipesched import render
from pipesched.diagnostics import NOT_JUDGED
from pipesched.report.report import Report

KINDS = {1: "failure", 2: "error", NOT_JUDGED: "skipped"}


def text(reports: Sequence[Report]) -> str:
    """Return several verdicts as one XML document, without durations, since none were measured."""
    root = Element("testsuites", {"name": "pipesched verify", **_counts(reports)})
    for source, found in groupby(reports, key=lambda report: report.source or ""):
        cases = list(found)
        suite = SubElement(root, "testsuite", {"name": source, **_counts(cases)})
        for report in cases:
            case = SubElement(suite, "testcase", classname=source, name=render.sizes(report.parameters) or "default")
            _outcome(case, report)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True)


def _counts(reports: Sequence[Report]) -> dict[str, str]:
    statuses = [report.exit_status for report in reports]
    failed, skipped = statuses.count(1), statuses.count(NOT_JUDGED)
    wrong = len([status for status in statuses if status not in (0, 1, NOT_JUDGED)])
    return {"tests": str(len(statuses)), "failures": str(failed), "errors": str(wrong), "skipped": str(skipped)}


def _outcome(case: Element, report: Report) -> None:
    """Add the outcome of a verdict to its test case."""
    if report.exit_status:
        first = report.fault or report.diagnostics[0]
        kind = KINDS.get(report.exit_status, "error")
        made = SubElement(case, kind, message=render.clean(first.message), type=str(first.code))
        made.text = "\n\n".join(render.text(one) for one in report.diagnostics if one.severity != "warning")
    said = [render.text(one) for one in report.diagnostics if one.severity == "warning"]
    SubElement(case, "system-out").text = "\n\n".join([report.line(), *said])
