"""Makes the command that verifies a configuration's schedule, or the reason why there is none.

order from      a CSV            the trainer's code   the library          torch only
command         verify a.csv …   verify megatron:…    verify interleaved   verify torch:LoopedBFS
"""

from __future__ import annotations

import shlex

from pipesched.interop.trainers.case import Case, Plan
from pipesched.interop.trainers.scripts import beside
from pipesched.interop.trainers.torch_names import torch_name


def command(case: Case, plan: Plan) -> str | None:
    """Return ``pipesched verify …`` for the schedule, or the reason why there is none; None without a pipeline."""
    if plan.off:
        return None
    p, v, m = plan.ranks, plan.chunks, plan.microbatches
    if p is None or m is None:
        return f"its {'m' if p else 'p'} is unknown"
    if plan.csv:
        stages = f" --stages {plan.stages}" if plan.stages else ""
        file = beside(case.settings.source.name, str(plan.csv.value)) or str(plan.csv.value)
        return f"pipesched verify {shlex.quote(file)} --p {p} --m {m}{stages} --torch-version {case.torch}"
    if v is None:
        return "its v is unknown"
    sizes = f"--p {p} --v {v} --m {m}" if v != 1 else f"--p {p} --m {m}"
    if plan.options:
        return " -D ".join((f"pipesched verify megatron:interleaved {sizes}", *plan.options))
    row = torch_name(plan.name)
    name = row.order if row else plan.name
    if name is not None and _in_library(name, p, m, torch=row is not None):
        return f"pipesched verify {name} {sizes if name.startswith('interleaved') else f'--p {p} --m {m}'}"
    return f"pipesched verify torch:{row.name} {sizes}" if row else "its order is not in the library"


def _in_library(name: str, p: int, m: int, *, torch: bool) -> bool:
    """Return True if the library's schedule of this name has the trainer's order at these sizes."""
    fits = {
        "interleaved": not torch or not m % p,
        "interleaved_overlap": not m % p,
        "dualpipev": not torch or m >= 2 * p,
    }
    return fits.get(name, True)
