"""``pipesched run``: a schedule trains a small real model on this machine, and is compared with its prediction."""

from __future__ import annotations

from typing import Any

import click

from pipesched.command import flags, options, terminal


@click.command(short_help="Train a small model with a schedule, and compare with the prediction.")
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("run")
def run(file: str, **given: Any) -> int:
    """Train a small model on p local processes with a .ps file, a torch CSV, a stream, a built-in name, or -.

    Every gradient is compared with that of the model in one piece, the peak of activations with what `verify`
    predicts. Needs torch: pip install pipesched[torch]

    \b
    --pace is what a cost of 1 lasts, or a forward where else a step would last longer than --timeout, as with
    the microseconds of `calibrate`.
    --engine torch runs the computes in torch's own runtime, whose lowering is verified before the first step.
    --fault kill@1:7 kills rank 1 at its 7th instruction; other kinds are freeze, raise, raise-backward, nan,
    shape, dtype, stall, leave, collective, weights and hook. The run then ends with exit status 1 and the code of
    the fault.
    """
    from pipesched.compile import read
    from pipesched.runtime import run as verb

    asked = flags.asked("run", given)
    request = options.request(verb.Request, given, trace=given["trace"] is not None)
    if request.trace:
        terminal.writable(given["trace"])
    with flags.output_of(given) as out:
        found = verb.run(read(file), asked, request)
        if request.trace:
            terminal.replace_file(given["trace"], found.trace)
        if out.format == "json":
            out.line(terminal.dumps(found.to_json()))
            return found.exit_status
        if found.diagnostics:
            terminal.complain(found.diagnostics, out.format, out.color_choice)
        if found.ok:
            out.line(found.text(color=out.color))
        return found.exit_status
