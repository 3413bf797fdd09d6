"""``pipesched show``: a schedule as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pipesched import render
from pipesched.cli import drawing, flags
from pipesched.cli.terminal import Output, dumps
from pipesched.diagnostics import exit_status
from pipesched.verbs.options import compile_options

if TYPE_CHECKING:
    from pipesched.analysis.deviation import Against
    from pipesched.analysis.standstill import Standstill
    from pipesched.verbs.show import Picture
    from pipesched.views.chart import Chart


@click.command(short_help="Draw a schedule: in the terminal, or as SVG, page, trace or graph.")
@click.argument("file", type=flags.target, metavar="FILE")
@flags.options("show")
def show(file: str, **given: Any) -> int:
    """Draw a .ps file, a torch CSV, an order, a stream, a built-in name, or - for stdin.

    \b
    pipesched show zb_h1 --p 4 --m 8                  a chart in the terminal
    pipesched show dualpipe --p 8 --m 20 -o dp.svg    a figure for a paper, or dp.pdf, dp.png
    pipesched show 1f1b --p 4 -o 1f1b.html            a page to zoom and to point at
    pipesched show 1f1b --p 4 -o 1f1b.json            a trace for Perfetto
    pipesched show 1f1b --p 4 --measured run.json     a measured run under the plan

    A file that is wrong is drawn as far as it runs, with exit status 1.
    """
    from pipesched import compile
    from pipesched.verbs import show as picture
    from pipesched.verbs import targets

    sizes = flags.one_size("show", given)
    wanted = drawing.wanted(given)
    with Output("json" if given["json"] else "text", given["color"], given["output"], given["digits"]) as out:
        source = compile.read(file)
        asked = compile_options(given, sizes)
        made = picture.picture(source, asked, ran=bool(given["measured"]))
        run = picture.laid_over(made, targets.traces(given["measured"])) if given["measured"] else None
        drawn = drawing.draw(made.chart, wanted, given, out, run)
        told = _json(made, source.name, wanted.format, drawn) | ({} if run is None else {"measured": _measured(run)})
        out.write(dumps(told) + "\n" if given["json"] else drawn)
        if made.fault is not None and not given["json"]:
            fault = render.concise(made.fault, source.name)
            far = "as it stands" if made.chart.stop is None else f"as far as it runs {made.chart.stop.under}"
            out.complain(f"{fault}; drawn {far}, `pipesched verify` tells more")
        return exit_status(made.diagnostics)


def _json(made: Picture, source: str, format: str, drawn: str) -> dict[str, object]:
    return {
        "ok": made.fault is None,
        "name": made.chart.title,
        "source": source,
        "parameters": dict(made.chart.sizes),
        **_times(made.chart),
        "format": format,
        "picture": drawn,
        "stopped": None if made.chart.stop is None else _stopped(made.chart.stop),
        "diagnostics": [render.as_json(found) for found in made.diagnostics],
    }


def _stopped(stop: Standstill) -> dict[str, object]:
    """Where a run never ends: the ranks that do not, and the cycle; steps count from 1."""
    return {
        "model": stop.model or None,
        "ranks": [{"rank": x.rank, "at": x.at, "step": x.step} for x in stop.stands],
        "cycle": [
            {
                "rank": x.stand.rank,
                "at": x.stand.at,
                "step": x.stand.step,
                "needs": x.needs or None,
                "other": x.other,
                "until": x.until or None,
                "until_step": x.until_step or None,
                "behind": x.behind or None,
                "message": {1: "sends", -1: "receives", 0: None}[x.way],
            }
            for x in stop.cycle
        ],
    }


def _times(chart: Chart) -> dict[str, object]:
    """The figures of the title; null of an order that never ends."""
    from pipesched.analysis.assumptions import published
    from pipesched.model.numbers import exact
    from pipesched.views.verdict import spent

    times, figures = spent(chart), ("makespan", "span", "bubble", "span_bubble")
    shown = exact(**{name: None if times is None else getattr(times, name) for name in figures})
    return {**published(chart.costs, chart.analysis.costs_used), **shown}


def _measured(run: Against) -> dict[str, object]:
    """Measured times as JSON numbers: seconds, and units of cost."""
    return {
        "unit": run.unit / 1e9,
        "step": run.step,
        "steps": [length / 1e9 for length in run.lengths],
        "makespan": float(run.makespan),
        "ratios": [
            {
                "kind": x.kind,
                "stage": None if x.stage < 0 else x.stage,
                "cost": float(x.planned),
                "ran": float(x.ran),
                "ratio": None if x.ratio is None else float(x.ratio),
            }
            for x in (*run.kinds, *run.stages)
        ],
        "late": [
            {"rank": x.rank, "operation": str(x.operation), "planned": float(x.planned), "ran": float(x.ran)}
            for x in run.late
        ],
        "clocks_disagree": run.skew / 1e9,
    }
