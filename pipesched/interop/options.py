"""Options of `check`."""

from __future__ import annotations

from pipesched.command import values
from pipesched.command.options import OUTPUT, TORCH
from pipesched.command.values import text, whole
from pipesched.extension import Option, flag

CHECK = (
    Option("trainer", text, "Trainer, and its release [default: by the file].", "NAME[==RELEASE]"),
    TORCH[0],
    Option("p", whole, "Ranks, where the file does not say: DeepSpeed.", "N"),
    Option("processes", whole, "All processes: those of every replica.", "N"),
    Option(
        "variables",
        values.variables,
        "A variable of the script.",
        "NAME=VALUE",
        (),
        flags=("-D",),
        typed=values.variable,
    ),
    Option(
        "dry_run_script",
        flag,
        "EXECUTE the file by bash, with torchrun, python, srun, ... replaced by recorders of their arguments.",
        default=False,
    ),
    *OUTPUT,
)
