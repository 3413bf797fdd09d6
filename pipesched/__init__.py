"""A compiler and verifier for pipeline-parallel training schedules.

    import pipesched
    print(pipesched.verify("zb_h1", p=8))

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesched.api import emit, from_torch_csv, load, optimize, torch_runtime, verify
    from pipesched.diagnostics import Diagnostic, PipeschedError
    from pipesched.model.costs import Costs
    from pipesched.model.placement import Placement
    from pipesched.model.program import Program
    from pipesched.model.schedule import Schedule
    from pipesched.optimizer.answer.optimum import Optimum
    from pipesched.report import Report
    from pipesched.source import Source

_WHERE = {
    "emit": "api",
    "from_torch_csv": "api",
    "load": "api",
    "optimize": "api",
    "torch_runtime": "api",
    "verify": "api",
    "Diagnostic": "diagnostics",
    "PipeschedError": "diagnostics",
    "Costs": "model.costs",
    "Optimum": "optimizer.answer.optimum",
    "Placement": "model.placement",
    "Program": "api",  # the module that tells the nouns who draws them
    "Schedule": "api",
    "Report": "api",
    "Source": "source",
}

__all__ = [
    "Costs",
    "Diagnostic",
    "Optimum",
    "PipeschedError",
    "Placement",
    "Program",
    "Report",
    "Schedule",
    "Source",
    "emit",
    "from_torch_csv",
    "load",
    "optimize",
    "torch_runtime",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'pipesched' has no attribute {name!r}")
    return getattr(import_module(f"pipesched.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
