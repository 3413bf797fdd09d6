"""A compiler and verifier for pipeline-parallel training schedules.

    import pipesched
    print(pipesched.verify("zb_h1", p=8))

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from pipesched.api import (
        calibrate,
        check,
        compare,
        diff,
        emit,
        from_torch_csv,
        load,
        optimize,
        plan,
        rehearse,
        run,
        show,
        survey,
        verify,
        why,
    )
    from pipesched.diagnostics import Diagnostic, PipeschedError
    from pipesched.model.costs import Costs
    from pipesched.model.placement import Placement
    from pipesched.model.schedule import Program, Schedule
    from pipesched.report import Report
    from pipesched.source import Source
    from pipesched.verbs.calibrate import Calibration
    from pipesched.verbs.check_report import Checked
    from pipesched.verbs.compare_report import Comparison
    from pipesched.verbs.diff_report import Difference
    from pipesched.verbs.optimize_report import Optimum
    from pipesched.verbs.plan import Plan
    from pipesched.verbs.rehearse import OneRank
    from pipesched.verbs.run import torch_runtime
    from pipesched.verbs.run_report import Rehearsal
    from pipesched.verbs.show import Picture
    from pipesched.verbs.survey import Survey
    from pipesched.verbs.why_report import Why

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
    "Survey",
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
    "rehearse",
    "run",
    "show",
    "survey",
    "torch_runtime",
    "verify",
    "why",
]

_ELSEWHERE = {  # all others are in `api`, which registers what draws the nouns
    "Calibration": "verbs.calibrate",
    "Checked": "verbs.check_report",
    "Comparison": "verbs.compare_report",
    "Costs": "model.costs",
    "Diagnostic": "diagnostics",
    "Difference": "verbs.diff_report",
    "OneRank": "verbs.rehearse",
    "Optimum": "verbs.optimize_report",
    "Picture": "verbs.show",
    "PipeschedError": "diagnostics",
    "Placement": "model.placement",
    "Rehearsal": "verbs.run_report",
    "Plan": "verbs.plan",
    "Source": "source",
    "Survey": "verbs.survey",
    "Why": "verbs.why_report",
    "check_config": "api",
    "torch_runtime": "verbs.run",
}


class _Check(ModuleType):
    """The folder of the checks, which is called as the function of that name."""

    def __call__(self, *arguments: Any, **given: Any) -> object:
        return import_module("pipesched.api").check(*arguments, **given)


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
    return getattr(import_module(f"pipesched.{_ELSEWHERE.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
