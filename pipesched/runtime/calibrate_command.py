"""``pipesched calibrate``: fits costs to a measured run."""

from __future__ import annotations

import click

from pipesched.command import flags
from pipesched.runtime import found_costs


@click.command
@click.argument("traces", type=click.Path(), nargs=-1, required=True, metavar="TRACE...")
@flags.options("calibrate")
def calibrate(traces: tuple[str, ...], *, digits: int, output: str | None, json: bool, color: str) -> int:
    """Fit the costs F, I, W, B, FB and C of every stage, in microseconds, to a measured run.

    \b
    TRACE is written by `pipesched run --trace`, or exported by torch's profiler, one file per rank:
      pipesched run zb_h1 --p 4 --m 8 --trace run.json
      pipesched calibrate run.json -o costs.toml
      pipesched optimize --p 4 --m 8 --mem-cap 4 --costs costs.toml

    Costs are medians over steps and microbatches. The first of several steps is a warm-up and does not count; nor do
    outliers.
    """
    from pipesched.runtime import calibrate as verb
    from pipesched.runtime.measured import measured_traces

    out = found_costs.output(json, color, output)
    return found_costs.tell(out, verb.calibrate(measured_traces.files(traces), digits), output)
