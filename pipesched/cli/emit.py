"""``pipesched emit``: what runs, for a runtime to read. Nothing is written that was not verified."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pipesched import render
from pipesched.cli import flags, terminal
from pipesched.cli.terminal import Output
from pipesched.diagnostics import Code, fail
from pipesched.targets import TARGETS
from pipesched.verbs.options import compile_options

if TYPE_CHECKING:
    from pipesched.verbs.emit import Emission


_LISTED = "\n".join(f"{row.name:<13}{row.title}" for row in TARGETS.values())
_HELP = f"""Verify a .ps file, a torch CSV, an order, a stream, a built-in name or - for stdin, and write what runs.

\b
{_LISTED}"""


@click.command(short_help="Write what runs: instruction streams, or torch's CSV.", help=_HELP)
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("emit")
def emit(file: str, *, to: str, per_rank: str | None, **given: Any) -> int:
    """Writes for a target of TARGETS what a file holds, once it is verified."""
    from pipesched import compile
    from pipesched.verbs import emit as emission

    sizes = flags.one_size("emit", given)
    if per_rank is not None and given["output"] is not None:
        raise fail(Code.USAGE, "-o and --per-rank exclude each other", help="give one of them")
    with flags.output_of(given) as out:
        made = emission.emit(compile.read(file), compile_options(given, sizes), to)
        if made.order is None:
            return _refuse(made, out)
        files = _write(made, out, per_rank)
        _report(made, out, files, per_rank)
    return 0


def _refuse(emission: Emission, out: Output) -> int:
    """What is wrong: an object or annotations on stdout, where tools read them, else text on stderr."""
    report = emission.report
    if out.format == "json":
        terminal.write(terminal.dumps(report.to_json()) + "\n", sys.stdout)
    elif out.format == "text":
        out.complain(report.text(color=out.complaint_color))
    else:
        terminal.complain(report.diagnostics, out.format, out.color_choice)
    return report.exit_status


def _write(emission: Emission, out: Output, per_rank: str | None) -> list[str]:
    """Writes the text, a rank at a time; returns the names of the files."""
    if per_rank is not None:
        return list(_write_ranks(emission, per_rank))
    if out.path not in (None, "-"):
        terminal.replace_with(str(out.path), emission.pieces())
        return [str(out.path)]
    if out.format != "json":
        for piece in emission.pieces():
            out.write(piece)
    return []


def _write_ranks(emission: Emission, folder: str) -> Iterator[str]:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise fail(Code.USAGE, f"cannot make the folder {folder}: {error.strerror or error}") from None
    for rank, text in enumerate(emission.by_rank()):
        path = os.path.join(folder, f"rank{rank}{TARGETS[emission.target].ending}")
        terminal.replace_with(path, [text])
        yield path


def _report(emission: Emission, out: Output, files: list[str], per_rank: str | None) -> None:
    """Warnings, and the settings of a trainer: on stderr, or all in one object."""
    settings = list(_settings(emission, files, per_rank))
    if sys.stdout is not None:
        sys.stdout.flush()  # so that on a terminal the settings come after the text
    if out.format == "json":
        text = None if files else "".join(emission.pieces())
        found = [render.as_json(diagnostic) for diagnostic in emission.report.diagnostics]
        entry = {"ok": True, "name": emission.report.name, "target": emission.target, "files": files, "text": text}
        terminal.write(terminal.dumps({**entry, "settings": settings, "diagnostics": found}) + "\n", sys.stdout)
        return
    if emission.report.diagnostics:
        terminal.complain(emission.report.diagnostics, out.format, out.color_choice)
    for line in settings:
        out.complain(render.clean(line))


def _settings(emission: Emission, files: list[str], per_rank: str | None) -> Iterator[str]:
    """What a trainer needs besides the file."""
    if emission.order is None:
        return
    if per_rank is not None and TARGETS[emission.target].torch:
        yield "torch reads one file with a row a rank, on every node: these rows are for people"
    else:
        yield from emission.settings(files[0] if files else f"FILE{TARGETS[emission.target].ending}")
