"""``pipesched order``: what every rank does, in order; and an order as a .ps file."""

from __future__ import annotations

from typing import Any

import click

from pipesched.command import flags
from pipesched.command.terminal import dumps
from pipesched.diagnostics import Code, fail


@click.command(short_help="Print what every rank does, in order.")
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("order")
def order(file: str, *, program: bool, **given: Any) -> int:
    """Print the order of a .ps file, a torch CSV file, a stream, a built-in name, or - for stdin.

    F2.5 is the forward of stage 2 for microbatch 5; A+B is an overlap pair, one slot. With --format ps the order is
    written in the language, with loops where it repeats: a .ps file for this one size.
    """
    from pipesched import compile
    from pipesched.lift import order as verb

    asked = flags.asked("order", given)
    with flags.output_of(given) as out:
        if program and out.format == "ps":
            raise fail(Code.USAGE, "a .ps file has no sends and receives", help="leave --program out")
        source = compile.read(file)
        if out.format == "ps":
            out.write(verb.as_ps(source, asked))
            return 0
        text, unsaid = verb.order(source, asked, program=program)
        out.write(dumps(_json(source.name, text)) + "\n" if out.format == "json" else text.rstrip("\n") + "\n")
        if unsaid:
            out.complain(unsaid)
    return 0


def _json(name: str, text: str) -> dict[str, object]:
    """The same words, by rank."""
    rows = [line.partition(":")[2].split() for line in text.splitlines() if line.startswith("rank ")]
    return {"ok": True, "source": name, "order": rows}
