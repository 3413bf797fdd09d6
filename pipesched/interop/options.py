"""Options of `check`."""

from __future__ import annotations

from pipesched.command.options import OUTPUT, TORCH
from pipesched.command.values import text, whole
from pipesched.extension import Option, flag
from pipesched.interop.values import variable, variables

CHECK = (
    Option("trainer", text, "Trainer and release [default: recognized from the file].", "NAME[==RELEASE]"),
    TORCH[0],
    Option("p", whole, "Number of ranks, if the file does not specify it (DeepSpeed).", "N"),
    Option("processes", whole, "Number of processes in all replicas.", "N"),
    Option(
        "variables",
        variables,
        "A variable of the script.",
        "NAME=VALUE",
        (),
        flags=("-D",),
        typed=variable,
    ),
    Option(
        "dry_run_script",
        flag,
        "EXECUTE the file with bash; torchrun, python, srun, ... only record their arguments.",
        default=False,
    ),
    *OUTPUT,
)
