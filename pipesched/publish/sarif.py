"""Writes findings as SARIF 2.1.0 (OASIS, 2020), which GitHub's code scanning and editors read.

A run has one result per finding and one rule per code; checks that pass have no result. Lines and columns are counted
from 1, in Unicode characters; a finding without a position in a file has no location.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import quote

from pipesched.command.terminal import dumps
from pipesched.diagnostics import Diagnostic, Label
from pipesched.explain.explain_command import slug
from pipesched.report.report import Report
from pipesched.support.source import Span

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "unjudged": "note"}


def text(reports: Sequence[Report]) -> str:
    """Return all findings of several verdicts as one SARIF log."""
    found = [one for report in reports for one in report.diagnostics]
    codes = sorted({one.code for one in found})
    driver = {
        "name": "pipesched",
        "rules": [
            {"id": str(code), "name": slug(code), "help": {"text": f"pipesched explain {code}"}} for code in codes
        ],
    }
    with suppress(PackageNotFoundError):  # a checkout that is not installed
        driver["version"] = version("pipesched")
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": all(report.exit_status != 2 for report in reports)}],
        "results": [_result(one, codes.index(one.code)) for one in found],
    }
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(found: Diagnostic, rule: int) -> dict[str, object]:
    """Return a finding as a SARIF result: its message with notes and remedy, its location, and related locations."""
    placed = [(label, label.span) for label in found.labels if label.span is not None]
    without = [label.message for label in found.labels if label.span is None]
    help = [] if found.help is None else [f"help: {found.help}"]
    message = "\n".join([found.message, *without, *found.notes, *help])
    return {
        "ruleId": str(found.code),
        "ruleIndex": rule,
        "level": LEVELS[found.severity],
        "message": {"text": message},
        "locations": [_location(*one) for one in placed[:1]],
        "relatedLocations": [{"id": number, **_location(*one)} for number, one in enumerate(placed[1:], 1)],
    }


def _location(label: Label, span: Span) -> dict[str, object]:
    (line, column), (last, end) = span.source.position(span.start), span.source.position(span.end)
    region = {"startLine": line, "startColumn": column, "endLine": last, "endColumn": end}
    place = {"artifactLocation": {"uri": quote(span.source.name)}, "region": region}
    return {"physicalLocation": place, "message": {"text": label.message}}
