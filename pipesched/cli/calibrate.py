"""``pipesched calibrate``: costs from a measured run."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from pipesched.cli import flags
from pipesched.cli.terminal import Output, dumps, replace_file
from pipesched.diagnostics import Code, fail

if TYPE_CHECKING:
    from pipesched.verbs.calibrate import Calibration


@click.command(short_help="Fit the costs of every stage to a measured run.")
@click.argument("traces", type=click.Path(), nargs=-1, required=True, metavar="TRACE...")
@flags.options("calibrate")
def calibrate(traces: tuple[str, ...], *, digits: int, output: str | None, json: bool, color: str) -> int:
    """Fit F, I, W, B, FB and C of every stage, in microseconds, to a measured run.

    \b
    TRACE is what `pipesched run --trace` writes, or the files that torch's profiler exports, one a rank:
      pipesched run zb_h1 --p 4 --m 8 --trace run.json
      pipesched calibrate run.json -o costs.toml
      pipesched optimize --p 4 --m 8 --mem-cap 4 --costs costs.toml

    Medians over steps and microbatches. The first step of several, which warms up, and outliers do not count.
    """
    from pipesched.verbs import calibrate as calibration
    from pipesched.verbs import targets

    if not 1 <= digits <= 9:
        raise fail(Code.USAGE, f"{digits} significant digits; 1 to 9 can be given")
    out = Output("json" if json else "text", color)
    made = calibration.calibrate(targets.traces(traces), digits)
    text = calibration.toml(made, [PurePath(trace).name for trace in traces])
    if output and output != "-":
        replace_file(output, text)
    if json:
        out.line(dumps(_json(made, traces, output)))
    elif output == "-":
        out.write(text)
        out.complain(_table(made))
    else:
        out.line(_table(made))
    return 0


def _table(made: Calibration) -> str:
    """A line a cost and stage, and what must be said of them."""
    from pipesched.verbs.calibrate import plain
    from pipesched.verbs.tables import table

    headers = ("cost", "stage", "microseconds", "spread", "samples", "left out")
    rows = [
        (
            fit.cost,
            str(fit.stage),
            plain(made.costs[fit.cost][fit.stage]),
            f"{100 * fit.spread:.1f} %",
            str(fit.samples),
            str(fit.left_out),
        )
        for fit in made.fits
    ]
    spread = "spread: the distance of the quartiles; left out: outliers"
    return "\n".join([table(headers, rows), "", spread, *(f"note: {note}" for note in made.notes)])


def _json(made: Calibration, traces: tuple[str, ...], output: str | None) -> dict[str, object]:
    from pipesched.verbs.calibrate import plain

    run = made.measured
    return {
        "ok": True,
        "sources": list(traces),
        "ranks": run.schedule.ranks,
        "stages": run.schedule.stages,
        "microbatches": run.schedule.microbatches,
        "steps": run.steps,
        "unit": "us",
        "costs": {key: [_exact(plain(x)) for x in row] for key, row in made.costs.items()},
        "costs_decimal": {key: [float(x) for x in row] for key, row in made.costs.items()},
        "fits": [
            {
                "cost": fit.cost,
                "stage": fit.stage,
                "median": float(fit.value) / 1000,
                "low": float(fit.low) / 1000,
                "high": float(fit.high) / 1000,
                "samples": fit.samples,
                "left_out": fit.left_out,
            }
            for fit in made.fits
        ],
        "notes": list(made.notes),
        "file": output,
        "diagnostics": [],
    }


def _exact(text: str) -> int | str:
    """A whole number as one, any other as a string, as in every command."""
    return int(text) if text.isdecimal() else text
