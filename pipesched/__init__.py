"""A compiler and verifier for pipeline-parallel training schedules.

    import pipesched
    print(pipesched.verify("zb_h1", p=8))

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from pipesched import extension

if TYPE_CHECKING:
    __version__: str
    from pipesched.diagnostics import Diagnostic, PipeschedError
    from pipesched.insight.compare_report import Comparison
    from pipesched.insight.diff_report import Difference
    from pipesched.insight.why_report import Why
    from pipesched.interop.check_report import Checked
    from pipesched.model.costs import Costs
    from pipesched.model.placement import Placement
    from pipesched.model.schedule import Program, Schedule
    from pipesched.optimizer.optimize_report import Optimum
    from pipesched.planning.plans import Plan
    from pipesched.report.report import Report
    from pipesched.runtime.calibrate import Calibration
    from pipesched.runtime.rehearse import OneRank
    from pipesched.runtime.run import torch_runtime
    from pipesched.runtime.run_report import Rehearsal
    from pipesched.shell.api import (
        calibrate,
        check,
        compare,
        diff,
        emit,
        from_torch_csv,
        load,
        optimize,
        plan,
        run,
        run_rank,
        show,
        verify,
        why,
    )
    from pipesched.support.source import Source
    from pipesched.verbs.show import Picture

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
    "run",
    "run_rank",
    "show",
    "torch_runtime",
    "verify",
    "why",
]

extension.register("views", "explain", "lift", "planning", "interop", "runtime", "optimizer", "insight")

_ELSEWHERE = {  # all others are in `api`, which registers what draws the nouns
    "Calibration": "runtime.calibrate",
    "Checked": "interop.check_report",
    "Comparison": "insight.compare_report",
    "Costs": "model.costs",
    "Diagnostic": "diagnostics",
    "Difference": "insight.diff_report",
    "OneRank": "runtime.rehearse",
    "Optimum": "optimizer.optimize_report",
    "Picture": "verbs.show",
    "PipeschedError": "diagnostics",
    "Placement": "model.placement",
    "Rehearsal": "runtime.run_report",
    "Plan": "planning.plans",
    "Source": "support.source",
    "Why": "insight.why_report",
    "check_config": "shell.api",
    "torch_runtime": "runtime.run",
}


class _Check(ModuleType):
    """The folder of the checks, which is called as the function of that name."""

    def __call__(self, *arguments: object, **given: object) -> object:
        return import_module("pipesched.shell.api").check(*arguments, **given)


class _Package(ModuleType):
    """The package; an import of `pipesched.check` sets the module where the function is looked for."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "check" and isinstance(value, ModuleType):
            value.__class__ = _Check
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("pipesched")
    if name not in __all__ and name not in _ELSEWHERE:
        raise AttributeError(f"module 'pipesched' has no attribute {name!r}")
    return getattr(import_module(f"pipesched.{_ELSEWHERE.get(name, 'shell.api')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
