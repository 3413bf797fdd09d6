"""``pipesched calibrate``: costs from a measured run."""

from __future__ import annotations

import click

from pipesched.command import flags
from pipesched.runtime import found_costs


@click.command
@click.argument("traces", type=click.Path(), nargs=-1, required=True, metavar="TRACE...")
@flags.options("calibrate")
def calibrate(traces: tuple[str, ...], *, digits: int, output: str | None, json: bool, color: str) -> int:
    """Fit F, I, W, B, FB and C of every stage, in microseconds, to a measured run.

    \b
    TRACE is what `pipesched run --trace` writes, or the files that torch's profiler exports, one per rank:
      pipesched run zb_h1 --p 4 --m 8 --trace run.json
      pipesched calibrate run.json -o costs.toml
      pipesched optimize --p 4 --m 8 --mem-cap 4 --costs costs.toml

    Medians over steps and microbatches. The first step of several, which warms up, and outliers do not count.
    """
    from pipesched.runtime import calibrate as verb
    from pipesched.runtime.measured import trace_files

    out = found_costs.output(json, color, output)
    return found_costs.tell(out, verb.calibrate(trace_files.read(traces), digits), output)
