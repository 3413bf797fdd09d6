"""``pipesched verify``: the verdict on every file at every size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pipesched import render
from pipesched.command import flags
from pipesched.command.options import PUBLISHED, compile_options
from pipesched.command.sizes import combinations, count
from pipesched.command.terminal import Output, dumps
from pipesched.diagnostics import PipeschedError
from pipesched.support.source import Source

if TYPE_CHECKING:
    from pipesched.report.report import Report


@click.command
@click.argument("files", type=flags.target, nargs=-1, metavar="FILES...")
@flags.options("verify")
def verify(files: tuple[str, ...], **given: object) -> int:
    """Check schedules: .ps files, torch CSV files, orders, streams, answers of optimize --json,
    certificates of prove --json, built-in names, - for stdin, or FRAMEWORK:NAME.

    \b
    FRAMEWORK:NAME executes other people's code, such as torch:ZBVZeroBubble or python:module:function, in a process
    without sockets and with a temporary home. That is not a sandbox: only run generators whose authors you trust.
    `pipesched list` shows the frameworks; -D NAME=VALUE sets their options.

    \b
    A size can be a list or an inclusive range; for several files or sizes, one line each is printed:
      pipesched verify 1f1b zb_h1 --p 2..8 --m 16,32

    \b
    MODEL is strict, buffered(k), one-stream, pair-stream or async. If you name a model, the report also shows the
    makespan with messages that queue. The facts in an answer are derived again; if they depend on a solver's unchecked
    result, the report says so. Exit status: 0 no error, 1 a file has an error, 2 the command line is wrong or a file is
    missing, 3 a certificate leaves a property open.
    """
    from pipesched.verbs import verify as verb

    grid = flags.grid(given)
    sources = [_read(target) for target in files] or [verb.unnamed(compile_options("verify", given, {}))]
    listed = [verb.lists([source]) if isinstance(source, Source) else frozenset() for source in sources]
    runs = count(grid, listed)
    with flags.output_of(given) as out:
        basis, sized = compile_options("verify", given, {}), zip(sources, listed, strict=True)
        asked = [(source, replace(basis, parameters=x)) for source, own in sized for x in combinations(grid, own)]
        reports = verb.verify_all(asked)
        if out.format in PUBLISHED:
            return _published(list(reports), out)
        return out.verdict(next(reports)) if runs == 1 else _many(reports, out)


def _read(target: str) -> Source | Report:
    """Return the text of a file, or the report on one that cannot be read."""
    from pipesched.library.inputs import read
    from pipesched.report.report import Report

    try:
        return read(target)
    except PipeschedError as error:
        return Report(target, target, diagnostics=error.diagnostics)


def _published(reports: list[Report], out: Output) -> int:
    """Write all reports in the format of another tool; return the worst exit status."""
    out.line(PUBLISHED[out.format].text.load()(reports))
    return max(report.exit_status for report in reports)


def _many(reports: Iterator[Report], out: Output) -> int:
    """Print each report on one line when it is ready, or all as one object; return the worst exit status."""
    seen, statuses, assumed = [], [], dict[str, None]()
    for report in reports:
        statuses.append(report.exit_status)
        assumed |= dict.fromkeys(report.rests_on)
        if out.format == "json":
            seen.append(report.to_json())
        else:
            out.line(report.line(color=out.color) if out.format == "text" else out.shown(report))
    if out.format == "json":
        out.line(dumps({"ok": not any(statuses), "runs": seen}))
    elif out.format == "text":
        for line in render.assumptions([*assumed], verbose=out.verbose):
            out.line(line)
        out.complain(f"{statuses.count(0)} of {len(statuses)} hold")
    return max(statuses)
