"""Draws measured runs over their plan, for `show`."""

from __future__ import annotations

from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination
from pipesched.runtime.measured import against, measured_traces
from pipesched.runtime.measured.deviation import Against
from pipesched.runtime.measured.deviation import against as compared
from pipesched.views import svg as figures
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.text import Text
from pipesched.views.chart.views import COLUMNS, Laid, Request


def lay(made: Examination, how: Request) -> Laid:
    """Compare the run in the traces with the plan. The plan is timed without its message instructions: the run has
    finished, even if the plan would block under the communication model.

    Raises:
        PipeschedError: if the plan deadlocks; PS816 to PS818 if a trace is unusable, or belongs to another schedule.
    """
    plan, fault, traces = made.analysis.having(None), made.report.fault, measured_traces.files(how.more["measured"])
    if fault is not None and not plan.finished:
        raise PipeschedError([fault])
    run = compared(plan.schedule, plan.timeline, plan.ticks, measured_traces.read(traces))
    return Laid(plan, run, {"measured": published(run)})


def text(chart: Chart, how: Request, run: Against) -> str:
    """Draw the plan and the run as text, two rows per rank."""
    return against.text(chart, run, Text(how.width or COLUMNS, how.viewport, how.color, how.ascii))


def svg(chart: Chart, how: Request, run: Against) -> str | bytes:
    """Draw the plan above the run, as SVG."""
    return figures.written(against.figure(chart, run, figures.asked(how)), how.written)


def published(run: Against) -> dict[str, object]:
    """Return the measured times as JSON numbers: seconds, and units of cost."""
    return {
        "unit": run.unit / 1e9,
        "step": run.step,
        "steps": [length / 1e9 for length in run.lengths],
        "makespan": float(run.makespan),
        "ratios": [
            {
                "kind": x.kind,
                "stage": None if x.stage < 0 else x.stage,
                "cost": float(x.planned),
                "ran": float(x.ran),
                "ratio": None if x.ratio is None else float(x.ratio),
            }
            for x in (*run.kinds, *run.stages)
        ],
        "late": [
            {"rank": x.rank, "operation": str(x.operation), "planned": float(x.planned), "ran": float(x.ran)}
            for x in run.late
        ],
        "clocks_disagree": run.skew / 1e9,
    }
