"""``pipesched why``: the causes of a schedule's idle time."""

from __future__ import annotations

import click

from pipesched import render
from pipesched.command import flags
from pipesched.diagnostics import Code


@click.command
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("why")
def why(file: str, *, every: bool, **given: object) -> int:
    """Explain the idle time of a .ps file, a torch CSV, an order, a stream, a built-in name, or - for stdin.

    \b
    Idle time is split exactly: warm-up before the first operation of a rank, cool-down after its last, waits for
    operations and messages of other ranks in between, and imbalance, the additional work of the busiest rank. The
    output also shows the growth per microbatch, the most similar published order, the critical path, and each gap with
    the operation that ends it. An incorrect schedule is explained as far as it runs, with exit status 1.
    """
    from pipesched.compile import read
    from pipesched.insight import why as verb

    asked = flags.asked("why", given)
    with flags.output_of(given) as out:
        source = read(file)
        found = verb.why(source, asked)
        status = out.result(found, every=every)
        if (wrong := found.report.fault) is not None:
            fault = render.concise(wrong, source.name)
            far = "as if no send blocked" if wrong.code is Code.DEADLOCK else "as it stands"
            far = far if found.analysis.finished else "as far as it runs"
            out.complain(f"{fault}; explained {far}, `pipesched verify` reports all")
        return status
