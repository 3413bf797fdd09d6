"""Prints the schedule of an answer, loads the printed file, and runs all checks on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipesched.compile import Options, examine, load
from pipesched.diagnostics import PipeschedError
from pipesched.formats.readers import Loaded
from pipesched.language.parser import OPS_A_WORD
from pipesched.lift import writer
from pipesched.model.schedule import Schedule
from pipesched.optimizer.optimize_report import claims
from pipesched.optimizer.solve.instance import MAX_OPS, Instance
from pipesched.optimizer.verdict import Verdict, documentation
from pipesched.report.report import Report
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source

if TYPE_CHECKING:
    from pipesched.lift.kernel import Kernel

_COLUMNS = ("op", "stage", "microbatch", "second", "start")


def printed(
    schedule: Schedule, instance: Instance, judged: Verdict, name: str, kernel: Kernel | None = None
) -> tuple[Analysis, str, Report]:
    """Return the analysis of a schedule, its text, and the report on the text.

    Raises:
        PipeschedError: the text does not pass the checks.
    """
    made = Analysis(schedule, instance.costs, instance.release)
    text = writer.write(
        schedule,
        name=name,
        documentation=documentation(judged, instance),
        costs=instance.costs,
        claims=claims(made, instance, judged),
        kernel=kernel,
    )
    loaded = read_back(text)
    if not all(np.array_equal(getattr(loaded.schedule, x), getattr(schedule, x)) for x in _COLUMNS):
        raise RuntimeError("the printed file is not the schedule that was found")
    options = Options(costs=instance.costs, release=instance.release, mem_cap=instance.caps)
    report = examine(loaded, options).report
    if not report.ok:
        raise PipeschedError([d for d in report.diagnostics if d.severity == "error"])
    return made, text, report


def read_back(text: str) -> Loaded:
    """Load a printed file. The length of the text is not limited, since the optimizer wrote it."""
    return load(Source("optimum.ps", text), Options(max_ops=max(MAX_OPS, OPS_A_WORD * len(text))))
