"""Makes the command that verifies a configuration's schedule, or the reason why there is none.

order from      a CSV            the trainer's code   the library          torch only
command         verify a.csv …   verify megatron:…    verify interleaved   verify torch:LoopedBFS
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from pipesched.interop.trainers.case import Case, Plan
from pipesched.interop.trainers.scripts import beside
from pipesched.interop.trainers.torch_names import TorchName, torch_name


@dataclass(frozen=True)
class _Order:
    """The order that a plan names."""

    case: Case
    plan: Plan

    @property
    def row(self) -> TorchName | None:
        return torch_name(self.plan.name)

    @property
    def name(self) -> str | None:
        """The library's name of the schedule, or None."""
        return self.row.order if self.row else self.plan.name

    @property
    def ours(self) -> bool:
        """True if a library schedule has this order at these sizes."""
        p, m, torch = self.plan.ranks or 1, self.plan.microbatches or 1, self.row is not None
        fits = {"interleaved": not torch or not m % p, "interleaved_overlap": not m % p}
        fits["dualpipev"] = not torch or m >= 2 * p
        return self.name is not None and fits.get(self.name, True)

    @property
    def sizes(self) -> str:
        plan = self.plan
        return f"--p {plan.ranks}" + (f" --v {plan.chunks}" if plan.chunks != 1 else "") + f" --m {plan.microbatches}"


def _csv(x: _Order) -> str:
    plan = x.plan
    name = str(plan.csv.value) if plan.csv else ""
    path = shlex.quote(beside(x.case.settings.source.name, name) or name)
    stages = f" --stages {plan.stages}" if plan.stages else ""
    return f"pipesched verify {path} --p {plan.ranks} --m {plan.microbatches}{stages} --torch-version {x.case.torch}"


def _library(x: _Order) -> str:
    short = f"--p {x.plan.ranks} --m {x.plan.microbatches}"
    return f"pipesched verify {x.name} {x.sizes if (x.name or '').startswith('interleaved') else short}"


def _torch(x: _Order) -> str:
    return f"pipesched verify torch:{x.row.name if x.row else ''} {x.sizes}"


_ROWS: tuple[tuple[Callable[[_Order], object], Callable[[_Order], str | None]], ...] = (
    (lambda x: x.plan.off, lambda x: None),
    (lambda x: x.plan.ranks is None, lambda x: "its p is unknown"),
    (lambda x: x.plan.microbatches is None, lambda x: "its m is unknown"),
    (lambda x: x.plan.csv, _csv),
    (lambda x: x.plan.chunks is None, lambda x: "its v is unknown"),
    (
        lambda x: x.plan.options,
        lambda x: " -D ".join((f"pipesched verify megatron:interleaved {x.sizes}", *x.plan.options)),
    ),
    (lambda x: x.ours, _library),
    (lambda x: x.row, _torch),
)


def command(case: Case, plan: Plan) -> str | None:
    """Return ``pipesched verify …`` for the schedule, or the reason why there is none; None without a pipeline."""
    x = _Order(case, plan)
    return next((says(x) for when, says in _ROWS if when(x)), "its order is not in the library")
