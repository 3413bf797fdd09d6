"""``pipesched compare``: schedules and sizes in one table."""

from __future__ import annotations

import click

from pipesched.command import flags, sizes
from pipesched.command.options import compile_options
from pipesched.command.terminal import replace_file, writable
from pipesched.diagnostics import Code, fail
from pipesched.extension import TEXTS


@click.command
@click.argument("files", type=flags.target, nargs=-1, metavar="FILES...")
@flags.options("compare")
def compare(files: tuple[str, ...], *, library: bool, cost_per: str, plot: str | None, **given: object) -> int:
    """Compare schedules: .ps files, torch CSV files, orders, streams, built-in names, or - for stdin.

    \b
    pipesched compare gpipe 1f1b zb_h1 --p 4 --m 8,16,32
    pipesched compare --all --p 8 --m 32 --plot bubble.svg
    pipesched compare 1f1b interleaved --p 4 --v 2,4 --m 8 --cost F=1,I=1,W=1,C=0.1

    A parameter applies to the schedules that have it. With costs for 1/p of the model, the default, an operation of one
    of S stages takes p/S of them, so that schedules are comparable.
    """
    from pipesched.compile import read
    from pipesched.insight import compare as verb
    from pipesched.insight.compare_tables import ENDINGS, written
    from pipesched.verbs.verify import lists

    grid, names = flags.grid(given), verb.named(files, library=library)
    if plot is None and given.get("traffic"):
        raise fail(
            Code.USAGE, "--traffic draws a plot, but --plot does not name a file for it", help="give --plot traffic.svg"
        )
    if plot is not None and not plot.lower().endswith(".svg"):
        raise fail(
            Code.USAGE, f"plots are SVG files, but {plot} does not end in .svg", help="give a name that ends in .svg"
        )
    if plot is not None:
        writable(plot)
    asked = compile_options("compare", given, {})
    with flags.output_of(given, {**TEXTS, **ENDINGS}) as out:
        sources = [read(str(name)) for name in names]
        listed = lists(sources)
        sizes.count(grid, [listed] * len(names))
        found = verb.compare(sources, sizes.combinations(grid, listed), asked, per_stage=cost_per == "stage")
        if plot is not None:
            replace_file(plot, found.plot())
        if out.format in ENDINGS:
            out.line(written(found, out.format))
            return found.exit_status
        return out.result(found, width=out.width)
