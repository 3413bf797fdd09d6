"""A trainer's test that verifies the file it is going to load."""

from fractions import Fraction
from pathlib import Path

import pipesched


def errors(file: Path) -> list[str]:
    """Return the findings in a CSV, one per line."""
    report: pipesched.Report = pipesched.verify(file, comm="pair-stream", mem_cap=5.5, torch_version="2.13")
    return [f"{found.code} {found.message}" for found in report.diagnostics if found.severity == "error"]


def bubble(name: str, ranks: int) -> Fraction:
    """Return the idle time of the rank that idles most, over the makespan."""
    report = pipesched.verify(name, p=ranks, costs={"F": 2, "B": [4.5] * ranks}, release="split:1/2")
    return max(report.time.idle) / report.makespan


def peaks(name: str, *, caps: list[int]) -> list[float]:
    """Return the peaks by rank."""
    return [float(peak) for peak in pipesched.verify(name, p=str(len(caps)), mem_cap=caps).peak]


def places(error: pipesched.PipeschedError) -> list[tuple[str, int, int]]:
    """Return the places of the findings."""
    spans = [label.span for found in error.diagnostics for label in found.labels]
    return [(span.source.name, span.line, span.column) for span in spans if span is not None]
