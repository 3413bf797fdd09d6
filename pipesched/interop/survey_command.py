"""``pipesched survey``: what a framework's schedules do at many sizes and options."""

from __future__ import annotations

from typing import Any

import click

from pipesched.command import flags
from pipesched.command.progress import watched


@click.command(short_help="Say at which sizes and options a framework's schedules go wrong.")
@click.argument("framework", metavar="FRAMEWORK[:NAME]")
@flags.options("survey")
def survey(framework: str, **given: Any) -> int:
    """Execute the schedules of a framework that is installed, at many sizes and with many options, and say which wait
    for ever under which communication model, with the least buffer that helps, and which take a message for another.

    \b
    pipesched survey megatron --p 2..8 --v 1..3 --m p,2p,4p
    pipesched survey megatron:interleaved --p 4 --v 2 -D variable_seq_lengths=0,1 -o survey.html

    With -o, a name that ends in .html gives a page. The code runs in a process of its own; it is its author's code.
    """
    from pipesched.command.options import compile_options
    from pipesched.interop import survey as verb

    grid = verb.configurations(framework, **verb.request(given))
    with flags.output_of(given) as out:
        with watched(out, f"{len(grid):,} configurations") as tell:
            found = verb.survey(grid, compile_options({**given, "definitions": ()}, {}), tell)
        if out.format == "html":
            out.write(found.html())
            return found.exit_status
        return out.result(found)
