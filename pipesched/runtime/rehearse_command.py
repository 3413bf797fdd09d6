"""``pipesched rehearse``: one rank of a large pipeline on this machine."""

from __future__ import annotations

from typing import Any

import click

from pipesched.command import flags, options
from pipesched.command.flags import costs_output


@click.command(short_help="Run one rank's list with your stages: real bytes, and costs.")
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("rehearse")
def rehearse(file: str, *, output: str | None, json: bool, color: str, **given: Any) -> int:
    """Run one rank's list of a pipeline of any size in one process, its neighbours imitated.

    \b
    --stages names a function of yours, called with the number of a stage and how many there are; it returns a
    module, (module, inputs) or (module, inputs, loss):
      pipesched rehearse zb_h1 --p 64 --m 128 --rank 17 --stages mine.py:stage -o costs.toml
      pipesched rehearse zb_h1 --p 64 --m 128 --rank 0 --stages mine.py:stage --costs costs.toml -o costs.toml
      pipesched optimize --p 64 --m 128 --costs costs.toml

    With --costs the costs of stages on other ranks stay as they are there, so rank after rank one file is made.

    Bytes are counted tensor by tensor on a CPU, and by torch's allocator on a GPU: activations, messages and
    temporaries, not weights and their gradients. Costs are milliseconds. Needs torch: pip install pipesched[torch]
    """
    from pipesched.compile import read
    from pipesched.runtime import rehearse as verb

    out = costs_output(json, color, output)
    found = verb.rehearse(read(file), flags.asked("rehearse", given), options.request(verb.Request, given))
    return out.costs(found, output)
