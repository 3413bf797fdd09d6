"""``pipesched show``: draws a schedule."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from typing import Any

import click

from pipesched import render
from pipesched.command import endings, flags
from pipesched.command.options import Given
from pipesched.command.terminal import Output, dumps, replace_file, utf8, wants_color
from pipesched.diagnostics import Code, fail
from pipesched.extension import TEXTS
from pipesched.views.chart.views import COLUMNS, NotLaidOutError, Request


@click.command
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("show")
def show(file: str, **given: Any) -> int:
    """Draw a .ps file, a torch CSV, an order, a stream, a built-in name, or - for stdin.

    \b
    pipesched show zb_h1 --p 4 --m 8                  a chart in the terminal
    pipesched show dualpipe --p 8 --m 20 -o dp.svg    a figure for a paper, or dp.pdf, dp.png
    pipesched show 1f1b --p 4 -o 1f1b.html            a page with zoom and tooltips
    pipesched show 1f1b --p 4 -o 1f1b.json            a trace for Perfetto
    pipesched show 1f1b --p 4 --measured run.json     a measured run under the plan

    A wrong file is drawn as far as it runs, with exit status 1.
    """
    from pipesched.compile import read
    from pipesched.views import show as verb

    asked, path, how = flags.asked("show", given), given["output"], _request(given)
    with Output("json" if given["json"] else "text", given["color"], path, given["digits"]).open() as out:
        try:
            made = verb.show(read(file), asked, how)
        except NotLaidOutError as error:
            dot = os.path.splitext(str(path))[0] + ".dot"
            replace_file(dot, error.text)
            raise fail(Code.NEEDS, f"{error.diagnostics[0].message}; {dot} contains the graph as DOT") from None
        out.write(dumps(made.to_json()) + "\n" if given["json"] else made.drawn)
        if made.fault is not None and not given["json"]:
            stop = made.chart.analysis.standstill
            far = "as it stands" if stop is None else f"as far as it runs {stop.under}"
            fault = render.concise(made.fault, made.source)
            out.complain(f"{fault}; drawn {far}; `pipesched verify` reports all findings")
        return made.exit_status


def _request(given: Given) -> Request:
    """Return the request for the picture's destination: a file, a terminal, or a JSON object."""
    from pipesched.views import show as verb

    path, json = given["output"], given["json"]
    if json or given["format"]:
        endings.form(path, "json" if json else given["format"], "text", TEXTS if json else None)
    how = verb.request(given, "" if json else os.path.splitext(path or "")[1].lower())
    to_stdout = path in (None, "-")
    return replace(
        how,
        width=how.width or shutil.get_terminal_size((COLUMNS, 24)).columns,
        ascii=how.ascii or (to_stdout and not utf8(sys.stdout)),
        color=not json and wants_color(given["color"], sys.stdout if to_stdout else None),
    )
