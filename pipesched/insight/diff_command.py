"""``pipesched diff``: the differences between two orders, and their cost."""

from __future__ import annotations

import click

from pipesched import render
from pipesched.command import flags


@click.command
@click.argument("a", type=flags.target, metavar="A")
@click.argument("b", type=flags.target, metavar="B")
@flags.options("diff")
def diff(a: str, b: str, *, every: bool, **given: object) -> int:
    """List the differences between two orders: .ps files, torch CSV files, orders, streams, built-in names.

    The output shows, rank by rank, the fewest operations that must be moved to turn A into B, the operations that only
    one of the orders has, and differences in sizes and placement; then the times and the memory of both orders. If both
    files name messages, the messages are also compared.

    \b
    pipesched diff zb_h1 mine.ps --p 4 --m 8
    Exit status: 0 the orders are the same, 1 they differ or a file is not a schedule, 2 the command line is wrong.
    """
    from pipesched.compile import read
    from pipesched.insight import diff as verb

    asked = flags.asked("diff", given)
    with flags.output_of(given) as out:
        found = verb.diff(read(a), read(b), asked)
        status = out.result(found, every=every)
        for side in (found.a, found.b):
            if side.report.fault is not None:
                out.complain(f"{render.concise(side.report.fault, side.loaded.source)}; `pipesched verify` reports all")
        return status
