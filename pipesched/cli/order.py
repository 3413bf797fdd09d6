"""``pipesched order``: what every rank does, in order."""

from __future__ import annotations

from typing import Any

import click

from pipesched.cli import options
from pipesched.cli.terminal import dumps
from pipesched.diagnostics import Code, fail


@click.command(short_help="Print what every rank does, in order.")
@click.argument("file", metavar="FILE")
@click.option("--program", is_flag=True, help="Sends, receives and reductions too.")
@options.size_options
@options.torch_options
@options.output_options
def order(file: str, *, program: bool, **given: Any) -> int:
    """Print the order of a .ps file, a torch CSV file, a stream, a built-in name, or - for stdin.

    F2.5 is the forward of stage 2 for microbatch 5; A+B is an overlap pair, one slot.
    """
    from pipesched import compile

    values = options.grid(given)
    if options.count(values) != 1:
        raise fail(Code.USAGE, "order takes one size at a time", help="give each parameter one value")
    parameters = next(options.combinations(values))
    with options.output_of(given) as out:
        source = compile.read(file)
        text = compile.order(source, options.compile_options(given, parameters), program=program)
        out.write(dumps(_json(source.name, text)) + "\n" if out.format == "json" else text.rstrip("\n") + "\n")
    return 0


def _json(name: str, text: str) -> dict[str, object]:
    """The same words, by rank."""
    rows = [line.partition(":")[2].split() for line in text.splitlines() if line.startswith("rank ")]
    return {"ok": True, "source": name, "order": rows}
