"""``pipesched emit``: writes an order for a runtime after verifying it, or unchanged as order text or .ps."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pipesched import render
from pipesched.command import endings, flags, terminal
from pipesched.command.terminal import Output
from pipesched.diagnostics import Code, fail
from pipesched.formats.targets import targets

if TYPE_CHECKING:
    from pipesched.verbs.emit import Emission


_LISTED = "\n".join(f"{row.name:<13}{row.title}" for row in targets().values())
_HELP = f"""Verify a .ps file, a torch CSV, an order, a stream, a built-in name or - for stdin, and write the programs
that run. F2.5 is the forward of stage 2 for microbatch 5; A+B is an overlap pair, one slot.

\b
{_LISTED}"""


@click.command(help=_HELP)
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("emit")
def emit(file: str, *, to: str, per_rank: str | None, **given: Any) -> int:
    """Write the order in a file for a target, after verifying it."""
    from pipesched import compile
    from pipesched.verbs import emit as emission

    asked = flags.asked("emit", given)
    to = endings.form(given["output"], to if endings.given("to") else None, to)
    if per_rank is not None and given["output"] is not None:
        raise fail(Code.USAGE, "-o and --per-rank cannot be combined", help="give one of them")
    format = "json" if given["json"] else given["format"]
    with Output(format, given["color"], given["output"]).open() as out:
        made = emission.emit(compile.read(file), asked, to)
        files = [] if made.order is None else [*_write(made, out, per_rank)]
        _report(made, out, files, by_rank=per_rank is not None)
    return made.report.exit_status


def _write(emission: Emission, out: Output, folder: str | None) -> Iterator[str]:
    """Write the text rank by rank; yield the names of the files."""
    if folder is not None:
        texts = emission.by_rank()
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise fail(Code.USAGE, f"cannot make the folder {folder}: {error.strerror or error}") from None
        for rank, text in enumerate(texts):
            path = os.path.join(folder, f"rank{rank}{targets()[emission.target].ending}")
            terminal.replace_file(path, text)
            yield path
    elif out.path not in (None, "-"):
        terminal.replace_file(str(out.path), emission.pieces())
        yield str(out.path)
    elif out.format != "json":
        for piece in emission.pieces():
            out.write(piece)


def _report(emission: Emission, out: Output, files: list[str], *, by_rank: bool) -> None:
    """Write errors, warnings and a trainer's settings: to stderr, or all in one object to stdout."""
    if sys.stdout is not None:
        sys.stdout.flush()  # so that on a terminal the settings follow the text
    if out.format == "json":
        terminal.write(terminal.dumps(emission.to_json(files, by_rank=by_rank)) + "\n", sys.stdout)
    elif emission.order is None and out.format == "text":
        out.complain(emission.report.text(color=out.complaint_color))
    else:
        if emission.report.diagnostics:
            terminal.complain(emission.report.diagnostics, out.format, out.color_choice)
        for line in emission.settings(files, by_rank=by_rank):
            out.complain(render.clean(line))
