"""The public Python names of `pipesched`: functions, and the classes of their inputs and results.

Each is loaded when it is first used. Type checkers read the imports below, which are never executed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from pipesched.diagnostics import Diagnostic, PipeschedError
    from pipesched.insight.api import compare, diff, why
    from pipesched.insight.compare_report import Comparison
    from pipesched.insight.diff_report import Difference
    from pipesched.insight.why_report import Why
    from pipesched.interop.api import check
    from pipesched.interop.check_report import Checked
    from pipesched.model.costs import Costs
    from pipesched.model.placement import Placement
    from pipesched.model.schedule import Program, Schedule
    from pipesched.optimizer.api import optimize
    from pipesched.optimizer.optimize_report import Optimum
    from pipesched.planning.api import plan
    from pipesched.planning.plans import Plan
    from pipesched.prover.api import prove
    from pipesched.prover.prove_report import Theorems
    from pipesched.report.report import Report
    from pipesched.runtime.api import calibrate, run, run_rank
    from pipesched.runtime.calibrate import Calibration
    from pipesched.runtime.rehearse import OneRank
    from pipesched.runtime.run import torch_runtime
    from pipesched.runtime.run_report import Rehearsal
    from pipesched.shell.api import emit, from_torch_csv, load, show, verify
    from pipesched.support.source import Source
    from pipesched.views.show import Picture

__all__ = [
    "Calibration",
    "Checked",
    "Comparison",
    "Costs",
    "Diagnostic",
    "Difference",
    "OneRank",
    "Optimum",
    "Picture",
    "PipeschedError",
    "Placement",
    "Plan",
    "Program",
    "Rehearsal",
    "Report",
    "Schedule",
    "Source",
    "Theorems",
    "Why",
    "__version__",
    "calibrate",
    "check",
    "compare",
    "diff",
    "emit",
    "from_torch_csv",
    "load",
    "optimize",
    "plan",
    "prove",
    "run",
    "run_rank",
    "show",
    "torch_runtime",
    "verify",
    "why",
]

_WHERE = {
    "Calibration": "runtime.calibrate",
    "Checked": "interop.check_report",
    "Comparison": "insight.compare_report",
    "Costs": "model.costs",
    "Diagnostic": "diagnostics",
    "Difference": "insight.diff_report",
    "OneRank": "runtime.rehearse",
    "Optimum": "optimizer.optimize_report",
    "Picture": "views.show",
    "PipeschedError": "diagnostics",
    "Placement": "model.placement",
    "Plan": "planning.plans",
    "Program": "model.schedule",
    "Rehearsal": "runtime.run_report",
    "Report": "report.report",
    "Schedule": "model.schedule",
    "Source": "support.source",
    "Theorems": "prover.prove_report",
    "Why": "insight.why_report",
    "calibrate": "runtime.api",
    "check": "interop.api",
    "check_config": "interop.api",
    "compare": "insight.api",
    "diff": "insight.api",
    "optimize": "optimizer.api",
    "plan": "planning.api",
    "prove": "prover.api",
    "run": "runtime.api",
    "run_rank": "runtime.api",
    "torch_runtime": "runtime.run",
    "why": "insight.api",
}
"""The module of a name; the core's functions are in `shell.api`."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("pipesched")
    if name not in __all__ and name not in _WHERE:
        raise AttributeError(f"module 'pipesched' has no attribute {name!r}")
    return getattr(import_module(f"pipesched.{_WHERE.get(name, 'shell.api')}"), name)
