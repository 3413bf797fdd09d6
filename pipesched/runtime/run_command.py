"""``pipesched run``: trains a small real model with a schedule on this machine, or runs one rank with your stages."""

from __future__ import annotations

from typing import Any

import click

from pipesched.command import flags, options, terminal
from pipesched.runtime import found_costs


@click.command
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("run")
def run(file: str, **given: Any) -> int:
    """Train a small model on p local processes with a .ps file, a torch CSV, a stream, a built-in name, or -.

    Every gradient is compared with the gradient of the undivided model, and the peak of activations with the prediction
    of `verify`. Needs torch: pip install 'pipesched[runtime]'

    \b
    --pace is the duration of a cost of 1, or of a mean forward if a step would otherwise last longer than --timeout, as
    with the costs in microseconds that `calibrate` writes. --engine torch runs the compute operations in torch's own
    runtime, whose lowering is verified before the first step. --fault kill@1:7 kills rank 1 at its 7th instruction;
    other kinds are freeze, raise, raise-backward, nan, shape, dtype, stall, leave, collective, weights and hook. The
    run then ends with exit status 1 and the code of the fault.

    \b
    --rank runs the list of one rank of a pipeline of any size in one process, with imitated neighbours. --stages names
    your function, which is called with the number of a stage and the number of stages; it returns a module, (module,
    inputs) or (module, inputs, loss):
      pipesched run zb_h1 --p 64 --m 128 --rank 17 --stages mine.py:stage -o costs.toml
      pipesched run zb_h1 --p 64 --m 128 --rank 0 --stages mine.py:stage --costs costs.toml -o costs.toml
      pipesched optimize --p 64 --m 128 --costs costs.toml

    With --costs, the costs of stages on other ranks are kept, so that rehearsals of all ranks complete one file. Bytes
    are counted tensor by tensor on a CPU, and by torch's allocator on a GPU: activations, messages and temporaries, not
    weights and their gradients. Costs are in milliseconds.
    """
    from pipesched.compile import read
    from pipesched.runtime import run as verb

    if verb.alone(given):
        return _one_rank(file, given)
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


def _one_rank(file: str, given: options.Given) -> int:
    """Rehearse one rank with the user's own stages; write its bytes and costs."""
    from pipesched.compile import read
    from pipesched.runtime import rehearse as verb

    out = found_costs.output(given["json"] or given["format"] == "json", given["color"], given["output"])
    found = verb.rehearse(read(file), flags.asked("run", given), options.request(verb.Request, given))
    return found_costs.tell(out, found, given["output"])
