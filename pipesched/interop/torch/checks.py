"""Checks torch's rules, for schedules that come from torch or will run on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipesched.check.checks import Subject
from pipesched.diagnostics import Diagnostic
from pipesched.interop.torch.torch_order import check_torch_order
from pipesched.interop.torch.torch_program import check_torch_program


@dataclass(frozen=True)
class Sharding:
    """The option for sharded stages. fsdp: stages are sharded although no action says so."""

    fsdp: bool = False


def order(x: Subject) -> Iterable[Diagnostic]:
    """Return the violations of torch's rules on the order of computes."""
    return check_torch_order(x.analysis.schedule, x.analysis.own, explicit=x.explicit)


def program(x: Subject) -> Iterable[Diagnostic]:
    """Return the violations of torch's rules on the actions in the file."""
    return check_torch_program(x.own, x.torch, fsdp=x.of(Sharding).fsdp)
