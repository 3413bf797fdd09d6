"""Options of `why`, `compare` and `diff`."""

from __future__ import annotations

from dataclasses import replace

from pipesched.command.options import ALL, FORMAT, RESULTS, VERBOSE
from pipesched.command.values import text
from pipesched.extension import Option, flag

_SHARE = "Whether costs are for 1/p of the model or for one stage."


def every(help: str) -> Option:
    return Option("every", flag, help, flags=("--all",), terminal=True)


WHY = (every("Show every rank, the whole critical path, and every gap."), *ALL, VERBOSE, *RESULTS)
COMPARE = (
    Option("library", flag, "Add every built-in schedule.", None, False, ("--all",)),
    Option("cost_per", None, _SHARE, None, "rank", choices=("rank", "stage")),
    Option("plot", text, "Plot the bubble against peak memory.", "OUT.svg", terminal=True),
    *ALL,
    VERBOSE,
    *(replace(x, choices=(*x.choices, "csv", "markdown", "latex")) if x is FORMAT else x for x in RESULTS),
)
DIFF = (every("Show every line, with every operation."), *ALL, VERBOSE, *RESULTS)
