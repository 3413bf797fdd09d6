"""torch's rules as checks of a schedule that is torch's, or is to run there."""

from __future__ import annotations

from collections.abc import Iterable

from pipesched.check.checks import Subject
from pipesched.diagnostics import Diagnostic
from pipesched.interop.torch.torch_order import check_torch_order
from pipesched.interop.torch.torch_program import check_torch_program


def order(x: Subject) -> Iterable[Diagnostic]:
    """Violations by the order of compute."""
    return check_torch_order(x.analysis.schedule, x.analysis.own, explicit=x.explicit)


def program(x: Subject) -> Iterable[Diagnostic]:
    """Violations by the file's own actions."""
    return check_torch_program(x.own, x.torch, fsdp=x.fsdp)
